import zlib from 'node:zlib';
import type { BodyWrapper, ResponseHead } from '../http/exchange.ts';
import { copyBody } from './copied-body.ts';

/** Bytes of a body that may become the data of an update, encoded and decoded. */
export const MAX_DATA_BYTES = 64 * 1024;

/**
 * Reads along a body that goes to the client.
 *
 * @param done called once, however the body ends: with its text, or null for one that is too large,
 *   that was broken off, or that is no text
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

/** Of at most 64 KiB to at most 64 KiB: less than a millisecond. */
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
