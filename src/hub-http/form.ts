/** One pair of a form. */
export interface FormField {
  /** Bytes that are not UTF-8 are replaced: such a name is none that is known. */
  readonly name: string;
  /** null stands for bytes that are not UTF-8. */
  readonly value: string | null;
}

/**
 * Decodes `application/x-www-form-urlencoded` as the WHATWG URL standard §5.1 does, except that
 * bytes which are not UTF-8 are told, not replaced: a replaced topic would be another topic.
 */
export function parseForm(bytes: Buffer): FormField[] {
  const fields: FormField[] = [];
  let start = 0;
  while (start <= bytes.length) {
    const ampersand = bytes.indexOf(0x26, start);
    const end = ampersand === -1 ? bytes.length : ampersand;
    if (end > start) fields.push(parsePair(bytes.subarray(start, end)));
    start = end + 1;
  }
  return fields;
}

/** The query of a request target as form fields. */
export function parseQuery(target: string): FormField[] {
  const question = target.indexOf('?');
  return question === -1 ? [] : parseForm(Buffer.from(target.slice(question + 1), 'latin1'));
}

/** The values of the fields of that name, in order. */
export function valuesOf(fields: readonly FormField[], name: string): (string | null)[] {
  return fields.filter((field) => field.name === name).map((field) => field.value);
}

function parsePair(pair: Buffer): FormField {
  const equals = pair.indexOf(0x3d);
  const name = equals === -1 ? pair : pair.subarray(0, equals);
  const value = equals === -1 ? Buffer.alloc(0) : pair.subarray(equals + 1);
  return { name: unescape(name).toString('utf8'), value: decodeUtf8(unescape(value)) };
}

function unescape(encoded: Buffer): Buffer {
  const bytes = Buffer.alloc(encoded.length);
  let length = 0;
  for (let i = 0; i < encoded.length; i += 1) {
    let byte = encoded[i] ?? 0;
    if (byte === 0x2b) {
      byte = 0x20;
    } else if (byte === 0x25) {
      const high = hexDigit(encoded[i + 1]);
      const low = hexDigit(encoded[i + 2]);
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

function decodeUtf8(bytes: Buffer): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
