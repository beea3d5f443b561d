import { HubgateError } from '../../kernel/error.ts';
import { isHeaderName } from '../../config/well-formed.ts';
import { HeaderList } from '../../http/header-list.ts';
import { MAX_HEAD_BYTES } from '../forwarding.ts';

/** Records of the FastCGI protocol, version 1 (FastCGI specification §3.3, §8). */
export const RECORD = {
  beginRequest: 1,
  endRequest: 3,
  params: 4,
  stdin: 5,
  stdout: 6,
  stderr: 7,
} as const;

/** There is one request per connection, so one number is sufficient. */
const REQUEST_ID = 1;
const HEADER_BYTES = 8;
/** Content of the record that ends a request (§5.5). */
const ENDING_BYTES = 8;
const NOTHING = Buffer.alloc(0);
/** Longest content of one record; its length has 16 bits. */
const MAX_CONTENT = 65_528;
/**
 * Bytes of records without output, one after another, that an upstream may send for nothing: empty records, unknown
 * ones, padding, and error output in records that are shorter than their own headers.
 */
export const MAX_WASTED_BYTES = 1024 * 1024;
/** Bytes of error output that a script may write before its output begins or goes on. Few of them are logged. */
export const MAX_ERROR_BYTES = 64 * 1024 * 1024;

/** A part of the content of a record; the record that ends a request is always one part. */
export interface RecordPart {
  readonly type: number;
  readonly content: Buffer;
}

/** Begins a request in the role of a responder; the server closes the connection after the response. */
export function beginRequest(): Buffer {
  return record(RECORD.beginRequest, Buffer.from([0, 1, 0, 0, 0, 0, 0, 0]));
}

/** Splits bytes of a stream into as many records as needed. */
export function streamRecords(type: number, content: Buffer): Buffer {
  return Buffer.concat([...recordContents(content)].map((part) => record(type, part)));
}

/** The contents of the single records of a stream. */
export function* recordContents(content: Buffer): Generator<Buffer> {
  for (let at = 0; at < content.length; at += MAX_CONTENT) {
    yield content.subarray(at, at + MAX_CONTENT);
  }
}

/** The empty record that ends a stream. */
export function endOfStream(type: number): Buffer {
  return record(type, Buffer.alloc(0));
}

function record(type: number, content: Buffer): Buffer {
  return Buffer.concat([recordHeader(type, content.length), content]);
}

export function recordHeader(type: number, contentLength: number): Buffer {
  const header = Buffer.from([1, type, 0, REQUEST_ID, 0, 0, 0, 0]);
  header.writeUInt16BE(contentLength, 4);
  return header;
}

/** Encodes parameters as pairs of lengths, names and values (§3.4); all are byte strings. */
export function encodedPairs(pairs: ReadonlyMap<string, string>): Buffer {
  const parts: Buffer[] = [];
  for (const [name, value] of pairs) {
    const [key, text] = [Buffer.from(name, 'latin1'), Buffer.from(value, 'latin1')];
    parts.push(length(key.length), length(text.length), key, text);
  }
  return Buffer.concat(parts);
}

function length(bytes: number): Buffer {
  if (bytes < 0x80) return Buffer.from([bytes]);
  const long = Buffer.alloc(4);
  long.writeUInt32BE((bytes | 0x80_00_00_00) >>> 0);
  return long;
}

/**
 * Reads records from the chunks of a connection. The content of streams is passed on as it arrives, in parts of the
 * chunk that is read.
 */
export class RecordReader {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** Bytes of the record that have not arrived. */
  #contentLeft = 0;
  #paddingLeft = 0;
  #wasted = 0;
  #errorBytes = 0;
  /** Records that have begun in the last read. */
  recordsOfRead = 0;
  /** What has arrived of the record that ends the request. */
  #ending: Buffer = NOTHING;

  /** @throws HubgateError `upstream-broken` for anything that is not a record of this request */
  *read(chunk: Buffer): Generator<RecordPart> {
    let at = 0;
    this.recordsOfRead = 0;
    while (at < chunk.length) {
      if (this.#headerBytes < HEADER_BYTES) {
        at = this.#readHeader(chunk, at);
        continue;
      }
      const end = Math.min(chunk.length, at + this.#contentLeft);
      const part = this.#take(chunk.subarray(at, end));
      if (part !== null) yield part;
      const next = Math.min(chunk.length, end + (this.#contentLeft > 0 ? 0 : this.#paddingLeft));
      this.#paddingLeft -= next - end;
      at = next;
      if (this.#contentLeft === 0 && this.#paddingLeft === 0) this.#headerBytes = 0;
    }
  }

  /** Returns the position behind what it reads of the header. */
  #readHeader(chunk: Buffer, start: number): number {
    const header = this.#header;
    const copied = chunk.copy(header, this.#headerBytes, start);
    this.#headerBytes += copied;
    if (this.#headerBytes < HEADER_BYTES) return start + copied;
    if (header[0] !== 1 || header.readUInt16BE(2) !== REQUEST_ID) {
      throw new HubgateError('upstream-broken', 'The upstream does not speak FastCGI');
    }
    this.#contentLeft = header.readUInt16BE(4);
    if (header[1] === RECORD.endRequest && this.#contentLeft !== ENDING_BYTES) {
      throw new HubgateError('upstream-broken', 'The upstream ends the request with a bad record');
    }
    this.#paddingLeft = header[6] ?? 0;
    this.recordsOfRead += 1;
    this.#countWaste(header[1] ?? 0);
    if (this.#contentLeft === 0 && this.#paddingLeft === 0) this.#headerBytes = 0;
    return start + copied;
  }

  #countWaste(type: number): void {
    const length = this.#contentLeft;
    if (type === RECORD.stdout && length > 0) {
      this.#wasted = 0;
      this.#errorBytes = 0;
      return;
    }
    if (type === RECORD.stderr) this.#errorBytes += length;
    if (this.#errorBytes > MAX_ERROR_BYTES) {
      const message = `The script writes more than ${MAX_ERROR_BYTES} bytes of errors without output`;
      throw new HubgateError('upstream-broken', message);
    }
    const used = type === RECORD.stderr ? length : -length;
    this.#wasted = Math.max(0, this.#wasted + HEADER_BYTES + this.#paddingLeft - used);
    if (this.#wasted > MAX_WASTED_BYTES) {
      const message = `The upstream sends more than ${MAX_WASTED_BYTES} bytes of records without output`;
      throw new HubgateError('upstream-broken', message);
    }
  }

  #take(content: Buffer): RecordPart | null {
    const type = this.#header[1] ?? 0;
    this.#contentLeft -= content.length;
    if (type !== RECORD.endRequest) return content.length === 0 ? null : { type, content };
    this.#ending = Buffer.concat([this.#ending, content]);
    return this.#contentLeft > 0 ? null : { type, content: this.#ending };
  }
}

export interface ScriptHead {
  readonly status: number;
  readonly headers: HeaderList;
  /** The beginning of the body. */
  readonly rest: Buffer;
}

/** Collects the head of a script's response (RFC 3875 §6.2, §6.3). */
export class HeadReader {
  #bytes: Buffer = Buffer.alloc(0);

  /**
   * The head when it is complete; null until then.
   *
   * @throws HubgateError `upstream-broken` for a head that is too long or invalid
   */
  read(chunk: Buffer): ScriptHead | null {
    const from = Math.max(0, this.#bytes.length - 3);
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    const text = this.#bytes.toString('latin1', 0, MAX_HEAD_BYTES);
    const end = /\r?\n\r?\n/.exec(text.slice(from));
    if (end === null) {
      if (this.#bytes.length >= MAX_HEAD_BYTES) {
        throw broken(`a head of more than ${MAX_HEAD_BYTES} bytes`);
      }
      return null;
    }
    const at = from + end.index;
    const rest = this.#bytes.subarray(at + end[0].length);
    return { ...headOf(text.slice(0, at)), rest };
  }
}

function headOf(text: string): { readonly status: number; readonly headers: HeaderList } {
  const headers = new HeaderList();
  let status: number | null = null;
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).trim();
    if (colon === -1 || !isHeaderName(name) || !/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) {
      throw broken('a head with a line that is not a field');
    }
    if (name.toLowerCase() !== 'status') headers.append(name, value);
    else if (/^[2-5]\d\d(?: |$)/.test(value)) status = Number(value.slice(0, 3));
    else throw broken('a status that is not final');
  }
  return { status: status ?? (headers.has('location') ? 302 : 200), headers };
}

function broken(what: string): HubgateError {
  return new HubgateError('upstream-broken', `The script answered with ${what}`);
}
