import zlib from 'node:zlib';
import type { BodyWrapper, ResponseHead } from '../http/exchange.ts';
import { Writable } from 'node:stream';

/** Bytes of a body that can become the data of an update, both encoded and decoded. */
export const MAX_DATA_BYTES = 64 * 1024;

/**
 * Reads a copy of a body that goes to the client.
 *
 * @param done called once, however the body ends: with its text, or null if it is too large, aborted, or not
 * text
 */
export function readAlong(
  { headers }: ResponseHead,
  done: (text: string | null) => void,
): BodyWrapper {
  const encoding = (headers.combined('content-encoding') ?? 'identity').trim().toLowerCase();
  return copyBody(MAX_DATA_BYTES, (bytes) =>
    done(bytes === null ? null : decoded(bytes, encoding)),
  );
}

function decoded(bytes: Buffer, encoding: string): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(inflate(bytes, encoding));
  } catch {
    return null;
  }
}

/** From at most 64 KiB to at most 64 KiB, which takes less than a millisecond. */
function inflate(bytes: Buffer, encoding: string): Buffer {
  const limit = { maxOutputLength: MAX_DATA_BYTES };
  switch (encoding) {
    case 'identity':
      return bytes;
    case 'gzip':
    case 'x-gzip':
      return zlib.gunzipSync(bytes, limit);
    case 'deflate':
      return zlib.inflateSync(bytes, limit);
    case 'br':
      return zlib.brotliDecompressSync(bytes, limit);
    default:
      throw new TypeError('an encoding that nobody here knows');
  }
}

/**
 * Copies a body that goes to the client.
 *
 * @param maxBytes limit of the copy
 * @param done called once, however the body ends: with its bytes as they were sent, or null if it is too
 * large or aborted
 */
function copyBody(maxBytes: number, done: (bytes: Buffer | null) => void): BodyWrapper {
  return (body) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let complete = false;
    const copying = new Writable({
      write(chunk: Buffer, _encoding, written) {
        size += chunk.length;
        if (size <= maxBytes) chunks.push(chunk);
        else chunks.length = 0;
        body.write(chunk, written);
      },
      final(ended) {
        complete = true;
        body.end();
        ended();
      },
    });
    body.once('close', () => copying.destroy());
    // `close` notifies the writer. Without a listener, the error would end the process.
    copying.on('error', () => {});
    copying.once('close', () => done(complete && size <= maxBytes ? Buffer.concat(chunks) : null));
    return copying;
  };
}
