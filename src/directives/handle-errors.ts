import type { RequestMatcher } from '../config/routes.ts';
import { step } from '../hubfile/scope.ts';
import { statusClasses } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

export const handleErrors: Directive = {
  syntax: {
    usage: 'handle_errors [<status…>] { … }',
    summary: "answers errors in place of hubgate's own error pages",
    holdsDirectives: true,
    siteOnly: true,
    read(cursor, scope) {
      const statuses = cursor.left > 0 ? statusClasses(cursor) : [];
      const routes = scope.routes(cursor.block(), 'documented');
      cursor.end();
      const matcher: RequestMatcher | null =
        statuses.length === 0 ? null : [{ kind: 'error_status', statuses }];
      const { errorRoutes } = scope.site;
      const isForAll = (route: { readonly matcher: RequestMatcher | null }): boolean =>
        route.matcher === null;
      if (matcher === null && errorRoutes.some(isForAll)) {
        const message = 'handle_errors for all errors is given twice';
        cursor.fail(
          cursor.span,
          'duplicate-directive',
          message,
          'name the statuses, for example: handle_errors 404 5xx',
        );
      }
      // They run until one answers, so the one for all errors comes last.
      const added = step(cursor, matcher, { kind: 'route', routes });
      const named = errorRoutes.filter((route) => !isForAll(route));
      scope.site.errorRoutes =
        matcher === null
          ? [...errorRoutes, added]
          : [...named, added, ...errorRoutes.filter(isForAll)];
      return [];
    },
  },
};
