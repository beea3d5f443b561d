import { type Report, error } from '../config/problem.ts';
import { defaultsOf, list, object, type Of, withDefault } from '../config/shape.ts';
import { name, oneOf, text } from '../config/shape-values.ts';
import { isTriedFile, misplacedStatus, TRY_POLICIES } from '../config/well-formed.ts';
import { step, takeMatcher } from '../hubfile/scope.ts';
import { checkTried, triedFiles, tryPolicy } from '../hubfile/values.ts';
import type { Handler } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { pathOf } from '../http/request-path.ts';
import { encodedPath, queryFrom } from '../site/rewritten-target.ts';
import { tryFiles as search } from '../site/site-files.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

const members = {
  /** Paths below the root, with placeholders, each with an optional query; the last one may be `=404`. */
  files: list(text('a path, or a status such as =404', isTriedFile), { min: 1 }),
  policy: withDefault(oneOf(...TRY_POLICIES), 'first_exist'),
  /** Ends of names after which the rest of the path does not belong to the file; only for `php_fastcgi`. */
  splitPath: withDefault(list(name('the end of a name such as .php')), []),
};

export interface TryFilesConfig extends Of<typeof members> {
  readonly kind: 'try_files';
}

const USAGE = `
try_files <file…> [=<status>] {
    policy first_exist|smallest_size|largest_size|most_recently_modified
}
`;

export const tryFiles: HandlerDirective<TryFilesConfig> = {
  data: {
    shape: () => object(members),
    check(handler: TryFilesConfig, report: Report): void {
      const message = misplacedStatus(handler.files, handler.policy);
      if (message !== null) report(handler, error('misplaced-status', message));
    },
    retargets: () => true,
  },
  syntax: {
    usage: USAGE,
    summary: 'rewrites the path to the first file that exists',
    read(cursor, scope) {
      const word = cursor.peek();
      // A path is a file here, so a matcher can only be given by its name.
      const matcher = word?.text.startsWith('@') === true ? takeMatcher(cursor, scope) : null;
      const files = triedFiles(cursor, cursor.several('a path such as {path}'));
      const { policy } = cursor.options(defaultsOf(members), {
        policy: (o) => ({ policy: tryPolicy(o) }),
      });
      cursor.end();
      checkTried(cursor, files, policy);
      return [step(cursor, matcher, { kind: 'try_files', files, policy, splitPath: [] })];
    },
  },
  compile,
};

/** Rewrites the path to an existing file; the query that is written with it becomes the query. */
function compile(
  { files, policy, splitPath }: TryFilesConfig,
  { expandOrEmpty: expand, hidesFile }: HandlerContext,
): Handler {
  const tried = files.map((file) => {
    const mark = file.indexOf('?');
    return mark === -1
      ? { path: file, query: null }
      : { path: file.slice(0, mark), query: file.slice(mark + 1) };
  });
  const paths = tried.map(({ path }) => path);
  return async (exchange, next) => {
    const found = await search(
      exchange,
      { root: null, files: paths, policy, splitPath },
      hidesFile,
    );
    // For FastCGI. Looking up another file later does not change it.
    if (splitPath.length > 0) exchange.variables.set('fastcgi.path_info', found?.remainder ?? '');
    if (found !== null) {
      const query = tried[found.index]?.query ?? null;
      const own = exchange.target.slice(pathOf(exchange).length);
      const written = query === null ? '' : queryFrom(query, exchange, expand);
      const suffix = query === null ? own : written && `?${written}`;
      exchange.target = canonicalRewrite(encodedPath(found.relative) + suffix);
    }
    await next();
  };
}
