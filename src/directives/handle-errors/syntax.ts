import type { Directive } from '../../hubfile/scope.ts';

export const handleErrors: Directive = {
  usage: 'handle_errors { … }',
  summary: 'answers in place of the plain text of an error',
  holdsDirectives: true,
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
