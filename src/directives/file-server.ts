import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../hubfile/scope.ts';
import { choiceOf, flag, list, name, oneOf, statusCode } from '../hubfile/values.ts';
import {
  defaultFileServer,
  fileServer as data,
  type FileServerConfig,
  PRECOMPRESSED,
} from './file-server/data.ts';
import { answer } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { decodePath, matchedPath, pathOf } from '../http/request-path.ts';
import {
  type HidesFile,
  noSuchFile,
  realRoot,
  siteFile,
  type SiteFile,
  siteNames,
} from '../site/site-files.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { hiddenBy, type IsHidden } from './file-server/hidden-names.ts';
import { answerListing } from './file-server/listing.ts';
import { type Representations, serveFile } from './file-server/serve-file.ts';
import type { HandlerDirective } from './directive.ts';

const USAGE = `
file_server [<matcher>] [browse] {
    root <directory>
    index <file…>
    hide <file…>
    browse
    precompressed [br] [zstd] [gzip]
    status <status>
    pass_thru
}
`;

const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'answers with files below the root',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const browse = cursor.left > 0 && oneOf(cursor, ['browse']) === 'browse';
    const settings = cursor.options({ ...defaultFileServer, browse }, OPTIONS, {
      unsupported: UNSUPPORTED,
    });
    cursor.end();
    return [step(cursor, matcher, settings)];
  },
};

const OPTIONS: OptionTable<FileServerConfig> = {
  root: (option) => ({ root: name(option, 'a directory') }),
  index: (option) => ({ index: list(option, 'a file name') }),
  hide: (option) => ({ hide: list(option, 'a file name or path') }),
  browse: (option) => ({ browse: listing(option) }),
  precompressed: (option) => ({ precompressed: encodings(option) }),
  status: (option) => ({ status: statusCode(option, option.argument('a status')) }),
  pass_thru: () => ({ passThru: flag() }),
};

const UNSUPPORTED: Readonly<Record<string, string>> = {
  disable_canonical_uris: 'rewrite to the directory with its slash instead',
  etag_file_extensions: 'tags are made of size and time of change',
  fs: 'files are those of the operating system',
};

function listing(option: Cursor): true {
  const template = option.peek();
  if (template !== undefined) {
    const message = 'templates of listings are not supported by hubgate';
    const hint = 'ask for the listing with Accept: application/json, and let the app show it';
    option.fail(template.span, 'unsupported-option', message, hint);
  }
  return flag();
}

/** Without a word all that there are. */
function encodings(option: Cursor): FileServerConfig['precompressed'] {
  const words = option.rest();
  return words.length === 0
    ? PRECOMPRESSED
    : words.map((word) => choiceOf(option, word, PRECOMPRESSED));
}

/**
 * Files below the root, with ranges and conditional requests. What begins with a dot (but for
 * `.well-known`), what is hidden, the configuration and what a symlink leads to outside of the root
 * does not exist.
 */
function compile(
  config: FileServerConfig,
  { expand, hidesFile, besidePages, scheduler }: HandlerContext,
): Handler {
  const hidden = hiddenBy(config.hide, expand);
  const { status, precompressed } = config;

  const serve = async (exchange: Exchange): Promise<void> => {
    // It is as fast as a cache, and knows when a file changes.
    exchange.dependsOn?.('file');
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
    return answerListing(exchange, { root, names, isHidden, hidesFile, status }, scheduler);
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
    throw new HttpError(400, 'the path is not UTF-8', { cause });
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

export const fileServer: HandlerDirective<FileServerConfig> = { data, syntax, compile };
