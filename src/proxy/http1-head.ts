// The heads of HTTP/1.1 messages to and from upstreams (RFC 9112).

import { listsToken } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';
import { badSyntax, isFieldValue, isToken, readFields } from '../http/http1-syntax.ts';
import { Http1Writer } from '../http/http1-writer.ts';
import { ForwardError } from './forward-error.ts';
import { type ForwardRequest, MAX_HEAD_BYTES } from './forwarding.ts';
import type { DialTarget } from './upgrade-request.ts';

/** How the body of a response ends (RFC 9112 §6.3). */
type ResponseFraming = 'none' | 'length' | 'chunks' | 'close';

/** The head of a response. */
export interface ReceivedHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly framing: ResponseFraming;
  /** Bytes of a body with the framing `length`; otherwise 0. */
  readonly length: number;
  /** Whether the upstream keeps the connection open after the response (§9.3). */
  readonly isPersistent: boolean;
  /** How long the upstream keeps an idle connection, in milliseconds; null if it does not say. */
  readonly idleMs: number | null;
}

/** Methods whose requests have a length even without a body (RFC 9110 §8.6). */
const METHODS_WITH_BODY = new Set(['POST', 'PUT', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH']);

/** Bytes of the field that frames a body, and of the empty line after it. */
const MAX_FRAMING_BYTES = 48;

/** The bytes of a request target. White space would end it. */
const NO_TARGET = /[^\x21-\xff]/;

/**
 * The head of a request, which may wait. If the request has a body, the field that frames it and the empty line at
 * the end of the head are missing.
 *
 * @throws ForwardError `unsendable-request`
 */
export function beginRequest(
  { method, target, headers, body }: ForwardRequest,
  { address, settings }: DialTarget,
): Http1Writer {
  if (!isToken(method)) throw unsendable('The method is not a token');
  if (target === '' || NO_TARGET.test(target)) throw unsendable('The target cannot be sent');
  if (headers.has('content-length') || headers.has('transfer-encoding')) {
    throw unsendable('A field frames the message');
  }
  const out = new Http1Writer();
  out.text(method);
  out.text(' ');
  out.text(target);
  out.text(' HTTP/1.1\r\n');
  const keepsConnection = settings.keepAliveMs > 0 && method !== 'HEAD';
  const isHostValid = out.field('host', headers.combined('host') ?? address.authority);
  out.text(keepsConnection ? 'connection: keep-alive\r\n' : 'connection: close\r\n');
  const invalid = isHostValid ? headers.writeLines(out, 'host') : 'host';
  if (invalid !== null) {
    out.discard();
    throw unsendable(`The field ${JSON.stringify(invalid.slice(0, 64))} cannot be sent`);
  }
  if (body === null) {
    out.text(emptyBodyField(method));
    out.text('\r\n');
    out.keep();
  } else out.keep(MAX_FRAMING_BYTES);
  return out;
}

function unsendable(reason: string): ForwardError {
  return new ForwardError('unsendable-request', 'unsent', badSyntax(reason));
}

/** The field that frames a request without a body; most have none (RFC 9110 §8.6). */
export function emptyBodyField(method: string): string {
  return METHODS_WITH_BODY.has(method) ? 'content-length: 0\r\n' : '';
}

const VERSION = 'HTTP/1.';
const [SPACE, ZERO, ONE] = [32, 48, 49];
/** Where the status begins and ends in a status line, and the reason begins. */
const [STATUS, STATUS_END, REASON] = [9, 12, 13];

/**
 * Reads a head of a text with one character per byte.
 *
 * @param end the position of the CRLF before the empty line
 * @param method that of the request
 * @throws HubgateError `bad-http1-syntax`
 */
export function readResponseHead(
  text: string,
  start: number,
  end: number,
  method: string,
): ReceivedHead {
  const lineEnd = text.indexOf('\r\n', start);
  const minor = text.charCodeAt(start + VERSION.length) - ZERO;
  const status = statusOf(text, start, lineEnd);
  const headers = readFields(text, lineEnd + 2, end + 2);
  if (status < 200) return informational(status, headers);
  const connection = headers.combined('connection');
  const isPersistent =
    minor === 1
      ? !listsToken(connection, 'close')
      : // RFC 9112 §6.1: HTTP/1.0 knows no transfer coding, so its end may be seen elsewhere.
        listsToken(connection, 'keep-alive') && !headers.has('transfer-encoding');
  const { framing, length } = framingOf(method, status, headers);
  const hint = isPersistent ? headers.get('keep-alive') : undefined;
  return {
    status,
    headers,
    framing,
    length,
    // RFC 9110 §8.6: a 204 has no length, and one that has may be followed by a body.
    isPersistent: isPersistent && framing !== 'close' && !(status === 204 && hasLength(headers)),
    idleMs: hint === undefined ? null : idleTime(hint),
  };
}

/** RFC 9110 §15.2: no informational response has a body, whatever its fields say. */
function informational(status: number, headers: HeaderList): ReceivedHead {
  return { status, headers, framing: 'none', length: 0, isPersistent: true, idleMs: null };
}

/**
 * RFC 9112 §4. Some servers omit the space before an empty reason. That is harmless, because the reason is
 * not passed on and frames nothing.
 */
function statusOf(text: string, start: number, lineEnd: number): number {
  const minor = text.charCodeAt(start + VERSION.length);
  const isHttp = text.startsWith(VERSION, start) && (minor === ZERO || minor === ONE);
  if (!isHttp || text.charCodeAt(start + STATUS - 1) !== SPACE) {
    throw badSyntax('The response does not begin with a status line of HTTP/1.1');
  }
  let status = 0;
  for (let at = start + STATUS; at < start + STATUS_END; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (!(digit >= 0 && digit <= 9)) throw badSyntax('The status is not a number of three digits');
    status = status * 10 + digit;
  }
  if (status < 100) throw badSyntax('The status is less than 100');
  const hasReason = lineEnd >= start + REASON;
  if (hasReason ? text.charCodeAt(start + STATUS_END) !== SPACE : lineEnd !== start + STATUS_END) {
    throw badSyntax('The status is not followed by a space');
  }
  if (hasReason && !isFieldValue(text.slice(start + REASON, lineEnd))) {
    throw badSyntax('The reason contains a control character');
  }
  return status;
}

/**
 * RFC 9112 §6.3. A response whose fields contradict each other is not read at all, because another reader may
 * find another end of it (§11.2).
 */
function framingOf(
  method: string,
  status: number,
  headers: HeaderList,
): { framing: ResponseFraming; length: number } {
  const coding = headers.combined('transfer-encoding');
  const declared = headers.combined('content-length');
  if (coding !== undefined) {
    if (declared !== undefined) throw badSyntax('The response has a length and a transfer coding');
    if (coding.toLowerCase() !== 'chunked') {
      throw badSyntax(`The transfer coding ${JSON.stringify(coding)} is unknown`);
    }
  }
  const length = declared === undefined ? 0 : lengthOf(declared);
  if (method === 'HEAD' || status === 204 || status === 304) return { framing: 'none', length: 0 };
  if (coding !== undefined) return { framing: 'chunks', length: 0 };
  return { framing: declared === undefined ? 'close' : 'length', length };
}

function lengthOf(declared: string): number {
  const length = /^\d+$/.test(declared) ? Number(declared) : -1;
  if (!Number.isSafeInteger(length) || length < 0) throw badSyntax('The length is not one number');
  return length;
}

function hasLength(headers: HeaderList): boolean {
  const declared = headers.get('content-length');
  return headers.has('transfer-encoding') || (declared !== undefined && Number(declared) !== 0);
}

/** The last `Keep-Alive` field and its idle time. An upstream always sends the same one. */
let lastHint = '';
let lastIdleMs: number | null = null;

/** The parameter `timeout` of a `Keep-Alive` field, which is in seconds. */
function idleTime(hint: string): number | null {
  if (hint === lastHint) return lastIdleMs;
  const [, seconds] = /(?:^|[,;\s])timeout=(\d{1,9})/i.exec(hint) ?? [];
  lastHint = hint;
  lastIdleMs = seconds === undefined ? null : Number(seconds) * 1000;
  return lastIdleMs;
}

/** The record of an upstream that expects TLS (RFC 8446 §5.1). Others only close the connection. */
const TLS_ALERT = '\x15\x03';

/**
 * Refuses the beginning of a head that cannot become valid, so that nothing waits for the rest of it.
 *
 * @param checked characters at the start of the text that have been checked before
 * @throws HubgateError `bad-http1-syntax`
 */
export function refuseBadBeginning(text: string, checked: number): void {
  if (text.startsWith(TLS_ALERT)) {
    throw badSyntax('The upstream answered with TLS; write https:// for an upstream with TLS');
  }
  const start = text.slice(0, VERSION.length);
  if (!VERSION.startsWith(start)) throw badSyntax('The response does not begin as HTTP/1.1 does');
  // oxlint-disable-next-line no-control-regex
  if (/[^\r]\n|\r[^\n]|\0/.test(text.slice(Math.max(0, checked - 1)))) {
    throw badSyntax('A line of the response does not end with CRLF');
  }
  if (text.length > MAX_HEAD_BYTES) throw badSyntax(`The head exceeds ${MAX_HEAD_BYTES} bytes`);
}
