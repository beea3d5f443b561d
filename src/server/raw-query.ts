import { isAscii, isUtf8 } from 'node:buffer';
import { codeOf } from '../kernel/error.ts';
import { asciiTarget, isTargetText, NOT_UTF8 } from './strict-request.ts';

/**
 * A whole request line, of a method that is not the end of another one: so a line of which a part
 * came before is never taken for one.
 */
const REQUEST_LINE = /^((?:GET|HEAD|POST|PUT|DELETE|OPTIONS|QUERY) )(\S+)( HTTP\/1\.[01]\r?\n)/;

/** Bytes of a line that are looked at for its method. */
const MAX_LINE_BYTES = 8 * 1024;

/** Why a target was refused, and what should have been sent. */
const NOT_ENCODED = 'The request target has characters that must be percent-encoded (as UTF-8)\n';

/**
 * Node's parser takes no bytes beyond ASCII in a target, which curl sends in queries as they are typed.
 * It says where it stopped: what came from the beginning of that request line on, with the query as it
 * should have been sent, is what another parser takes. Where the line is not whole in what was read at
 * once, or the bytes are not UTF-8 or in the path, the reason for a refusal instead. null for other errors.
 */
export function mendedQuery(error: Error): Buffer | string | null {
  if (codeOf(error) !== 'HPE_INVALID_URL') return null;
  const packet = packetOf(error);
  const lineStart = startOfLine(error, packet);
  const line = packet.toString('latin1', lineStart);
  const [whole, method = '', target = '', version = ''] = REQUEST_LINE.exec(line) ?? [];
  if (whole === undefined) return NOT_ENCODED;
  // Another parser would stop at the same place.
  if (isAscii(Buffer.from(target, 'latin1'))) return null;
  if (!isTargetText(target)) return NOT_ENCODED;
  if (!isUtf8(Buffer.from(target, 'latin1'))) return NOT_UTF8;
  const fixed = Buffer.from(method + asciiTarget(target) + version, 'latin1');
  return Buffer.concat([fixed, packet.subarray(lineStart + whole.length)]);
}

/** What a parser was given when it stopped, which Node documents for `clientError` but does not type. */
export function packetOf(error: Error): Buffer {
  return 'rawPacket' in error && Buffer.isBuffer(error.rawPacket) ? error.rawPacket : EMPTY;
}

/** What it was given and has not parsed. */
export function unparsedOf(error: Error): Buffer {
  return packetOf(error).subarray('bytesParsed' in error ? Number(error.bytesParsed) : 0);
}

const EMPTY = Buffer.alloc(0);

/** What came of the line at which a parser has stopped, and no more than its first 8 KiB. */
export function lineOf(error: Error): string {
  const packet = packetOf(error);
  const start = startOfLine(error, packet);
  return packet.toString('latin1', start, start + MAX_LINE_BYTES);
}

function startOfLine(error: Error, packet: Buffer): number {
  const offset = 'bytesParsed' in error ? Number(error.bytesParsed) : 0;
  return offset === 0 ? 0 : packet.lastIndexOf('\n', offset - 1) + 1;
}
