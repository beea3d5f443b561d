import { isUtf8 } from 'node:buffer';
import { completed, type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { wantBody } from '../http/field-values.ts';
import { HubgateError } from '../kernel/error.ts';
import { hexDigit } from '../kernel/parse.ts';
import { badRequest, RefusedRequest } from './refusal.ts';

export interface FormField {
  /**
   * Bytes that are not UTF-8 are replaced, and a long name is truncated. Such a name is never a known one.
   */
  readonly name: string;
  /** null stands for bytes that are not UTF-8. */
  readonly value: string | null;
}

/** Most pairs of a form. The largest valid form names 1,000 topics. */
export const MAX_FIELDS = 1100;

/** Bytes of a name that are examined. All known names are shorter. */
const MAX_NAME_BYTES = 256;
/** Bytes that are decoded at once, at one step per two bytes. */
const PIECE_BYTES = 8 * 1024;
/** Additional cost of a pair, in steps. */
const PAIR_STEPS = 100;

/** Characters of a query that is decoded as text. A longer one is decoded as bytes, in pieces. */
const MAX_PLAIN_LENGTH = 512;

const AMPERSAND = 0x26;
const EQUALS = 0x3d;
const PERCENT = 0x25;
const PLUS = 0x2b;

/**
 * Decodes `application/x-www-form-urlencoded` as in the WHATWG URL standard §5.1, with one difference: bytes
 * that are not UTF-8 are reported, not replaced, because a topic with replacements would be another topic.
 * Yields when the budget is used up.
 *
 * @returns null if there are more than {@link MAX_FIELDS} pairs, including empty ones
 */
export function* parseForm(
  bytes: Buffer,
  budget: Budget,
): Generator<void, FormField[] | null, void> {
  const fields: FormField[] = [];
  let pairs = 0;
  for (let start = 0; start <= bytes.length; pairs += 1) {
    if (pairs === MAX_FIELDS) return null;
    const ampersand = bytes.indexOf(AMPERSAND, start);
    const end = ampersand === -1 ? bytes.length : ampersand;
    if (end > start) {
      if (budget.isSpent) yield;
      budget.spend(PAIR_STEPS);
      const pair = bytes.subarray(start, end);
      const equals = pair.indexOf(EQUALS);
      const name = decode(
        pair.subarray(0, Math.min(equals === -1 ? pair.length : equals, MAX_NAME_BYTES)),
      );
      const encoded = equals === -1 ? pair.subarray(pair.length) : pair.subarray(equals + 1);
      const isShort = encoded.length <= PIECE_BYTES;
      const value = isShort ? decode(encoded) : yield* decodeInPieces(encoded, budget);
      if (isShort) budget.spend(encoded.length >> 1);
      fields.push({ name: name.toString('utf8'), value: textOf(value) });
    }
    start = end + 1;
  }
  return fields;
}

/**
 * Parses the query of a request target, whose length is bounded, as form fields; null as for {@link
 * parseForm}.
 */
export function parseQuery(target: string): FormField[] | null {
  const question = target.indexOf('?');
  if (question === -1) return [];
  const query = target.slice(question + 1);
  return parsePlain(query) ?? completed(parseForm(Buffer.from(query, 'latin1'), unlimitedBudget()));
}

/** Parses a query as nearly all are: short, of ASCII, and with valid escapes only. Returns null for another one. */
function parsePlain(query: string): FormField[] | null {
  if (query.length > MAX_PLAIN_LENGTH || !ASCII.test(query)) return null;
  const fields: FormField[] = [];
  try {
    for (const pair of query.split('&')) {
      if (pair === '') continue;
      const equals = pair.indexOf('=');
      const name = decodePlain(equals === -1 ? pair : pair.slice(0, equals));
      fields.push({ name, value: equals === -1 ? '' : decodePlain(pair.slice(equals + 1)) });
    }
  } catch {
    return null;
  }
  return fields;
}

/** @throws URIError for an escape without two digits, and for bytes that are not UTF-8 */
function decodePlain(encoded: string): string {
  const text = encoded.includes('+') ? encoded.replaceAll('+', ' ') : encoded;
  return text.includes('%') ? decodeURIComponent(text) : text;
}

const ASCII = /^[!-~]*$/;

/** The values of the fields with that name, in order. */
export function valuesOf(fields: readonly FormField[], name: string): (string | null)[] {
  const values: (string | null)[] = [];
  for (const field of fields) if (field.name === name) values.push(field.value);
  return values;
}

/** The decoded text; null if it is not UTF-8. */
function textOf(bytes: Buffer): string | null {
  return isUtf8(bytes) ? bytes.toString('utf8') : null;
}

function* decodeInPieces(encoded: Buffer, budget: Budget): Generator<void, Buffer, void> {
  const pieces: Buffer[] = [];
  for (let at = 0; at < encoded.length; ) {
    if (budget.isSpent) yield;
    let end = Math.min(at + PIECE_BYTES, encoded.length);
    while (isInEscape(encoded, end)) end += 1;
    pieces.push(decode(encoded.subarray(at, end)));
    budget.spend((end - at) >> 1);
    at = end;
  }
  return Buffer.concat(pieces);
}

/** Whether an escape begins before `at` and extends beyond it. */
function isInEscape(encoded: Buffer, at: number): boolean {
  const isDigit = (index: number): boolean => hexDigit(encoded[index]) !== -1;
  return (
    (encoded[at - 1] === PERCENT && isDigit(at) && isDigit(at + 1)) ||
    (encoded[at - 2] === PERCENT && isDigit(at - 1) && isDigit(at))
  );
}

function decode(encoded: Buffer): Buffer {
  if (!encoded.includes(PERCENT) && !encoded.includes(PLUS)) return encoded;
  const decoded = Buffer.allocUnsafe(encoded.length);
  let length = 0;
  for (let i = 0; i < encoded.length; i += 1) {
    let byte = encoded[i] ?? 0;
    if (byte === PLUS) {
      byte = 0x20;
    } else if (byte === PERCENT) {
      const high = hexDigit(encoded[i + 1]);
      const low = hexDigit(encoded[i + 2]);
      if (high !== -1 && low !== -1) {
        byte = high * 16 + low;
        i += 2;
      }
    }
    decoded[length] = byte;
    length += 1;
  }
  return decoded.subarray(0, length);
}

/**
 * Reads the whole body of a request.
 *
 * @param maxBytes 0 means no limit
 * @throws RefusedRequest 413 as soon as there are more than `maxBytes`; 400 if the client aborts; HttpError 413 or
 * 408 from a limit of the site; HubgateError `body-already-read`
 */
export async function readBody(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  const announced = Number(exchange.headers.get('content-length') ?? 0);
  if (maxBytes > 0 && announced > maxBytes) throw tooLarge();
  const { body } = exchange;
  if (body.readableDidRead) {
    throw new HubgateError(
      'body-already-read',
      'The body of this request was read before the hub got it: mount the hub before parsers of bodies',
    );
  }
  // None of its events would come any more.
  if (body.readableEnded || body.destroyed) {
    if (exchange.hasBody) throw badRequest();
    return Buffer.alloc(0);
  }
  wantBody(exchange);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const take = (chunk: Buffer): void => {
      length += chunk.length;
      if (maxBytes === 0 || length <= maxBytes) {
        chunks.push(chunk);
        return;
      }
      // Further data is read and discarded, so that the client can read the response.
      body.off('data', take);
      body.resume();
      reject(tooLarge());
    };
    body.on('data', take);
    body.once('end', () => {
      const [first] = chunks;
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, length));
    });
    const brokenOff = (error?: unknown): void => {
      // A limit of the site has ended the body: `request_body`.
      if (error instanceof HttpError) reject(error);
      else if (!body.readableEnded) reject(badRequest());
    };
    body.once('error', brokenOff);
    body.once('close', brokenOff);
  });
}

/** With the reason phrase that clients of such hubs know. */
function tooLarge(): RefusedRequest {
  return new RefusedRequest(413, { text: 'Request Entity Too Large' });
}

/**
 * A media type in lower case without parameters; null if the field cannot be parsed. A parameter may be empty, as after
 * a semicolon at the end (RFC 9110 §5.6.6).
 */
export function mediaType(field: string): string | null {
  const text = field.trim();
  const [type] = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+/.exec(text) ?? [];
  if (type === undefined) return null;
  PARAMETER.lastIndex = type.length;
  while (PARAMETER.lastIndex < text.length) if (!PARAMETER.test(text)) return null;
  return type.toLowerCase();
}

const PARAMETER = /[ \t]*;[ \t]*(?:[\w!#$&^.+-]+=(?:[^\s";]+|"(?:[^"\\]|\\.)*"))?/y;

export const FORM = 'application/x-www-form-urlencoded';
