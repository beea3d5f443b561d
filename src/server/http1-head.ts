// The head of a request over HTTP/1.1, from the first bytes that arrive to its parts.

import type { HeaderList } from '../http/header-list.ts';
import { badSyntax, isTokenByte, readFields } from '../http/http1-syntax.ts';
import { codeOf, HubgateError } from '../kernel/error.ts';
import { isKnownMethod, type RequestHead } from './strict-request.ts';

/** A head that follows the grammar. */
export interface Http1Head extends RequestHead {
  readonly httpVersion: '1.0' | '1.1';
  readonly method: string;
  readonly url: string;
  readonly headers: HeaderList;
}

/** Bytes of a method; the longest known one has 14. */
const MAX_METHOD_BYTES = 64;
/** Any valid method (RFC 9110 §5.6.2), which may be unknown. */
const METHOD = /^[!#$%&'*+.^_`|~\w-]{1,64}$/;
/** RFC 9110 §15.6.6. Other minor versions do not exist. */
const OTHER_MAJOR_VERSION = /^HTTP\/[02-9]\.\d$/;
/** Bytes of the first memory for a head that has not arrived completely. */
const LEAST_HEAD_BYTES = 1024;

const CR = 13;
const LF = 10;
const SPACE = 32;
const NOTHING = Buffer.alloc(0);

/** The beginning of a head whose end has not arrived. */
export class PartialHead {
  /** Larger than what has arrived, so that a head in many small pieces is not copied for each of them. */
  #memory: Buffer = NOTHING;
  #length = 0;

  /** Bytes that have arrived. */
  get length(): number {
    return this.#length;
  }

  /** What has arrived, with the next bytes behind it. */
  joined(chunk: Buffer): Buffer {
    const bytes = this.#length + chunk.length;
    if (this.#memory.length < bytes) {
      const larger = Buffer.allocUnsafe(Math.max(LEAST_HEAD_BYTES, 2 * bytes));
      this.#memory.copy(larger, 0, 0, this.#length);
      this.#memory = larger;
    }
    chunk.copy(this.#memory, this.#length);
    return this.#memory.subarray(0, bytes);
  }

  /** What has arrived is parsed again, together with what follows. Returns its bytes. */
  taken(): number {
    const known = this.#length;
    this.#length = 0;
    return known;
  }

  /** Somebody else still reads the memory, so that it is not used again. */
  release(): void {
    this.#memory = NOTHING;
  }

  /**
   * Keeps the bytes from an offset on, unless it is already clear that they are refused.
   *
   * @param known bytes at the beginning that have been kept before, and are in this memory already
   * @throws HubgateError `bad-http1-syntax`, `unknown-http1-method`
   */
  keep(bytes: Buffer, at: number, known: number): void {
    if (bytes[at] !== CR) checkMethod(bytes, at);
    let lf = bytes.indexOf(LF, Math.max(at, known));
    while (lf !== -1) {
      if (lf === at || bytes[lf - 1] !== CR) throw badSyntax('A line does not end with CRLF');
      lf = bytes.indexOf(LF, lf + 1);
    }
    const length = bytes.length - at;
    if (at > 0 || known === 0) {
      const memory = Buffer.allocUnsafe(Math.max(LEAST_HEAD_BYTES, 2 * length));
      bytes.copy(memory, 0, at);
      this.#memory = memory;
    }
    this.#length = length;
  }
}

/**
 * Refuses what cannot be the beginning of a request line, without waiting for its end.
 *
 * @throws HubgateError `bad-http1-syntax`, `unknown-http1-method`
 */
function checkMethod(bytes: Buffer, at: number): void {
  for (let i = at; i < bytes.length; i += 1) {
    const byte = bytes[i] ?? 0;
    if (byte === SPACE && i > at) return refuseUnknown(bytes.toString('latin1', at, i));
    if (!isTokenByte(byte) || i - at > MAX_METHOD_BYTES) {
      throw badSyntax('A request does not begin with a method');
    }
  }
}

function refuseUnknown(method: string): void {
  if (isKnownMethod(method)) return;
  throw new HubgateError('unknown-http1-method', 'The method of a request is unknown');
}

/**
 * Reads a head (RFC 9112 §3, §5) of a text with one character per byte, which ends with an empty line.
 *
 * @throws HubgateError `bad-http1-syntax`, `unknown-http1-method`, `unsupported-http-version`
 */
export function readHead(text: string): Http1Head {
  const lineEnd = text.indexOf('\r\n');
  const methodEnd = text.indexOf(' ');
  const versionStart = text.lastIndexOf(' ', lineEnd) + 1;
  const method = text.slice(0, Math.max(0, methodEnd));
  const version = text.slice(versionStart, lineEnd);
  if (METHOD.test(method)) refuseUnknown(method);
  if (methodEnd <= 0 || versionStart <= methodEnd + 1 || methodEnd > lineEnd) {
    throw badSyntax('A request line has fewer than three parts');
  }
  if (version !== 'HTTP/1.1' && version !== 'HTTP/1.0') {
    if (OTHER_MAJOR_VERSION.test(version)) {
      throw new HubgateError('unsupported-http-version', 'The version of a request is not HTTP/1');
    }
    throw badSyntax('A request does not have the version HTTP/1.1 or HTTP/1.0');
  }
  return {
    method,
    url: text.slice(methodEnd + 1, versionStart - 1),
    httpVersion: version === 'HTTP/1.1' ? '1.1' : '1.0',
    headers: readFields(text, lineEnd + 2, text.length - 2),
  };
}

/** The status with which a request is refused, given the error from reading it. */
export function statusOf(error: unknown): number {
  switch (codeOf(error)) {
    case 'http1-too-large':
      return 413;
    case 'unknown-http1-method':
      return 501;
    case 'unsupported-http-version':
      return 505;
    default:
      return 400;
  }
}
