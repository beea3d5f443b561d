import { isUtf8 } from 'node:buffer';
import { METHODS } from 'node:http';
import { canonicalTarget } from '../http/canonical-target.ts';

/** Bytes of a request target; a 64 KiB token in its query fits. */
const MAX_TARGET_BYTES = 72 * 1024;
/** Bytes of a path, which matchers and rewrites look at; the largest of the hub names a topic of 4 KiB. */
const MAX_PATH_BYTES = 16 * 1024;
/** Fields of one message. Cookies may come in a field each over HTTP/2. */
export const MAX_FIELDS = 256;

/** Why a query was refused. */
export const NOT_UTF8 = 'The query of the request is not UTF-8\n';
const AMBIGUOUS_PATH = 'The path of the request can be read in two ways\n';

/** What is known of a request before anybody handles it. */
export interface RequestHead {
  readonly httpVersion: string;
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** Alternating names and values as they came, those of pseudo-header fields included. */
  readonly rawHeaders: readonly string[];
}

/**
 * Visible ASCII but `#`: a fragment is never sent, and who cuts it off sees another path. In the
 * query also bytes beyond ASCII, which curl sends as they are typed; see {@link asciiTarget}.
 */
const TARGET = /^[\x21-\x22\x24-\x3e\x40-\x7e]+(?:\?[\x21-\x22\x24-\x7e\x80-\xff]*)?$/;
const BEYOND_ASCII = /[\x80-\xff]/;
/** The absolute form without user information (RFC 9110 §4.2.4). */
const ABSOLUTE = /^https?:\/\/([^/?]*)(?:[/?]|$)/i;
/** A name or address with an optional port. Narrower than RFC 3986: no `,` or `%` in a name. */
const HOST = /^(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{1,255})(?::\d{0,5})?$/;
/** Whatever could be a method (RFC 9110 §5.6.2). */
const METHOD = /^[!#$%&'*+.^_`|~\w-]+$/;
/** Those that Node's parser of HTTP/1.1 takes; they are case-sensitive (§9.1). */
const KNOWN_METHODS: ReadonlySet<string> = new Set([...METHODS, 'QUERY']);
/** The beginning of a request with a method; that of an HTTP/2 preface is not one. */
const METHOD_OF_LINE = /^(?!PRI )([!#$%&'*+.^_`|~\w-]{1,64}) \S/;

/** What a request asks for, however its target was written. */
export interface RequestTarget {
  /** Of the absolute form (RFC 9112 §3.2.2); null for others. */
  readonly authority: string | null;
  /** Path and query in their canonical form. */
  readonly target: string;
  /** Path and query as the client spelled them. */
  readonly spelled: string;
}

/** A status that refuses, or what is asked for. */
export type Verdict = number | RequestTarget;

/**
 * Refuses a request whose head two readers could understand in two ways (RFC 9112 §11.2), or that is
 * larger than anybody's. What Node's parser refuses by itself is not looked for again.
 */
export function judgeHttp1(head: RequestHead): Verdict {
  return verdict(head, isGoodHttp1);
}

/** The same for HTTP/2 (RFC 9113 §10.3). */
export function judgeHttp2(head: RequestHead): Verdict {
  return verdict(head, isGoodHttp2);
}

/** What a client that may be fixed is told with a refusal; most refusals say nothing. */
export function reasonFor({ url = '' }: RequestHead): string {
  if (!isQueryUtf8(url)) return NOT_UTF8;
  return isTargetText(url) && requestTarget(url) === null ? AMBIGUOUS_PATH : '';
}

/** null where two readers may read the path in two ways. */
export function requestTarget(url: string): RequestTarget | null {
  const [, authority = null] = ABSOLUTE.exec(url) ?? [];
  const rest = authority === null ? url : url.slice(url.indexOf('//') + 2 + authority.length);
  const spelled = asciiTarget(authority === null || rest.startsWith('/') ? rest : `/${rest}`);
  const target = canonicalTarget(spelled);
  return target === null ? null : { authority, target, spelled };
}

/**
 * Whether a parser that stopped at a method has stopped at one that it does not know (RFC 9110 §9.1), so
 * that the answer is 501 over either protocol.
 */
export function hasUnknownMethod(line: string): boolean {
  const method = METHOD_OF_LINE.exec(line)?.[1];
  return method !== undefined && !KNOWN_METHODS.has(method);
}

/** Whether a target has only characters that it may have, or bytes beyond ASCII in its query. */
export function isTargetText(target: string): boolean {
  return TARGET.test(target);
}

/** A target whose query has its bytes beyond ASCII percent-encoded, as it should have been sent. */
export function asciiTarget(target: string): string {
  if (!BEYOND_ASCII.test(target)) return target;
  return target.replace(
    /[\x80-\xff]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function isQueryUtf8(url: string): boolean {
  return !BEYOND_ASCII.test(url) || isUtf8(Buffer.from(url, 'latin1'));
}

function verdict(
  head: RequestHead,
  isGood: (head: RequestHead, fields: Fields) => boolean,
): Verdict {
  const { rawHeaders, url = '' } = head;
  if (rawHeaders.length > 2 * MAX_FIELDS) return 431;
  if (url.length > MAX_TARGET_BYTES || pathLength(url) > MAX_PATH_BYTES) return 414;
  const fields = new Fields(rawHeaders);
  const { method = '' } = head;
  if (!METHOD.test(method) || !isGood(head, fields)) return 400;
  if (!KNOWN_METHODS.has(method)) return 501;
  // RFC 9110 §10.1.1. HTTP/1.0 knows no expectations.
  const expectations = head.httpVersion === '1.0' ? [] : fields.all('expect');
  if (!expectations.every((one) => one.toLowerCase() === '100-continue')) return 417;
  return requestTarget(url) ?? 400;
}

function pathLength(url: string): number {
  const question = url.indexOf('?');
  return question === -1 ? url.length : question;
}

function isGoodHttp1(head: RequestHead, fields: Fields): boolean {
  // llhttp also reads 0.9 and 2.0.
  const isOld = head.httpVersion === '1.0';
  if (!isOld && head.httpVersion !== '1.1') return false;
  const hosts = fields.all('host');
  if (hosts.length > 1 || (hosts.length === 0 && !isOld)) return false;
  if (!hosts.every((host) => HOST.test(host))) return false;
  if (!isTarget(head)) return false;
  // RFC 9112 §6.1: other codings than chunked, and chunked more than once, are read differently by
  // different servers, and HTTP/1.0 has none.
  const codings = fields.all('transfer-encoding');
  if (codings.length > 0 && (isOld || codings.length > 1)) return false;
  if (codings.some((coding) => coding.toLowerCase() !== 'chunked')) return false;
  const lengths = fields.all('content-length');
  return lengths.length === 0 || (codings.length === 0 && areGoodLengths(lengths));
}

function isGoodHttp2(head: RequestHead, fields: Fields): boolean {
  const authorities = fields.all(':authority');
  const hosts = fields.all('host');
  // RFC 9113 §8.3.1: neither user information nor a Host that says something else.
  if (!authorities.concat(hosts).every((host) => HOST.test(host))) return false;
  const names = new Set(authorities.concat(hosts).map((host) => host.toLowerCase()));
  if (names.size > 1 || hosts.length > 1) return false;
  const isTunnel = head.method === 'CONNECT' && fields.all(':protocol').length === 0;
  return isTunnel || (!ABSOLUTE.test(head.url ?? '') && isTarget(head));
}

/** RFC 9112 §3.2: the origin and the absolute form, and for OPTIONS the asterisk. */
function isTarget({ method, url = '' }: RequestHead): boolean {
  if (!isTargetText(url) || !isQueryUtf8(url)) return false;
  if (url.startsWith('/')) return true;
  if (url === '*') return method === 'OPTIONS';
  const authority = ABSOLUTE.exec(url)?.[1];
  return authority !== undefined && HOST.test(authority);
}

function areGoodLengths(lengths: readonly string[]): boolean {
  const [length = ''] = lengths;
  return lengths.length === 1 && /^\d+$/.test(length) && Number.isSafeInteger(Number(length));
}

/** The values of fields by name, of few names and many fields. */
class Fields {
  readonly #raw: readonly string[];

  constructor(raw: readonly string[]) {
    this.#raw = raw;
  }

  all(name: string): string[] {
    const values: string[] = [];
    for (let i = 0; i + 1 < this.#raw.length; i += 2) {
      const key = this.#raw[i] ?? '';
      if (key.length === name.length && key.toLowerCase() === name) {
        values.push(this.#raw[i + 1] ?? '');
      }
    }
    return values;
  }
}
