import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { extname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { answer } from '../../http/answer.ts';
import { HttpError } from '../../http/errors.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import { HeaderList } from '../../http/header-list.ts';
import { messageOf } from '../../kernel/error.ts';
import { errorStatus } from '../../site/error-status.ts';
import { pathOf } from '../../site/placeholders.ts';
import { noSuchFile, realRoot, siteFile, siteNames, unreadable } from '../../site/site-files.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { FileServerConfig } from './data.ts';
import { evaluateConditions, type Representation, requestedRange } from './handler/conditions.ts';
import { mediaType } from './handler/media-types.ts';

/** A FIFO must not hold the opening up; what is behind the last link has been resolved already. */
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * `file_server [<matcher>] [{ root <directory>; index <file…>; hide <file…> }]`: files below the
 * root, with ranges and conditional requests. What begins with a dot (but for `.well-known`), what
 * is hidden and what a symlink leads to outside of the root does not exist.
 */
export function fileServer(
  config: FileServerConfig,
  { expand, besidePages }: HandlerContext,
): Handler {
  const isHidden = hiddenBy(config.hide);
  return besidePages(async (exchange) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD') {
      answer(exchange, 405, { allow: 'GET, HEAD' });
      return;
    }
    const root = await realRoot(
      config.root === null
        ? (exchange.variables.get('root') ?? '.')
        : expand(config.root, exchange),
    );
    const names = namesOf(exchange);
    if (names === null || isHidden(names)) throw noSuchFile();
    const { path, stats } = await siteFile(root, names);
    const wantsDirectory = pathOf(exchange).endsWith('/');
    if (!stats.isDirectory()) {
      if (wantsDirectory) throw noSuchFile();
      return serve(exchange, path);
    }
    if (!wantsDirectory && redirected(exchange, names.at(-1))) return;
    return serveIndex(exchange, root, names, config.index);
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

/** Patterns without a slash hide every file or directory of that name, others a path below the root. */
function hiddenBy(patterns: readonly string[]): (names: readonly string[]) => boolean {
  const byName = patterns.filter((pattern) => !pattern.includes('/')).map(glob);
  const byPath = patterns
    .filter((pattern) => pattern.includes('/'))
    .map((pattern) => glob(pattern.replace(/^\.?\//, '').replace(/\/$/, '')));
  return (names) =>
    names.some((name, index) => {
      const path = names.slice(0, index + 1).join('/');
      return byName.some((one) => one.test(name)) || byPath.some((one) => one.test(path));
    });
}

function glob(pattern: string): RegExp {
  const escaped = pattern.replaceAll(/[.+^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`^${escaped.replaceAll('*', '[^/]*').replaceAll('?', '[^/]')}$`, 'su');
}

/**
 * Relative links of an index need the slash. The answer is relative too, because a prefix may have
 * been stripped; where the name was rewritten it would lead astray, so there is none.
 */
function redirected(exchange: Exchange, name: string | undefined): boolean {
  const [path = '', query] = exchange.originalTarget.split(/\?(.*)/s, 2);
  const last = path.slice(path.lastIndexOf('/') + 1);
  if (name === undefined || last === '' || last !== encodeURIComponent(name)) return false;
  answer(exchange, 308, { location: `./${last}/${query === undefined ? '' : `?${query}`}` });
  return true;
}

async function serveIndex(
  exchange: Exchange,
  root: string,
  names: readonly string[],
  index: readonly string[],
): Promise<void> {
  for (const name of index) {
    const found = await siteFile(root, [...names, name]).catch(() => null);
    if (found === null || found.stats.isDirectory()) continue;
    return serve(exchange, found.path);
  }
  throw noSuchFile();
}

async function serve(exchange: Exchange, path: string): Promise<void> {
  const file = await open(path, OPEN_FLAGS).catch((cause: unknown) => {
    throw unreadable(cause);
  });
  try {
    const status = await file.stat();
    if (!status.isFile()) throw noSuchFile();
    const { size, mtimeMs } = status;
    const etag = `"${Math.trunc(mtimeMs * 1000).toString(36)}-${size.toString(36)}"`;
    await send(exchange, file, path, { size, etag, modifiedMs: mtimeMs });
  } finally {
    await file.close();
  }
}

async function send(
  exchange: Exchange,
  file: FileHandle,
  path: string,
  representation: Representation,
): Promise<void> {
  const { size, etag, modifiedMs } = representation;
  const validators = { etag, 'last-modified': new Date(modifiedMs).toUTCString() };
  // As the page of an error the file has the error's status, and nothing of it is conditional.
  const failed = errorStatus(exchange);
  const refused = failed === 0 ? evaluateConditions(exchange, representation) : null;
  if (refused !== null) {
    answer(exchange, refused, validators);
    return;
  }
  const range = failed === 0 ? requestedRange(exchange, representation) : null;
  if (range === 'unsatisfiable') {
    answer(exchange, 416, { 'content-range': `bytes */${size}` });
    return;
  }
  const { start, end } = range ?? { start: 0, end: size - 1 };
  const length = end - start + 1;
  const headers = HeaderList.of({
    'content-type': mediaType(extname(path)),
    'content-length': String(length),
    'accept-ranges': 'bytes',
    ...validators,
    ...(range === null ? {} : { 'content-range': `bytes ${start}-${end}/${size}` }),
  });
  const status = failed || (range === null ? 200 : 206);
  const body = exchange.begin({ status, headers, source: 'upstream' });
  if (exchange.method === 'HEAD' || length === 0) {
    body.end();
    return;
  }
  try {
    await pipeline(contentOf(file, start, length), body);
  } catch (error) {
    // A client that left needs no answer any more; a file that shrank must not look complete.
    exchange.log.debug('A file was not sent to its end', { error: messageOf(error) });
    exchange.abort();
  }
}

async function* contentOf(file: FileHandle, start: number, length: number): AsyncGenerator<Buffer> {
  let left = length;
  const stream = file.createReadStream({ start, end: start + length - 1, autoClose: false });
  for await (const chunk of stream) {
    // A stream without an encoding gives buffers.
    const bytes = chunk as Buffer;
    left -= bytes.length;
    yield bytes;
  }
  if (left > 0) throw new Error('the file became shorter while it was read');
}
