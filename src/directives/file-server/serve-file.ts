// Files are not sent by the package `send`: it opens a path a second time after checking it, so that a
// symlink may be inserted in between. Its entity tags are weak, which rules out `If-Match` and `If-Range`
// (RFC 9110 §13.1).

import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { extname } from 'node:path';
import type MimeTypes from 'mime-types';
import type { ByteRange } from '../../http/conditions.ts';
import type { Exchange } from '../../http/exchange.ts';
import {
  negotiatedEncoding,
  type SelectedResponse,
  selectResponse,
} from '../../http/representation.ts';
import { messageOf } from '../../kernel/error.ts';
import { errorStatus } from '../../http/request-variables.ts';
import { noSuchFile, siteFile, unreadable } from '../../site/site-files.ts';
import type { Precompressed } from './data.ts';
import type { FilePlace } from './hidden-names.ts';
import type { Writable } from 'node:stream';
import { pourInto } from '../../http/body-end.ts';
import { givesBack } from '../../http/body-memory.ts';

/** A FIFO must not block the opening. All links have already been resolved. */
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

const ENDINGS: Readonly<Record<Precompressed, string>> = { br: '.br', zstd: '.zst', gzip: '.gz' };

/** The encodings whose files may be next to the plain one. */
interface Representations extends FilePlace {
  readonly precompressed: readonly Precompressed[];
}

/** Responds with a file, or with the encoded one next to it that the client prefers. */
export async function serveFile(
  exchange: Exchange,
  path: string,
  representations: Representations,
  status: number | null,
): Promise<void> {
  const encoded = await encodedFile(exchange, representations);
  const file = await open(encoded?.path ?? path, OPEN_FLAGS).catch((cause: unknown) => {
    throw unreadable(cause);
  });
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw noSuchFile();
    const { size, mtimeMs } = stats;
    const suffix = encoded === null ? '' : `-${encoded.encoding}`;
    const given = exchange.preset;
    const ownTag = `"${Math.trunc(mtimeMs * 1000).toString(36)}-${size.toString(36)}${suffix}"`;
    const modifiedMs = isTimeOfNoChange(mtimeMs) ? null : mtimeMs;
    const etag = given.get('etag') ?? (modifiedMs === null ? null : ownTag);
    const representation = {
      size,
      etag,
      modifiedMs,
      fields: {
        ...typeField(
          given.get('content-type') ?? (await mediaType(representations.names.at(-1) ?? path)),
        ),
        ...(encoded === null ? {} : { 'content-encoding': encoded.encoding }),
        ...(representations.precompressed.length === 0 ? {} : { vary: 'Accept-Encoding' }),
      },
      takesRanges: true,
    };
    // As an error page, the file has the error's status, and conditions do not apply.
    const answered = status ?? (errorStatus(exchange) || null);
    const { head, content } = selectResponse(exchange, representation, answered);
    await send(exchange, file, head, content);
  } finally {
    await file.close();
  }
}

/**
 * Whether every file has this time, in reproducible archives and the Nix store: as in Caddy, the first two seconds of 1970.
 * With it, a newer file of the same size would seem to be unchanged.
 */
function isTimeOfNoChange(ms: number): boolean {
  return ms >= 0 && ms < 2000;
}

/** The preferred one first; if it does not exist, the next one is tried. */
async function encodedFile(
  exchange: Exchange,
  { root, names, isHidden, hidesFile, precompressed }: Representations,
): Promise<{ readonly path: string; readonly encoding: Precompressed } | null> {
  const accepted = exchange.headers.combined('accept-encoding') ?? '';
  for (const encoding of precompressed) {
    if (negotiatedEncoding(accepted, [encoding]) === null) continue;
    const beside = [...names.slice(0, -1), `${names.at(-1) ?? ''}${ENDINGS[encoding]}`];
    if (isHidden(beside)) continue;
    const found = await siteFile(root, beside, hidesFile).catch(() => null);
    if (found?.stats.isFile() === true) return { path: found.path, encoding };
  }
  return null;
}

/** Loaded with the first file: a gateway that serves no files does not need 2,500 types in memory. */
let mediaTypes: Promise<typeof MimeTypes> | undefined;

function typeField(type: string | null): { readonly 'content-type'?: string } {
  return type === null ? {} : { 'content-type': type };
}

/** null where the ending of a name says nothing: what clients show then is what they find in it. */
async function mediaType(path: string): Promise<string | null> {
  mediaTypes ??= import('mime-types').then((loaded) => loaded.default);
  const known = (await mediaTypes).lookup(extname(path).toLowerCase());
  if (known === false || extname(path) === '') return null;
  return known.startsWith('text/') ? `${known}; charset=utf-8` : known;
}

async function send(
  exchange: Exchange,
  file: FileHandle,
  head: SelectedResponse['head'],
  content: ByteRange | null,
): Promise<void> {
  const isWhole = exchange.method === 'HEAD' || content === null;
  const body = exchange.begin({ ...head, source: 'upstream', isWhole });
  if (isWhole) {
    body.end();
    return;
  }
  try {
    await pourFile(file, content, body);
  } catch (error) {
    // A client that has left needs no response; a file that has shrunk must not look complete.
    exchange.log.debug('A file was not sent completely', { error: messageOf(error) });
    exchange.abort(body);
  }
}

/**
 * Most bytes of one read of a file, which stay in memory while a client reads slowly. Each read uses a
 * thread: with 64 KiB, a download costs about a third more.
 */
export const FILE_READ_BYTES = 256 * 1024;
/** Bytes of one read while very many files are sent. */
export const LEAST_READ_BYTES = 16 * 1024;
/**
 * Bytes of the reads of all files in transit, beyond which each read becomes shorter. So clients that take nothing of many
 * files occupy little memory.
 */
const ALL_READ_BYTES = 16 * 1024 * 1024;

const NOTHING = Buffer.alloc(0);

/** Files that are being sent by this process. */
let filesInTransit = 0;

/** Bytes of the next read of a file: half as many whenever the number of files in transit doubles. */
function readBytes(): number {
  let bytes = FILE_READ_BYTES;
  while (bytes > LEAST_READ_BYTES && bytes * filesInTransit > ALL_READ_BYTES) bytes /= 2;
  return bytes;
}

/**
 * Writes a part of a file to a body, and ends the body. The same buffer is filled again and again if the body
 * does not keep it.
 *
 * @throws Error if the file became shorter while it was read; the errors of `pourInto`
 */
async function pourFile(file: FileHandle, part: ByteRange, body: Writable): Promise<void> {
  const isGivenBack = givesBack(body);
  filesInTransit += 1;
  try {
    await pourInto(contentOf(file, part, isGivenBack), body, isGivenBack);
  } finally {
    filesInTransit -= 1;
  }
}

async function* contentOf(
  file: FileHandle,
  { start, end }: ByteRange,
  isGivenBack: boolean,
): AsyncGenerator<Buffer> {
  let buffer = NOTHING;
  for (let at = start; at <= end; ) {
    const most = readBytes();
    const bytes = Math.min(most, end + 1 - at);
    // One that is a little too long is filled again, so that few are allocated when the number of files changes.
    const isUsable = isGivenBack && buffer.length >= bytes && buffer.length <= 2 * most;
    if (!isUsable) buffer = Buffer.allocUnsafeSlow(bytes);
    const { bytesRead } = await file.read(buffer, 0, bytes, at);
    if (bytesRead === 0) throw new Error('the file became shorter while it was read');
    yield bytesRead < buffer.length ? buffer.subarray(0, bytesRead) : buffer;
    at += bytesRead;
  }
}
