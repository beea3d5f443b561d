import { answer } from '../../http/answer.ts';
import { HttpError } from '../../http/errors.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import { decodePath, matchedPath, pathOf } from '../../http/request-path.ts';
import {
  type HidesFile,
  noSuchFile,
  realRoot,
  siteFile,
  type SiteFile,
  siteNames,
} from '../../site/site-files.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { FileServerConfig } from './data.ts';
import { hiddenBy, type IsHidden } from './handler/hidden-names.ts';
import { answerListing } from './handler/listing.ts';
import { type Representations, serveFile } from './handler/serve-file.ts';

/**
 * Files below the root, with ranges and conditional requests. What begins with a dot (but for
 * `.well-known`), what is hidden, the configuration and what a symlink leads to outside of the root
 * does not exist.
 */
export function fileServer(
  config: FileServerConfig,
  { expand, hidesFile, besidePages, slices }: HandlerContext,
): Handler {
  const hidden = hiddenBy(config.hide, expand);
  const { status, precompressed } = config;

  const serve = async (exchange: Exchange): Promise<void> => {
    const names = namesOf(exchange);
    const directory =
      config.root === null
        ? (exchange.variables.get('root') ?? '.')
        : expand(config.root, exchange);
    const root = await realRoot(directory);
    const isHidden = hidden(exchange, { directory, real: root });
    if (names === null || isHidden(names)) throw noSuchFile();
    const found = await siteFile(root, names, hidesFile);
    const wantsDirectory = pathOf(exchange).endsWith('/');
    const representations = (of: readonly string[]): Representations => ({
      root,
      names: of,
      isHidden,
      hidesFile,
      precompressed,
    });
    if (!found.stats.isDirectory()) {
      // As matchers see it: `/secret.txt%2f` and `/secret.txt/.` are not what they have let pass.
      if (matchedPath(exchange).endsWith('/')) throw noSuchFile();
      return serveFile(exchange, found.path, representations(names), status);
    }
    const index = await indexOf(root, names, config.index, isHidden, hidesFile);
    // Where there is nothing to show, a redirect would tell that the directory is there.
    if (index === null && !config.browse) throw noSuchFile();
    if (!wantsDirectory && redirected(exchange, names.at(-1))) return;
    if (index !== null) {
      return serveFile(exchange, index.file.path, representations(index.names), status);
    }
    // Its links are relative, so they need the slash.
    if (!wantsDirectory) throw noSuchFile();
    return answerListing(exchange, { root, names, isHidden, hidesFile, status }, slices);
  };

  return besidePages(async (exchange, next) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD') {
      if (config.passThru) return next();
      answer(exchange, 405, { allow: 'GET, HEAD' });
      return;
    }
    try {
      await serve(exchange);
    } catch (error) {
      const isPassed = config.passThru && error instanceof HttpError && error.status === 404;
      if (!isPassed) throw error;
      await next();
    }
  });
}

/** The decoded names of the path; null for one that no file can have. */
function namesOf(exchange: Exchange): string[] | null {
  try {
    return siteNames(decodeURIComponent(pathOf(exchange)));
  } catch (cause) {
    throw new HttpError(400, 'the path is no UTF-8', { cause });
  }
}

/**
 * Relative links of an index need the slash. The answer is relative too, because a prefix may have
 * been stripped; where the name was rewritten it would lead astray, so there is none.
 */
function redirected(exchange: Exchange, name: string | undefined): boolean {
  const [path = '', query] = exchange.originalTarget.split(/\?(.*)/s, 2);
  // Decoded as matchers do: what guards `/private/*` is not to be passed by with `/%70rivate`.
  if (name === undefined || afterSlash(decodePath(path)) !== name) return false;
  const last = afterSlash(path);
  answer(exchange, 308, { location: `./${last}/${query === undefined ? '' : `?${query}`}` });
  return true;
}

function afterSlash(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

async function indexOf(
  root: string,
  names: readonly string[],
  index: readonly string[],
  isHidden: IsHidden,
  hidesFile: HidesFile,
): Promise<{ readonly names: readonly string[]; readonly file: SiteFile } | null> {
  for (const name of index) {
    const all = [...names, ...name.split('/')];
    if (isHidden(all)) continue;
    const file = await siteFile(root, all, hidesFile).catch(() => null);
    if (file !== null && !file.stats.isDirectory()) return { names: all, file };
  }
  return null;
}
