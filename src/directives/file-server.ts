import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { choiceOf, count, flag, oneOf, optionsOf, statusValue } from '../hubfile/values.ts';
import {
  defaultFileServer,
  fileServer as data,
  type FileServerConfig,
  LISTING_ORDERS,
  LISTING_SORTS,
  MAX_LISTED,
  members,
  PRECOMPRESSED,
} from './file-server/data.ts';
import { answer, statusFor } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { matchedPath, pathOf, rootOf } from '../http/request-path.ts';
import { noSuchFile, realRoot, siteFile, type SiteFile, siteNames } from '../site/site-files.ts';
import { errorStatus } from '../http/request-variables.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { type FilePlace, hiddenBy } from './file-server/hidden-names.ts';
import { answerListing } from './file-server/listing.ts';
import { serveFile } from './file-server/serve-file.ts';
import type { HandlerDirective } from './directive.ts';

const USAGE = `
file_server [<matcher>] [browse] {
    root <directory>
    index <file…>
    hide <file…>
    browse { sort namedirfirst|name|size|time [asc|desc]; file_limit <n> }
    precompressed [br] [zstd] [gzip]
    status <status>
    pass_thru
    disable_canonical_uris
}
`;

export const fileServer: HandlerDirective<FileServerConfig> = {
  data,
  syntax: {
    usage: USAGE,
    summary: 'serves files below the root',
    read: oneStep((cursor) => {
      const browse = cursor.left > 0 && oneOf(cursor, ['browse']) === 'browse';
      return cursor.options({ ...defaultFileServer, browse }, OPTIONS, {
        unsupported: UNSUPPORTED,
      });
    }),
  },
  compile,
};

const OPTIONS: OptionTable<FileServerConfig> = {
  ...optionsOf(members, { canonicalUris: 'disable_canonical_uris' }),
  browse: (option, sofar) => ({ browse: true, listing: listing(option, sofar) }),
  precompressed: (option) => ({ precompressed: encodings(option) }),
  status: (option) => ({ status: statusValue(option, option.argument('a status')) }),
  disable_canonical_uris: () => ({ canonicalUris: !flag() }),
};

const UNSUPPORTED: Readonly<Record<string, string>> = {
  etag_file_extensions: 'hubgate makes tags from size and time of change',
  fs: 'hubgate serves files of the operating system',
};

function listing(option: Cursor, sofar: FileServerConfig): FileServerConfig['listing'] {
  const template = option.peek();
  if (template !== undefined) {
    const message = 'templates of listings are not supported by hubgate';
    const hint = 'ask for the listing with Accept: application/json, and let the app show it';
    option.fail(template.span, 'unsupported-option', message, hint);
  }
  return option.options(
    sofar.listing,
    {
      sort: (line) => ({
        sort: oneOf(line, LISTING_SORTS),
        ...(line.left > 0 ? { order: oneOf(line, LISTING_ORDERS) } : {}),
      }),
      file_limit: (line) => ({ limit: count(line, { min: 1, max: MAX_LISTED }) }),
    },
    {
      unsupported: {
        reveal_symlinks: 'leave it out: hubgate lists a link as the file to which it leads',
      },
    },
  );
}

/** Without a word, all available ones. */
function encodings(option: Cursor): FileServerConfig['precompressed'] {
  const words = option.rest();
  return words.length === 0
    ? PRECOMPRESSED
    : words.map((word) => choiceOf(option, word, PRECOMPRESSED));
}

/**
 * Serves files below the root, with ranges and conditional requests. Names that begin with a dot (except
 * `.well-known`), hidden files, the configuration, and targets of symlinks outside of the root count as
 * missing.
 */
function compile(
  config: FileServerConfig,
  { expand, hidesFile, besidePages, scheduler }: HandlerContext,
): Handler {
  const hidden = hiddenBy(config.hide, expand);
  const { precompressed } = config;

  const serve = async (exchange: Exchange): Promise<void> => {
    // It is as fast as a cache, and knows when a file changes.
    exchange.dependsOn?.('file');
    const names = namesOf(exchange);
    const directory = rootOf(config.root, exchange, expand);
    const root = await realRoot(directory);
    const isHidden = hidden(exchange, { directory, real: root });
    const status = config.status === null ? null : statusFor(config.status, exchange, expand);
    if (names === null || isHidden(names)) throw noSuchFile();
    const found = await siteFile(root, names, hidesFile);
    // The path that matchers have seen: neither `/secret.txt%2f` nor `/%70rivate` must bypass a guard.
    const asked = matchedPath({ target: exchange.originalTarget });
    const isAsked = afterSlash(asked.replace(/\/$/, '')) === names.at(-1);
    // If the name was rewritten, a redirect would be wrong.
    const isRedirected = isAsked && config.canonicalUris;
    const wantsDirectory = (isRedirected ? askedPath(exchange) : pathOf(exchange)).endsWith('/');
    const place = { root, names, isHidden, hidesFile };
    if (!found.stats.isDirectory()) {
      if (isRedirected && wantsDirectory) return redirectTo(exchange, -1);
      // `try_files` removes the slash.
      const hasSlash = (isAsked && asked.endsWith('/')) || matchedPath(exchange).endsWith('/');
      if (hasSlash) throw noSuchFile();
      refuseChange(exchange);
      return serveFile(exchange, found.path, { ...place, precompressed }, status);
    }
    const index = await indexOf(place, config.index);
    // Without anything to show, a redirect would reveal that the directory exists.
    if (index === null && !config.browse) throw noSuchFile();
    if (!wantsDirectory && isRedirected) return redirectTo(exchange, 1);
    if (index !== null) {
      refuseChange(exchange);
      const beside = { ...place, names: index.names, precompressed };
      return serveFile(exchange, index.file.path, beside, status);
    }
    // The page has relative links, so its path needs the slash.
    if (!wantsDirectory) throw noSuchFile();
    return answerListing(exchange, { ...place, status }, config.listing, scheduler);
  };

  return besidePages(async (exchange, next) => {
    try {
      await serve(exchange);
    } catch (error) {
      const isPassed = config.passThru && error instanceof HttpError && NO_FILE.has(error.status);
      if (!isPassed) throw error;
      await next();
    }
  });
}

/** What is missing, and a path that is not UTF-8, which names no file but may mean something to an app. */
const NO_FILE: ReadonlySet<number> = new Set([400, 404]);

/** The decoded names in the path; null if no file can have it. */
function namesOf(exchange: Exchange): string[] | null {
  try {
    return siteNames(decodeURIComponent(pathOf(exchange)));
  } catch (cause) {
    throw new HttpError(400, 'the path is not UTF-8', { cause });
  }
}

/** A file is only read; the page of an error is for whatever the client wanted to do. */
function refuseChange(exchange: Exchange): void {
  const { method } = exchange;
  if (method === 'GET' || method === 'HEAD' || errorStatus(exchange) !== 0) return;
  exchange.preset.set('Allow', 'GET, HEAD');
  throw new HttpError(405, 'files are only read');
}

function askedPath({ originalTarget }: Exchange): string {
  return originalTarget.split('?', 1)[0] ?? '';
}

/**
 * Relative links of an index need the slash at the end; those of a file must not have it. The redirect is relative,
 * because a prefix may have been removed.
 */
function redirectTo(exchange: Exchange, slashes: 1 | -1): void {
  const path = askedPath(exchange);
  // As in Caddy, the query is the one of now.
  const query = exchange.target.slice(pathOf(exchange).length);
  const last = afterSlash(slashes === 1 ? path : path.slice(0, -1));
  answer(exchange, 308, { location: slashes === 1 ? `./${last}/${query}` : `../${last}${query}` });
}

function afterSlash(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

async function indexOf(
  { root, names, isHidden, hidesFile }: FilePlace,
  index: readonly string[],
): Promise<{ readonly names: readonly string[]; readonly file: SiteFile } | null> {
  for (const name of index) {
    const all = [...names, ...name.split('/')];
    if (isHidden(all)) continue;
    const file = await siteFile(root, all, hidesFile).catch(() => null);
    if (file !== null && !file.stats.isDirectory()) return { names: all, file };
  }
  return null;
}
