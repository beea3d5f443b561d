import { step, takeMatcher } from '../hubfile/scope.ts';
import type { Directive } from './directive.ts';

export const handlePath: Directive = {
  syntax: {
    usage: 'handle_path <path>/* { … }',
    summary: 'a `handle` that strips the prefix from the path',
    besides: 'handle',
    holdsDirectives: true,
    read(cursor, scope) {
      const word = cursor.peek();
      if (word === undefined || !word.text.startsWith('/')) {
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
      if (!word.text.endsWith('*') && word.text !== '/') {
        const message = `handle_path ${word.text} matches this path only, nothing below it`;
        const hint = `write ${word.text.replace(/\/$/, '')}/* for paths below it`;
        cursor.warn(word.span, 'handle-path-without-star', message, hint);
      }
      const text = word.text.replace(/\/?\*$/, '');
      const inner = scope.routes(cursor.block(), 'documented');
      cursor.end();
      const strip = { kind: 'uri', change: { kind: 'strip_prefix', text } } as const;
      const routes = text === '' ? inner : [step(cursor, null, strip), ...inner];
      return [step(cursor, matcher, { kind: 'handle', group: scope.group, routes })];
    },
  },
};
