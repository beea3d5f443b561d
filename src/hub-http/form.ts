import { isUtf8 } from 'node:buffer';

/** One pair of a form. */
export interface FormField {
  /** Bytes that are not UTF-8 are replaced: such a name is none that is known. */
  readonly name: string;
  /** null stands for bytes that are not UTF-8. */
  readonly value: string | null;
}

/** Pairs that a form may have: the largest that is lawful names 1,000 topics. */
export const MAX_FIELDS = 1100;

const NOT_ASCII = /[^\0-\x7f]/;

/**
 * Decodes `application/x-www-form-urlencoded` as the WHATWG URL standard §5.1 does, except that
 * bytes which are not UTF-8 are told, not replaced: a replaced topic would be another topic.
 *
 * @returns null when there are more than {@link MAX_FIELDS} pairs, empty ones included
 */
export function parseForm(bytes: Buffer): FormField[] | null {
  return parsePairs(bytes.toString('latin1'));
}

/** The query of a request target as form fields; null as for {@link parseForm}. */
export function parseQuery(target: string): FormField[] | null {
  const question = target.indexOf('?');
  return question === -1 ? [] : parsePairs(target.slice(question + 1));
}

/** The values of the fields of that name, in order. */
export function valuesOf(fields: readonly FormField[], name: string): (string | null)[] {
  const values: (string | null)[] = [];
  for (const field of fields) if (field.name === name) values.push(field.value);
  return values;
}

/** @param text a character for each byte */
function parsePairs(text: string): FormField[] | null {
  const fields: FormField[] = [];
  let pairs = 0;
  for (let start = 0; start <= text.length; pairs += 1) {
    if (pairs === MAX_FIELDS) return null;
    const ampersand = text.indexOf('&', start);
    const end = ampersand === -1 ? text.length : ampersand;
    if (end > start) fields.push(parsePair(text.slice(start, end)));
    start = end + 1;
  }
  return fields;
}

function parsePair(pair: string): FormField {
  const equals = pair.indexOf('=');
  const name = equals === -1 ? pair : pair.slice(0, equals);
  const value = equals === -1 ? '' : pair.slice(equals + 1);
  return { name: decode(name) ?? decodeBytes(name).toString('utf8'), value: decode(value) };
}

/** The text that is meant; null when that is no UTF-8. */
function decode(encoded: string): string | null {
  if (!encoded.includes('%') && !NOT_ASCII.test(encoded)) {
    return encoded.includes('+') ? encoded.replaceAll('+', ' ') : encoded;
  }
  const bytes = decodeBytes(encoded);
  return isUtf8(bytes) ? bytes.toString('utf8') : null;
}

function decodeBytes(encoded: string): Buffer {
  const bytes = Buffer.from(encoded, 'latin1');
  let length = 0;
  for (let i = 0; i < bytes.length; i += 1) {
    let byte = bytes[i] ?? 0;
    if (byte === 0x2b) {
      byte = 0x20;
    } else if (byte === 0x25) {
      const high = hexDigit(bytes[i + 1]);
      const low = hexDigit(bytes[i + 2]);
      if (high !== -1 && low !== -1) {
        byte = high * 16 + low;
        i += 2;
      }
    }
    bytes[length] = byte;
    length += 1;
  }
  return bytes.subarray(0, length);
}

function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
