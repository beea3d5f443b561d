/** A request as exactly one reading of its bytes gives it. */
export interface StrictRequest {
  readonly method: string;
  readonly target: string;
  /** Lower-case names. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: string;
}

const REQUEST_LINE = /^([A-Z-]+) ([\x21-\x7e]+) HTTP\/1\.1$/;
const FIELD =
  /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+): ?([\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/;

/**
 * Reads the whole requests at the beginning of some bytes, and what is left of the last, unfinished
 * one. Refuses everything that any server could read in another way.
 */
export function readRequests(bytes: string): {
  readonly requests: readonly StrictRequest[];
  readonly rest: string;
} {
  const requests: StrictRequest[] = [];
  let rest = bytes;
  for (;;) {
    const headEnd = rest.indexOf('\r\n\r\n');
    if (headEnd === -1) return { requests, rest };
    const [line = '', ...lines] = rest.slice(0, headEnd).split('\r\n');
    const [, method, target] = REQUEST_LINE.exec(line) ?? [];
    if (method === undefined || target === undefined) throw new Error(`request line ${line}`);
    const fields = lines.map(readField);
    const read = readBody(fields, rest.slice(headEnd + 4));
    if (read === null) return { requests, rest };
    requests.push({ method, target, fields, body: read.body });
    rest = read.rest;
  }
}

function readField(line: string): readonly [string, string] {
  const [, name, value = ''] = FIELD.exec(line) ?? [];
  if (name === undefined) throw new Error(`field ${JSON.stringify(line)}`);
  return [name.toLowerCase(), value];
}

function readBody(
  fields: StrictRequest['fields'],
  bytes: string,
): { readonly body: string; readonly rest: string } | null {
  const all = (name: string): string[] =>
    fields.flatMap(([key, value]) => (key === name ? [value] : []));
  const [lengths, codings] = [all('content-length'), all('transfer-encoding')];
  if (all('host').length !== 1) throw new Error('not one Host');
  if (lengths.length + codings.length > 1) throw new Error('framed twice');
  if (codings.length === 1) {
    if (codings[0] !== 'chunked') throw new Error(`coding ${codings[0]}`);
    return readChunks(bytes);
  }
  const [length = '0'] = lengths;
  if (!/^(?:0|[1-9]\d*)$/.test(length)) throw new Error(`length ${length}`);
  const end = Number(length);
  return bytes.length < end ? null : { body: bytes.slice(0, end), rest: bytes.slice(end) };
}

function readChunks(bytes: string): { readonly body: string; readonly rest: string } | null {
  let [body, rest] = ['', bytes];
  for (;;) {
    const lineEnd = rest.indexOf('\r\n');
    if (lineEnd === -1) return null;
    const size = rest.slice(0, lineEnd);
    if (!/^(?:0|[1-9a-fA-F][0-9a-fA-F]*)$/.test(size)) throw new Error(`chunk size ${size}`);
    const length = Number.parseInt(size, 16);
    rest = rest.slice(lineEnd + 2);
    if (length === 0) return readTrailers(body, rest);
    if (rest.length < length + 2) return null;
    if (rest.slice(length, length + 2) !== '\r\n') throw new Error('a chunk without its end');
    body += rest.slice(0, length);
    rest = rest.slice(length + 2);
  }
}

function readTrailers(
  body: string,
  bytes: string,
): { readonly body: string; readonly rest: string } | null {
  if (bytes.startsWith('\r\n')) return { body, rest: bytes.slice(2) };
  const end = bytes.indexOf('\r\n\r\n');
  if (end === -1) return null;
  for (const line of bytes.slice(0, end).split('\r\n')) {
    const [name] = readField(line);
    if (/^(?:content-length|transfer-encoding|host)$/.test(name))
      throw new Error(`trailer ${name}`);
  }
  return { body, rest: bytes.slice(end + 4) };
}
