// The syntax of HTTP/1.1 messages (RFC 9112), for the connections of clients and for those to upstreams. It is as
// strict as the grammar of the RFC, because two readers that forgive different mistakes can be made to disagree
// about where a message ends (§11.2): lines end with CRLF and never with LF alone, there is no line folding, no
// white space before a colon, and no control character in a value.

import { HubgateError } from '../kernel/error.ts';
import { hexDigit } from '../kernel/parse.ts';
import { HeaderList } from './header-list.ts';

/** Bytes of all chunk extensions of one message. */
const MAX_EXTENSION_BYTES = 16 * 1024;
/** Digits of the size of a chunk without leading zeros: 2^52 bytes, which a number holds exactly. */
const MAX_SIZE_DIGITS = 13;
/** Leading zeros of the size of a chunk. */
const MAX_LEADING_ZEROS = 16;

/** The extensions of a chunk, without white space around their parts (§7.1.1). */
const EXTENSIONS =
  /^(?:;[!#$%&'*+.^_`|~\w-]+(?:=(?:[!#$%&'*+.^_`|~\w-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)+$/;

const CR = 13;
const LF = 10;
const TAB = 9;
const SPACE = 32;
const COLON = 58;
const SEMICOLON = 59;

/** The bytes of a token (RFC 9110 §5.6.2). */
const TOKEN = byteTable(
  "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
);
/** The bytes of a field value (RFC 9110 §5.5): visible characters, bytes beyond ASCII, space and tab. */
const VALUE = byteTable(
  Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte))
    .filter((char) => char === '\t' || (char >= ' ' && char !== '\x7f'))
    .join(''),
);

function byteTable(chars: string): Uint8Array {
  const table = new Uint8Array(256);
  for (const char of chars) table[char.charCodeAt(0)] = 1;
  return table;
}

/** A message that does not follow the grammar. The connection can carry no further message. */
export function badSyntax(message: string): HubgateError {
  return new HubgateError('bad-http1-syntax', message);
}

/** A message that is larger than a limit allows. */
export function tooLarge(message: string): HubgateError {
  return new HubgateError('http1-too-large', message);
}

export function isTokenByte(byte: number): boolean {
  return TOKEN[byte] === 1;
}

/** Whether a byte may occur in the value of a field (RFC 9110 §5.5). */
export function isValueByte(byte: number): boolean {
  return VALUE[byte] === 1;
}

/** Whether a text is a token (RFC 9110 §5.6.2), such as a method or the name of a field. */
export function isToken(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (TOKEN[text.charCodeAt(at)] !== 1) return false;
  return text !== '';
}

/** Whether a byte string can be the value of a field (RFC 9110 §5.5), or the reason of a status. */
export function isFieldValue(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (VALUE[text.charCodeAt(at)] !== 1) return false;
  return true;
}

/**
 * Reads field lines (RFC 9112 §5) of a text with one character per byte.
 *
 * @param end where the last line ends, after its CRLF
 * @throws HubgateError `bad-http1-syntax`
 */
export function readFields(text: string, start: number, end: number): HeaderList {
  let places = 0;
  let at = start;
  while (at < end) {
    const nameStart = at;
    while (TOKEN[text.charCodeAt(at)] === 1) at += 1;
    if (at === nameStart || text.charCodeAt(at) !== COLON) {
      throw badSyntax('A field line does not begin with a name and a colon');
    }
    const name = text.slice(nameStart, at);
    at += 1;
    while (isBlank(text.charCodeAt(at))) at += 1;
    const valueStart = at;
    while (VALUE[text.charCodeAt(at)] === 1) at += 1;
    let valueEnd = at;
    while (valueEnd > valueStart && isBlank(text.charCodeAt(valueEnd - 1))) valueEnd -= 1;
    if (at + 2 > end || text.charCodeAt(at) !== CR || text.charCodeAt(at + 1) !== LF) {
      throw badSyntax(
        'A field value contains a control character, or its line does not end with CRLF',
      );
    }
    at += 2;
    lines[places] = name;
    lines[places + 1] = text.slice(valueStart, valueEnd);
    places += 2;
  }
  return HeaderList.fromRaw(lines, places);
}

/** The names and values that were read last. They are kept, because each message would leave such an array. */
const lines: string[] = [];

/** A value without the spaces and tabs around it, which do not belong to it (RFC 9110 §5.5). */
export function withoutOuterBlanks(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(char: number): boolean {
  return char === SPACE || char === TAB;
}

/** What the next byte of a chunked body belongs to. */
type ChunkPart =
  | 'size'
  | 'extension'
  | 'size-lf'
  | 'data'
  | 'data-cr'
  | 'data-lf'
  | 'trailers'
  | 'done';

/** Reads a chunked body (RFC 9112 §7.1) piece by piece. */
export class ChunkedReader {
  /** Pieces of the body in the last read. */
  piecesOfRead = 0;
  readonly #maxTrailerBytes: number;
  #part: ChunkPart = 'size';
  /** Digits of the size that have been read, without leading zeros, and the zeros. */
  #digits = 0;
  #zeros = 0;
  /** The size of the chunk; while its data is read, what is left of it. */
  #left = 0;
  #extensionBytes = 0;
  /** The extensions of a chunk as far as they have arrived. */
  #extension = '';
  /** The trailer section as far as it has arrived, with one character per byte. */
  #trailerText = '';
  #trailers: HeaderList | null = null;

  /** @param maxTrailerBytes bytes of the trailer section */
  constructor(maxTrailerBytes: number) {
    this.#maxTrailerBytes = maxTrailerBytes;
  }

  /** Whether the body and its trailer section are complete. */
  get isDone(): boolean {
    return this.#part === 'done';
  }

  /** The trailer fields; complete when the body is done. */
  get trailers(): HeaderList {
    return this.#trailers ?? new HeaderList();
  }

  /**
   * Reads bytes from `start` on until the body is done.
   *
   * @param onData called with each piece of the body, which is a view of `bytes`
   * @returns the position behind the last byte that was read
   * @throws HubgateError `bad-http1-syntax`, `http1-too-large`
   */
  read(bytes: Buffer, start: number, onData: (piece: Buffer) => void): number {
    let at = start;
    this.piecesOfRead = 0;
    while (at < bytes.length && this.#part !== 'done') {
      if (this.#part === 'data') {
        this.piecesOfRead += 1;
        const end = Math.min(bytes.length, at + this.#left);
        this.#left -= end - at;
        if (this.#left === 0) this.#part = 'data-cr';
        onData(bytes.subarray(at, end));
        at = end;
      } else if (this.#part === 'trailers') at = this.#readTrailers(bytes, at);
      else {
        this.#readFraming(bytes[at] ?? 0);
        at += 1;
      }
    }
    return at;
  }

  #readFraming(byte: number): void {
    switch (this.#part) {
      case 'size':
        this.#readSize(byte);
        return;
      case 'extension':
        this.#readExtension(byte);
        return;
      case 'size-lf':
        if (byte !== LF) throw badSyntax('The size of a chunk is not followed by CRLF');
        this.#part = this.#left === 0 ? 'trailers' : 'data';
        return;
      case 'data-cr':
        if (byte !== CR) throw badSyntax('The data of a chunk is not followed by CRLF');
        this.#part = 'data-lf';
        return;
      default:
        if (byte !== LF) throw badSyntax('The data of a chunk is not followed by CRLF');
        this.#part = 'size';
        this.#digits = 0;
        this.#zeros = 0;
    }
  }

  #readSize(byte: number): void {
    const digit = hexDigit(byte);
    if (digit !== -1) {
      if (digit === 0 && this.#digits === 0) this.#zeros += 1;
      else this.#digits += 1;
      if (this.#digits > MAX_SIZE_DIGITS || this.#zeros > MAX_LEADING_ZEROS) {
        throw badSyntax('The size of a chunk has too many digits');
      }
      this.#left = this.#left * 16 + digit;
      return;
    }
    if (this.#digits + this.#zeros === 0) throw badSyntax('A chunk does not begin with its size');
    if (byte === CR) this.#part = 'size-lf';
    else if (byte === SEMICOLON) {
      this.#part = 'extension';
      this.#extension = ';';
    } else throw badSyntax('The size of a chunk is followed by neither CRLF nor an extension');
  }

  #readExtension(byte: number): void {
    this.#extensionBytes += 1;
    if (this.#extensionBytes > MAX_EXTENSION_BYTES) {
      throw tooLarge(`Chunk extensions exceed ${MAX_EXTENSION_BYTES} bytes`);
    }
    if (byte !== CR) {
      this.#extension += String.fromCharCode(byte);
      return;
    }
    if (!EXTENSIONS.test(this.#extension)) throw badSyntax('A chunk extension is not valid');
    this.#extension = '';
    this.#part = 'size-lf';
  }

  #readTrailers(bytes: Buffer, start: number): number {
    const before = this.#trailerText.length;
    const text = this.#trailerText + bytes.toString('latin1', start);
    // An empty line ends the section; without fields, the section is only that line.
    const isEmpty = text.startsWith('\r\n');
    const end = isEmpty ? 0 : text.indexOf('\r\n\r\n', Math.max(0, before - 3));
    const length = end === -1 ? text.length : end + 4;
    if (!isEmpty && length > this.#maxTrailerBytes) {
      throw tooLarge(`The trailer section exceeds ${this.#maxTrailerBytes} bytes`);
    }
    if (isEmpty || end !== -1) {
      if (!isEmpty) this.#trailers = readFields(text, 0, end + 2);
      this.#trailerText = '';
      this.#part = 'done';
      return start + (isEmpty ? 2 : end + 4) - before;
    }
    if (text.charCodeAt(0) === LF) throw badSyntax('A line does not end with CRLF');
    this.#trailerText = text;
    return bytes.length;
  }
}

/** The line before the data of a chunk: its size in hexadecimal, and CRLF (RFC 9112 §7.1). */
export function chunkHead(bytes: number): string {
  return `${bytes.toString(16)}\r\n`;
}

/** The end of a chunked body without trailer fields. */
export const LAST_CHUNK = '0\r\n\r\n';
