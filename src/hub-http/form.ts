import { isUtf8 } from 'node:buffer';
import { completed, type Meter, unmetered } from '../kernel/slices.ts';

/** One pair of a form. */
export interface FormField {
  /** Bytes that are not UTF-8 are replaced, and a long one is cut short: such a name is none that is known. */
  readonly name: string;
  /** null stands for bytes that are not UTF-8. */
  readonly value: string | null;
}

/** Pairs that a form may have: the largest that is lawful names 1,000 topics. */
export const MAX_FIELDS = 1100;

/** Bytes of a name that are looked at. No name that is known is so long. */
const MAX_NAME_BYTES = 256;
/** Bytes that are decoded between two looks at the meter, a step for two of them. */
const PIECE_BYTES = 8 * 1024;
/** What a pair costs besides, in steps. */
const PAIR_STEPS = 50;

const AMPERSAND = 0x26;
const EQUALS = 0x3d;
const PERCENT = 0x25;
const PLUS = 0x2b;

/**
 * Decodes `application/x-www-form-urlencoded` as the WHATWG URL standard §5.1 does, except that
 * bytes which are not UTF-8 are told, not replaced: a replaced topic would be another topic. Yields
 * when nothing is left of the meter.
 *
 * @returns null when there are more than {@link MAX_FIELDS} pairs, empty ones included
 */
export function* parseForm(bytes: Buffer, meter: Meter): Generator<void, FormField[] | null, void> {
  const fields: FormField[] = [];
  let pairs = 0;
  for (let start = 0; start <= bytes.length; pairs += 1) {
    if (pairs === MAX_FIELDS) return null;
    const ampersand = bytes.indexOf(AMPERSAND, start);
    const end = ampersand === -1 ? bytes.length : ampersand;
    if (end > start) fields.push(yield* parsePair(bytes.subarray(start, end), meter));
    start = end + 1;
  }
  return fields;
}

/** The query of a request target, whose length is bounded, as form fields; null as for {@link parseForm}. */
export function parseQuery(target: string): FormField[] | null {
  const question = target.indexOf('?');
  if (question === -1) return [];
  return completed(parseForm(Buffer.from(target.slice(question + 1), 'latin1'), unmetered()));
}

/** The values of the fields of that name, in order. */
export function valuesOf(fields: readonly FormField[], name: string): (string | null)[] {
  const values: (string | null)[] = [];
  for (const field of fields) if (field.name === name) values.push(field.value);
  return values;
}

function* parsePair(pair: Buffer, meter: Meter): Generator<void, FormField, void> {
  const equals = pair.indexOf(EQUALS);
  const name = equals === -1 ? pair : pair.subarray(0, equals);
  const bytes = yield* decode(name.subarray(0, MAX_NAME_BYTES), meter);
  const value = equals === -1 ? '' : textOf(yield* decode(pair.subarray(equals + 1), meter));
  return { name: bytes.toString('utf8'), value };
}

/** The text that is meant; null when that is no UTF-8. */
function textOf(bytes: Buffer): string | null {
  return isUtf8(bytes) ? bytes.toString('utf8') : null;
}

function* decode(encoded: Buffer, meter: Meter): Generator<void, Buffer, void> {
  meter.left -= PAIR_STEPS;
  if (!encoded.includes(PERCENT) && !encoded.includes(PLUS)) return encoded;
  const decoded = Buffer.allocUnsafe(encoded.length);
  let length = 0;
  for (let i = 0; i < encoded.length; ) {
    if (meter.left <= 0) yield;
    const start = i;
    for (const end = Math.min(encoded.length, i + PIECE_BYTES); i < end; i += 1) {
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
    meter.left -= (i - start) >> 1;
  }
  return decoded.subarray(0, length);
}

function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
