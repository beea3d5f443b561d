// GET, HEAD, 206 and 304 share one rule for the head of a representation. A 304 of our own passes
// all transforms with the fields of its 200, and loses the content's fields when it is sent. For a
// 304 of the app the 200 is unknown, so the validator that the client sent decides.

import { type ByteRange, evaluateConditions, listsTag, requestedRange } from './conditions.ts';
import type { BodyWrapper, Exchange, ResponseHead } from './exchange.ts';
import { HeaderList } from './header-list.ts';

/*
 * The one rule for the head of a representation: the answers to GET and to HEAD, a part of it (206) and
 * the word that it is still the same (304) say of it what its 200 says (RFC 9110 §8.6, §15.3.7, §15.4.5).
 * Whoever has a representation asks `selectResponse`; whoever makes another one of it, `recode`.
 */

/** What a 200 to a GET would send. */
export interface Representation {
  /** Bytes; null where nobody has counted them yet. */
  readonly size: number | null;
  /** Strong, with its quotes. */
  readonly etag: string;
  /** null: unknown. */
  readonly modifiedMs: number | null;
  /** All other fields of its 200. */
  readonly fields: Readonly<Record<string, string>>;
  readonly takesRanges: boolean;
}

export interface SelectedResponse {
  readonly head: Pick<ResponseHead, 'status' | 'headers' | 'isUnchanged'>;
  /** The bytes that answer the request, of a GET; null: none. */
  readonly content: ByteRange | null;
}

/** Of the response to a conditional request or one for a part, which has nothing to say of the content. */
const FIELDS_OF_CONTENT = [
  'content-type',
  'content-length',
  'content-encoding',
  'content-language',
  'content-range',
  'accept-ranges',
];

/** Fields that no longer hold when somebody changes the bytes (RFC 9110 §7.7). */
const FIELDS_OF_BYTES = [
  'content-length',
  'accept-ranges',
  'content-md5',
  'content-digest',
  'repr-digest',
  'digest',
];

/**
 * The head that answers a GET or HEAD by the request's conditions and range, and the bytes that follow.
 *
 * @param status of an answer whatever the request asks for, such as the page of an error; null: none
 */
export function selectResponse(
  exchange: Pick<Exchange, 'method' | 'headers'>,
  representation: Representation,
  status: number | null = null,
): SelectedResponse {
  const { size, etag, modifiedMs, fields, takesRanges } = representation;
  const headers = HeaderList.of({
    ...fields,
    etag,
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
    const answer = withoutContent(416, headers);
    answer.head.headers.set('content-range', `bytes */${size}`);
    return answer;
  }
  if (range === null) return { head: { status: 200, headers }, content: all };
  headers.set('content-range', `bytes ${range.start}-${range.end}/${size}`);
  headers.set('content-length', String(range.end - range.start + 1));
  return { head: { status: 206, headers }, content: range };
}

function withoutContent(status: number, headers: HeaderList): SelectedResponse {
  dropFieldsOfContent(headers);
  headers.set('content-length', '0');
  return { head: { status, headers }, content: null };
}

/** Takes off a head what only speaks of the content that does not follow. */
export function dropFieldsOfContent(headers: HeaderList): void {
  for (const name of FIELDS_OF_CONTENT) headers.delete(name);
}

/** What a handler makes of a representation that passes it. */
export interface Recoding {
  /** Request fields on which it depends whether, and how, it is made another. */
  readonly vary: readonly string[];
  /** Whether the 200 with these fields may become another one. */
  concerns(headers: HeaderList): boolean;
  /** For this client: the wrapper of the body; null where it gets it as it is. */
  begin(headers: HeaderList): BodyWrapper | null;
  /** The validator of what it becomes. */
  retag(etag: string): string;
}

/**
 * Applies a recoding to a head, whatever part of the representation it brings. A part itself stays what it
 * is: bytes of the representation before, with the strong validator by which they can be put together.
 *
 * @param isHeld whether the client has asked by a validator of the recoding, where that is known already
 */
export function recode(
  { headers: request }: Pick<Exchange, 'headers'>,
  { status, headers, isUnchanged }: ResponseHead,
  recoding: Recoding,
  isHeld: boolean | null = null,
): BodyWrapper | undefined {
  if (status < 200 || status === 204 || status === 205) return undefined;
  // Of a 304 that an app sent nobody knows the 200 it stands for.
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

/** The fields of the whole, of which these may be those of a part. */
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

/** Whether the client asks by the validator that only what was made another has. */
function holds(
  request: HeaderList,
  etag: string | undefined,
  retagged: string | undefined,
): boolean {
  const asked = request.combined('if-none-match');
  if (asked === undefined || retagged === undefined || retagged === etag) return false;
  return asked.trim() !== '*' && listsTag(asked, retagged, 'strong');
}

/** Says that the response would be another with other values of these request fields. */
export function addVary(headers: HeaderList, fields: readonly string[]): void {
  const before = headers.combined('vary') ?? '';
  const present = before.split(',').map((name) => name.trim().toLowerCase());
  if (present.includes('*')) return;
  const missing = fields.filter((name) => !present.includes(name.toLowerCase()));
  if (missing.length === 0) return;
  // In one field: there are caches that look at one alone.
  headers.set('Vary', [...(before === '' ? [] : [before]), ...missing].join(', '));
}

/** Codings of a list that are looked at, and parameters of each; a client chooses their number. */
const MAX_CODINGS = 64;
const MAX_PARAMETERS = 8;

/** The first offered encoding that the client takes (RFC 9110 §12.5.3). */
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
