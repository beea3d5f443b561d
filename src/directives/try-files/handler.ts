import type { Exchange, Expand, Handler } from '../../http/exchange.ts';
import { canonicalRewrite } from '../../http/canonical-target.ts';
import { decodePath, pathOf } from '../../http/request-path.ts';
import { tryFiles as search } from '../../site/tried-files.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { TryFilesConfig } from './data.ts';

/** Rewrites the path to a file that is there; one that is written with a query brings it along. */
export function tryFiles(
  { files, policy, splitPath }: TryFilesConfig,
  { expand, hidesFile }: HandlerContext,
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
    // For FastCGI; whoever looks for another file until then does not change it.
    if (splitPath.length > 0) exchange.variables.set('fastcgi.path_info', found?.remainder ?? '');
    if (found !== null) {
      const query = tried[found.index]?.query ?? null;
      const own = exchange.target.slice(pathOf(exchange).length);
      const suffix = query === null ? own : `?${expandedQuery(query, exchange, expand)}`;
      exchange.target = canonicalRewrite(encodedPath(found.relative) + suffix);
    }
    await next();
  };
}

/** A name may hold what would begin a query. */
function encodedPath(path: string): string {
  return path.replaceAll('%', '%25').replaceAll('?', '%3F').replaceAll('#', '%23');
}

/** What a placeholder brings in is one value, that of a path decoded; only `{query}` is several. */
function expandedQuery(query: string, exchange: Exchange, expand: Expand): string {
  const encoded = (value: string): string => encodeURIComponent(decodePath(value));
  return query
    .split(/(\{query\}|\{http\.request\.uri\.query\})/)
    .map((part, index) => expand(part, exchange, undefined, index % 2 === 0 ? encoded : undefined))
    .join('');
}
