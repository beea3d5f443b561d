import { isAscii, isUtf8 } from 'node:buffer';
import { codeOf } from '../kernel/error.ts';
import { asciiTarget, isTargetText, NOT_UTF8 } from './strict-request.ts';

/**
 * A complete request line. No method in the list is the end of another one, so the remainder of a line that
 * arrived in parts never matches.
 */
const REQUEST_LINE = /^((?:GET|HEAD|POST|PUT|DELETE|OPTIONS|QUERY) )(\S+)( HTTP\/1\.[01]\r?\n)/;

/** Bytes of a line that are searched for its method. */
const MAX_LINE_BYTES = 8 * 1024;

/** The reason for the refusal of a target, and what the client should have sent. */
const NOT_ENCODED = 'The request target has characters that must be percent-encoded (as UTF-8)\n';

/**
 * Node's parser refuses bytes beyond ASCII in a target, but curl sends them in queries as they are typed. The
 * parser reports where it has stopped. This function returns the input from the beginning of that request
 * line on, with the query percent-encoded, for another parser. It returns the reason for a refusal if the
 * line was not complete in one read, or if the bytes are in the path or are not UTF-8. It returns null for
 * other errors.
 */
export function encodeRawQuery(error: Error): Buffer | string | null {
  if (codeOf(error) !== 'HPE_INVALID_URL') return null;
  const packet = packetOf(error);
  const lineStart = startOfLine(error, packet);
  const line = packet.toString('latin1', lineStart);
  const [whole, method = '', target = '', version = ''] = REQUEST_LINE.exec(line) ?? [];
  if (whole === undefined) return NOT_ENCODED;
  // Another parser would stop at the same position.
  if (isAscii(Buffer.from(target, 'latin1'))) return null;
  if (!isTargetText(target)) return NOT_ENCODED;
  if (!isUtf8(Buffer.from(target, 'latin1'))) return NOT_UTF8;
  const fixed = Buffer.from(method + asciiTarget(target) + version, 'latin1');
  return Buffer.concat([fixed, packet.subarray(lineStart + whole.length)]);
}

/** The input of a parser that has stopped. Node documents it for `clientError` but does not declare it. */
export function packetOf(error: Error): Buffer {
  return 'rawPacket' in error && Buffer.isBuffer(error.rawPacket) ? error.rawPacket : EMPTY;
}

/** The part of its input that a parser has not parsed. */
export function unparsedOf(error: Error): Buffer {
  return packetOf(error).subarray('bytesParsed' in error ? Number(error.bytesParsed) : 0);
}

const EMPTY = Buffer.alloc(0);

/** The line at which a parser has stopped, as far as it has arrived, at most its first 8 KiB. */
export function lineOf(error: Error): string {
  const packet = packetOf(error);
  const start = startOfLine(error, packet);
  return packet.toString('latin1', start, start + MAX_LINE_BYTES);
}

function startOfLine(error: Error, packet: Buffer): number {
  const offset = 'bytesParsed' in error ? Number(error.bytesParsed) : 0;
  return offset === 0 ? 0 : packet.lastIndexOf('\n', offset - 1) + 1;
}
