import { type ByteRange, evaluateConditions, requestedRange, tagsIn } from './conditions.ts';
import type { BodyWrapper, Exchange, ResponseHead } from './exchange.ts';
import { HeaderList } from './header-list.ts';

/*
 * The one rule for the head of a representation: the responses to GET and to HEAD, a part of it (206) and a
 * confirmation that it is unchanged (304) have the fields of its 200 (RFC 9110 §8.6, §15.3.7, §15.4.5). Code
 * that has a representation calls `selectResponse`; code that converts one calls `recode`.
 *
 * A 304 of the gateway itself passes all transforms with the fields of its 200, and loses the fields of the
 * content when it is sent. For a 304 of the app, the 200 is unknown, so the validator that the client sent
 * decides.
 */

/** The content of a 200 response to a GET. */
export interface Representation {
  /** Bytes; null if the size is not known. */
  readonly size: number | null;
  /** Strong, with its quotes; null: it has none. */
  readonly etag: string | null;
  /** null: unknown. */
  readonly modifiedMs: number | null;
  /** All other fields of its 200. */
  readonly fields: Readonly<Record<string, string>>;
  readonly takesRanges: boolean;
}

export interface SelectedResponse {
  readonly head: Pick<ResponseHead, 'status' | 'headers' | 'isUnchanged'>;
  /** The bytes for the response to a GET; null: none. */
  readonly content: ByteRange | null;
}

/**
 * Fields that describe the content. A response without the content must not have them: one to a conditional
 * request (304, 412) or to an unsatisfiable range (416).
 */
const FIELDS_OF_CONTENT = [
  'content-type',
  'content-length',
  'content-encoding',
  'content-language',
  'content-range',
  'accept-ranges',
];

/**
 * Fields that a 416 lacks, as in Go's http.ServeContent: a cache must not keep the error for as long as the content,
 * nor under the validators of the content.
 */
const NOT_IN_ERRORS = ['cache-control', 'etag', 'last-modified'];

/** Fields that become wrong when the bytes are changed (RFC 9110 §7.7). */
const FIELDS_OF_BYTES = [
  'content-length',
  'accept-ranges',
  'content-md5',
  'content-digest',
  'repr-digest',
  'digest',
];

/**
 * The head of the response to a GET or HEAD, according to the request's conditions and range, and the bytes
 * that follow.
 *
 * @param status of a response that does not depend on conditions, such as an error page; null: none
 */
export function selectResponse(
  exchange: Pick<Exchange, 'method' | 'headers' | 'preset'>,
  representation: Representation,
  status: number | null = null,
): SelectedResponse {
  const { size, etag, modifiedMs, fields, takesRanges } = representation;
  const headers = HeaderList.of({
    ...fields,
    ...(etag === null ? {} : { etag }),
    ...(size === null ? {} : { 'content-length': String(size) }),
    ...(takesRanges ? { 'accept-ranges': 'bytes' } : {}),
    ...(modifiedMs === null ? {} : { 'last-modified': new Date(modifiedMs).toUTCString() }),
  });
  const all = size === null || size === 0 ? null : { start: 0, end: size - 1 };
  if (status !== null) return { head: { status, headers }, content: all };
  const refused = evaluateConditions(exchange, representation);
  if (refused === 304) return { head: { status: 304, headers, isUnchanged: true }, content: null };
  if (refused === 412) return withoutContent(412, headers);
  const range =
    takesRanges && size !== null ? requestedRange(exchange, representation, size) : null;
  if (range === 'unsatisfiable') {
    return unsatisfiable(exchange, headers, size);
  }
  if (range === null) return { head: { status: 200, headers }, content: all };
  headers.set('content-range', `bytes ${range.start}-${range.end}/${size}`);
  headers.set('content-length', String(range.end - range.start + 1));
  return { head: { status: 206, headers }, content: range };
}

/**
 * The response (416) to a range that lies outside of the content.
 *
 * @param headers of the 200, which it changes
 */
export function unsatisfiable(
  { preset }: Pick<Exchange, 'preset'>,
  headers: HeaderList,
  size: number | null,
): SelectedResponse {
  for (const name of NOT_IN_ERRORS) {
    headers.delete(name);
    preset.delete(name);
  }
  const answer = withoutContent(416, headers);
  headers.set('content-range', `bytes */${size}`);
  return answer;
}

function withoutContent(status: number, headers: HeaderList): SelectedResponse {
  dropFieldsOfContent(headers);
  headers.set('content-length', '0');
  return { head: { status, headers }, content: null };
}

/** Removes the fields that only describe the content, which does not follow. */
export function dropFieldsOfContent(headers: HeaderList): void {
  for (const name of FIELDS_OF_CONTENT) headers.delete(name);
}

/** How a handler converts a representation that passes through it. */
export interface Recoding {
  /** Request fields that decide whether and how it is converted. */
  readonly vary: readonly string[];
  /** Whether a 200 with these fields could be converted. */
  concerns(headers: HeaderList): boolean;
  /** For this client: the wrapper of the body; null if the client gets it unchanged. */
  begin(headers: HeaderList): BodyWrapper | null;
  /** The validator of the converted representation. */
  retag(etag: string): string;
}

/**
 * Applies a recoding to a head, whether it has the whole representation or a part. A part itself stays
 * unchanged: it contains bytes of the original, with the strong validator by which parts can be combined.
 *
 * @param isHeld whether the client has sent a validator of the recoding, if that is already known
 */
export function recode(
  { headers: request }: Pick<Exchange, 'headers'>,
  { status, headers, isUnchanged }: ResponseHead,
  recoding: Recoding,
  isHeld: boolean | null = null,
): BodyWrapper | undefined {
  if (status < 200 || status === 204 || status === 205) return undefined;
  // The 200 behind a 304 of an app is unknown.
  const isUnknown = status === 304 && isUnchanged !== true;
  if (isUnknown ? hasOtherType(headers, recoding) : !recoding.concerns(whole(headers))) {
    return undefined;
  }
  addVary(headers, recoding.vary);
  if (status === 206 || headers.has('content-range')) return undefined;
  const etag = headers.get('etag');
  const retagged = etag === undefined ? undefined : recoding.retag(etag);
  if (isUnknown && !(isHeld ?? holds(request, etag, retagged))) return undefined;
  const wrapper = recoding.begin(headers);
  if (wrapper === null) return undefined;
  for (const name of FIELDS_OF_BYTES) headers.delete(name);
  if (retagged !== undefined) headers.set('ETag', retagged);
  if (isUnknown) headers.delete('content-encoding');
  return status === 304 ? undefined : wrapper;
}

/** The fields of the whole representation; `headers` may be those of a part. */
function whole(headers: HeaderList): HeaderList {
  const size = /\/(\d+)\s*$/.exec(headers.get('content-range') ?? '')?.[1];
  if (!headers.has('content-range')) return headers;
  const all = headers.clone();
  all.delete('content-range');
  if (size === undefined) all.delete('content-length');
  else all.set('content-length', size);
  return all;
}

function hasOtherType(headers: HeaderList, recoding: Recoding): boolean {
  return headers.has('content-type') && !recoding.concerns(headers);
}

/** Whether the client has sent a validator that only the converted representation has. */
function holds(
  request: HeaderList,
  etag: string | undefined,
  retagged: string | undefined,
): boolean {
  const asked = request.combined('if-none-match');
  if (asked === undefined || retagged === undefined || retagged === etag) return false;
  return tagsIn(asked).includes(retagged);
}

/** Adds request fields to `Vary`: with other values of these fields, the response would differ. */
export function addVary(headers: HeaderList, fields: readonly string[]): void {
  const before = headers.combined('vary') ?? '';
  if (before === '') {
    if (fields.length > 0) headers.set('Vary', fields.join(', '));
    return;
  }
  const present = before.split(',').map((name) => name.trim().toLowerCase());
  if (present.includes('*')) return;
  const missing = fields.filter((name) => !present.includes(name.toLowerCase()));
  if (missing.length === 0) return;
  // One field, because some caches read only one.
  headers.set('Vary', [before, ...missing].join(', '));
}

/** Codings in a list that are examined, and parameters of each; a client chooses their number. */
const MAX_CODINGS = 64;
const MAX_PARAMETERS = 8;

/** The first offered encoding that the client accepts (RFC 9110 §12.5.3). */
export function negotiatedEncoding<Encoding extends string>(
  accepted: string,
  offered: readonly Encoding[],
): Encoding | null {
  const weights = new Map<string, number>();
  for (const item of accepted.toLowerCase().split(',', MAX_CODINGS)) {
    const [name = '', ...parameters] = item.split(';', MAX_PARAMETERS);
    const weight = parameters.map((one) => /^\s*q=([\d.]+)\s*$/.exec(one)?.[1]).find(Boolean);
    weights.set(name.trim(), Number(weight ?? 1));
  }
  return offered.find((one) => (weights.get(one) ?? weights.get('*') ?? 0) > 0) ?? null;
}
