import { CONNECTION_FIELDS } from './field-values.ts';
import { HeaderList } from './header-list.ts';

/** RFC 9113 §8.2.2: connection-specific fields make an HTTP/2 message malformed. */
const FORBIDDEN = new Set([...CONNECTION_FIELDS, 'http2-settings']);

/**
 * Bytes of a head that is sent over HTTP/2. Larger than every head that is received (80 KiB), with room for what the
 * gateway adds; many clients do not read more than nine frames of 16 KiB. Node's own limit is 64 KiB. Beyond its limit,
 * Node ends the whole connection, and some versions damage the memory of the process.
 */
export const MAX_SENT_HEAD_BYTES = 128 * 1024;

/**
 * Node refuses streams while it counts too much memory for a session, 10 MB by default. It counts what waits for a slow
 * peer, which is bounded elsewhere (body-flow.ts), and goes on to count what a cancelled stream left waiting. So clients
 * that cancel downloads, or uploads to an HTTP/2 upstream, would make their session useless.
 */
export const NO_MEMORY_LIMIT_MB = 1_000_000;
/** That limit on a server that hubgate has not created. */
export const NODE_SENT_HEAD_BYTES = 64 * 1024;
/** nghttp2 adds these bytes to each field, and to the whole. */
const BYTES_OF_FIELD = 12;

/** The bytes of a head without compression, as nghttp2 counts them at most. */
export function sentHeadBytes(headers: HeaderList): number {
  // With room for the status or for the pseudo-header fields except the target.
  let bytes = 1024;
  headers.forEach((key, value) => {
    bytes += key.length + value.length + BYTES_OF_FIELD;
  });
  return bytes;
}

export interface Http2Head {
  readonly method: string;
  readonly authority: string | null;
  /** Without pseudo-header and connection-specific fields; cookie crumbs are joined (RFC 9113 §8.2.3). */
  readonly headers: HeaderList;
}

/** Reads the fields of a request, including pseudo-header fields. */
export function readHttp2Head(raw: readonly string[]): Http2Head {
  const headers = new HeaderList();
  let method = 'GET';
  let authority: string | null = null;
  let cookie = '';
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? '';
    const value = raw[i + 1] ?? '';
    if (name === ':method') method = value;
    else if (name === ':authority') authority = value;
    else if (name === 'cookie') cookie += cookie === '' ? value : `; ${value}`;
    else if (!name.startsWith(':') && !FORBIDDEN.has(name)) headers.append(name, value);
  }
  if (cookie !== '') headers.append('cookie', cookie);
  return { method, authority, headers };
}

/**
 * The fields of a response or its trailers in the format of Node's HTTP/2. Node throws if certain fields
 * occur twice, so lists are joined.
 */
export function http2Fields(headers: HeaderList): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.create(null);
  headers.forEach((key, value) => {
    if (isForbidden(key, value)) return;
    const present = record[key];
    if (present === undefined) record[key] = value;
    else if (typeof present !== 'string') present.push(value);
    else if (key === 'set-cookie') record[key] = [present, value];
    else record[key] = joined(key, present, value);
  });
  return record;
}

/** The same with a status, as alternating names and values: Node makes no copy of such a list. */
export function http2FieldList(status: number, headers: HeaderList): string[] {
  const list = [':status', String(status)];
  headers.forEach((key, value) => {
    if (isForbidden(key, value)) return;
    const at = key === 'set-cookie' ? -1 : placeOf(key, list);
    if (at === -1) list.push(key, value);
    else list[at + 1] = joined(key, list[at + 1] ?? '', value);
  });
  return list;
}

function isForbidden(key: string, value: string): boolean {
  return FORBIDDEN.has(key) || key.startsWith(':') || (key === 'te' && value !== 'trailers');
}

function joined(key: string, present: string, value: string): string {
  return `${present}${key === 'cookie' ? '; ' : ', '}${value}`;
}

/** The place of a name in a list; -1 if it is not there. */
function placeOf(key: string, list: readonly string[]): number {
  for (let at = 0; at < list.length; at += 2) if (list[at] === key) return at;
  return -1;
}

/** Whether a version of Node sends a response whose fields are a list; others take only a record. */
export function takesFieldLists(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major === 22) return minor >= 23;
  return major === 24 ? minor >= 7 : major > 24;
}
