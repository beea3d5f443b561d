import { isUtf8 } from 'node:buffer';
import { METHODS } from 'node:http';
import { isHost } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';
import { canonicalTarget } from '../http/canonical-target.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';

/** Bytes of a request target; a 64 KiB token in its query fits. */
const MAX_TARGET_BYTES = 72 * 1024;
/**
 * Bytes of a path, which matchers and rewrites process. The longest path of the hub contains a topic of 4
 * KiB.
 */
const MAX_PATH_BYTES = 16 * 1024;
/** Fields of one message. Over HTTP/2, each cookie may be a field of its own. */
export const MAX_FIELDS = 256;

/** The reasons for the refusal of a target. */
const NOT_UTF8 = 'The target of the request is not UTF-8\n';
const AMBIGUOUS_PATH = 'The path of the request can be read in two ways\n';

/** The data of a request before a handler gets it. */
export interface RequestHead {
  readonly httpVersion: string;
  readonly method?: string | undefined;
  readonly url?: string | undefined;
}

type HeaderFields = Pick<HeaderList, 'getAll' | 'length'>;

/**
 * Visible ASCII except `#`: a fragment is never sent, and readers that cut it off see another path. Bytes beyond
 * ASCII are allowed, because curl and old programs send what was typed; see {@link asciiTarget}.
 */
const TARGET = /^[\x21-\x22\x24-\x7e\x80-\xff]+$/;
const BEYOND_ASCII = /[\x80-\xff]/;
/** The absolute form without user information (RFC 9110 §4.2.4). */
const ABSOLUTE = /^https?:\/\/([^/?]*)(?:[/?]|$)/i;
/** Any valid method (RFC 9110 §5.6.2). */
const METHOD = /^[!#$%&'*+.^_`|~\w-]+$/;
/** The methods that Node knows; they are case-sensitive (§9.1). */
const KNOWN_METHODS: ReadonlySet<string> = new Set([...METHODS, 'QUERY']);

/** The target of a request, independent of its form. */
export interface RequestTarget {
  /** The authority of the absolute form (RFC 9112 §3.2.2); null for other forms. */
  readonly authority: string | null;
  /** Path and query in their canonical form. */
  readonly target: string;
  /** Path and query as the client spelled them. */
  readonly spelled: string;
}

/** The status of a refusal, or the accepted target. */
export type Verdict = number | RequestTarget;

/**
 * Refuses a request if two readers could understand its head differently (RFC 9112 §11.2), or if it is larger
 * than any legitimate one. Its grammar has been checked before.
 */
export function judgeHttp1(head: RequestHead & { readonly headers: HeaderList }): Verdict {
  return verdict(head, head.headers, isGoodHttp1);
}

/**
 * The same for HTTP/2 (RFC 9113 §10.3).
 *
 * @param raw alternating names and values, including pseudo-header fields
 */
export function judgeHttp2(head: RequestHead, raw: readonly string[]): Verdict {
  return verdict(head, new RawFields(raw), isGoodHttp2);
}

/** The text of a refusal for clients that can be fixed. Most refusals have none. */
export function reasonFor({ url = '' }: RequestHead): string {
  if (!isUtf8Target(url)) return NOT_UTF8;
  return TARGET.test(url) && requestTarget(url) === null ? AMBIGUOUS_PATH : '';
}

/** Returns null if two readers could read the path differently. */
export function requestTarget(url: string): RequestTarget | null {
  const authority = url.startsWith('/') ? null : (ABSOLUTE.exec(url)?.[1] ?? null);
  const rest = authority === null ? url : url.slice(url.indexOf('//') + 2 + authority.length);
  const spelled = asciiTarget(authority === null || rest.startsWith('/') ? rest : `/${rest}`);
  const target = canonicalTarget(spelled);
  return target === null ? null : { authority, target, spelled };
}

/** Whether a method is served at all. PRI only stands in the preface of HTTP/2, whose version is refused. */
export function isKnownMethod(method: string): boolean {
  return KNOWN_METHODS.has(method) || method === 'PRI';
}

/** A target with the bytes beyond ASCII percent-encoded, as the client should have sent it. */
function asciiTarget(target: string): string {
  if (!BEYOND_ASCII.test(target)) return target;
  return target.replace(
    /[\x80-\xff]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function isUtf8Target(url: string): boolean {
  return !BEYOND_ASCII.test(url) || isUtf8(Buffer.from(url, 'latin1'));
}

function verdict(
  head: RequestHead,
  fields: HeaderFields,
  isGood: (head: RequestHead, fields: HeaderFields) => boolean,
): Verdict {
  const { url = '' } = head;
  if (fields.length > MAX_FIELDS) return 431;
  if (url.length > MAX_TARGET_BYTES || pathLength(url) > MAX_PATH_BYTES) return 414;
  const { method = '' } = head;
  if (!METHOD.test(method) || !isGood(head, fields)) return 400;
  if (!KNOWN_METHODS.has(method)) return 501;
  // RFC 9110 §10.1.1. HTTP/1.0 has no expectations.
  const expectations = head.httpVersion === '1.0' ? [] : fields.getAll('expect');
  if (!expectations.every(isContinue)) return 417;
  return requestTarget(url) ?? 400;
}

function pathLength(url: string): number {
  const question = url.indexOf('?');
  return question === -1 ? url.length : question;
}

function isGoodHttp1(head: RequestHead, fields: HeaderFields): boolean {
  const isOld = head.httpVersion === '1.0';
  const hosts = fields.getAll('host');
  if (hosts.length > 1 || (hosts.length === 0 && !isOld)) return false;
  if (!hosts.every(isHost)) return false;
  if (!isTarget(head)) return false;
  // RFC 9112 §6.1: servers treat other codings than chunked, and chunked more than once, differently.
  // HTTP/1.0 has no transfer codings.
  const codings = fields.getAll('transfer-encoding');
  if (codings.length > 0 && (isOld || codings.length > 1)) return false;
  if (!codings.every(isChunked)) return false;
  const lengths = fields.getAll('content-length');
  return lengths.length === 0 || (codings.length === 0 && areGoodLengths(lengths));
}

function isGoodHttp2(head: RequestHead, fields: HeaderFields): boolean {
  const authorities = fields.getAll(':authority');
  const hosts = fields.getAll('host');
  // RFC 9113 §8.3.1: user information is not allowed, nor a Host that differs.
  const names = hosts.length === 0 ? authorities : authorities.concat(hosts);
  if (hosts.length > 1 || !names.every(isHost)) return false;
  const [first = ''] = names;
  if (names.length > 1 && !names.every((name) => isSameName(name, first))) return false;
  const isTunnel = head.method === 'CONNECT' && fields.getAll(':protocol').length === 0;
  return isTunnel || (!ABSOLUTE.test(head.url ?? '') && isTarget(head));
}

function isChunked(coding: string): boolean {
  return coding.toLowerCase() === 'chunked';
}

function isContinue(expectation: string): boolean {
  return expectation.toLowerCase() === '100-continue';
}

function isSameName(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase();
}

/** RFC 9112 §3.2: the origin form, the absolute form, and the asterisk for OPTIONS. */
function isTarget({ method, url = '' }: RequestHead): boolean {
  if (!TARGET.test(url) || !isUtf8Target(url)) return false;
  if (url.startsWith('/')) return true;
  if (url === '*') return method === 'OPTIONS';
  const authority = ABSOLUTE.exec(url)?.[1];
  return authority !== undefined && isHost(authority);
}

function areGoodLengths(lengths: readonly string[]): boolean {
  const [length = ''] = lengths;
  return lengths.length === 1 && /^\d+$/.test(length) && Number.isSafeInteger(Number(length));
}

const NONE: readonly string[] = [];

const recent = new RecentObjects();

/** The values of selected fields by name; a message may have many other fields. */
class RawFields implements HeaderFields {
  readonly #raw: readonly string[];

  constructor(raw: readonly string[]) {
    this.#raw = raw;
    recent.keep(this);
  }

  get length(): number {
    return this.#raw.length / 2;
  }

  getAll(name: string): readonly string[] {
    let values: string[] | null = null;
    for (let i = 0; i + 1 < this.#raw.length; i += 2) {
      const key = this.#raw[i] ?? '';
      if (key === name || (key.length === name.length && key.toLowerCase() === name)) {
        const value = this.#raw[i + 1] ?? '';
        if (values === null) values = [value];
        else values.push(value);
      }
    }
    return values ?? NONE;
  }
}
