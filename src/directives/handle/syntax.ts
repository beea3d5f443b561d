import { type Directive, step, takeMatcher } from '../../hubfile/scope.ts';

/**
 *     handle [<matcher>] {
 *         <directives…>
 *     }
 *
 * Of the `handle` and `handle_path` blocks side by side, only the first that matches runs.
 */
export const handle: Directive = {
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const routes = scope.routes(cursor.block(), 'documented');
    cursor.end();
    return [step(cursor, matcher, { kind: 'handle', group: scope.group, routes })];
  },
};

/** `handle_path <path>/* { … }`: a `handle` that strips the path's prefix first. */
export const handlePath: Directive = {
  read(cursor, scope) {
    const word = cursor.peek();
    if (word === undefined || !word.plain || !word.text.startsWith('/')) {
      const span = word?.span ?? cursor.span;
      const message = 'handle_path needs a path such as /api/*';
      return cursor.fail(
        span,
        'expected-argument',
        message,
        'for other matchers use handle and uri',
      );
    }
    const matcher = takeMatcher(cursor, scope);
    const text = word.text.replace(/\/?\*$/, '');
    const inner = scope.routes(cursor.block(), 'documented');
    cursor.end();
    const strip = {
      kind: 'uri',
      operation: 'strip_prefix',
      text,
      replacement: '',
      limit: 0,
    } as const;
    const routes = text === '' ? inner : [step(cursor, null, strip), ...inner];
    return [step(cursor, matcher, { kind: 'handle', group: scope.group, routes })];
  },
};

/** `route [<matcher>] { … }`: its directives run as they are written. */
export const route: Directive = {
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const routes = scope.routes(cursor.block(), 'written');
    cursor.end();
    return [step(cursor, matcher, { kind: 'route', routes })];
  },
};

/** `handle_errors { … }`: answers in place of a failed request's plain error. */
export const handleErrors: Directive = {
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    const status = cursor.peek();
    if (status !== undefined && /^[1-5](?:\d\d|xx)$/.test(status.text)) {
      const message = 'handle_errors for single statuses is not supported by hubgate';
      cursor.fail(
        status.span,
        'unsupported-option',
        message,
        'write handle_errors { … } for all errors',
      );
    }
    const routes = scope.routes(cursor.block(), 'documented');
    cursor.end();
    scope.site.errorRoutes = routes;
    return [];
  },
};
