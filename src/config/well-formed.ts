import { isIP } from 'node:net';
import { parseUrl } from '../kernel/parse.ts';

const HEADER_NAME = /^[A-Za-z0-9!#$%&'+\-.^_`|~]+$/;

/** RFC 9110 §5.1, without the `*` that means "any" when fields are deleted. */
export function isHeaderName(text: string): boolean {
  return HEADER_NAME.test(text);
}

/** A header value must not be able to begin another header. */
export function isHeaderValue(text: string): boolean {
  return !/[\r\n\0]/.test(text);
}

/** A method in upper case that may change something: all but the safe ones (RFC 9110 §9.2.1). */
export function isChangingMethod(text: string): boolean {
  return /^(?!(?:GET|HEAD|OPTIONS|TRACE|QUERY|CONNECT)$)[A-Z][A-Z-]{0,31}$/.test(text);
}

/** A name in a list of OpenSSL, where `:` would separate, and `!` or `@` would have a meaning. */
export function isOpenSslName(text: string): boolean {
  return /^[A-Za-z0-9_-]+$/.test(text);
}

/** `404`, or a class such as `5xx`. */
export function isStatusPattern(text: string): boolean {
  return /^[1-5](?:\d\d|xx)$/.test(text);
}

/** An address, or a CIDR range. */
export function isAddressRange(text: string): boolean {
  const [address = '', bits, ...more] = text.split('/');
  const version = isIP(address);
  if (version === 0 || more.length > 0) return false;
  if (bits === undefined) return true;
  return /^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128);
}

/** `gateway` or `gateway:2029`, in lower case: a value of a client's `Host`. */
export function isAdminOrigin(text: string): boolean {
  return /^(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::\d{1,5})?$/.test(text);
}

/** The URL of a web server, or a placeholder. */
export function isCollectorUrl(text: string): boolean {
  return text.startsWith('{') || isFetchable(text);
}

/** Whether the function `fetch` accepts a URL: it refuses one with a user. */
export function isFetchable(text: string): boolean {
  const url = parseUrl(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.username + url.password === '';
}

/** The mode of a log file: the owner can read and write it, others may, and nobody can execute it. */
export function isLogMode(text: string): boolean {
  return /^0?6[0246][0246]$/.test(text);
}

/** The name of a log. Other logs refer to it as `http.log.access.NAME`. */
export function isLogName(text: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(text);
}

/**
 * The path of a hub, in the canonical form that the paths of requests have (RFC 3986 §6.2.2), with escapes in upper case.
 * It has no placeholders and does not end with a slash. A semicolon would end it in a cookie, and a comma or quote in a
 * `Link` field.
 */
export function isHubPath(text: string): boolean {
  return (
    /^\/(?:[\w.~!$&'()+=:@/-]|%[0-9A-F]{2})+$/.test(text) &&
    !text.endsWith('/') &&
    !/\/\.{1,2}(?:\/|$)/.test(text) &&
    (text.match(/%../g) ?? []).every(isCanonicalEscape)
  );
}

/** Not an escape of a character that needs none (RFC 3986 §6.2.2.2), of a slash or of NUL. */
function isCanonicalEscape(escape: string): boolean {
  return !/[\w.~/\\\0-]/.test(String.fromCharCode(Number.parseInt(escape.slice(1), 16)));
}

/** A host in lower case. Names in placeholders keep their case. */
export function lowerCaseHost(text: string): string {
  return text.replace(/\{[^{}]*\}|[^{}]+/g, (part) =>
    part.startsWith('{') ? part : part.toLowerCase(),
  );
}

/** The name of a server in a ClientHello. A value of `{env.…}` or `{file.…}` is not known yet. */
export function isServerName(text: string): boolean {
  return /^[\w.:-]+$|\{(?:env|file)\./.test(text);
}

/** The name of a hub among the hubs of its site. */
export function isLabel(text: string): boolean {
  return /^[A-Za-z0-9._~-]{1,64}$/.test(text);
}

/** RFC 6265 §4.1.1. A value of `{env.…}` or `{file.…}` is not known yet. */
export function isCookieName(text: string): boolean {
  return /^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$|\{(?:env|file)\./.test(text);
}

/** An attribute of a `Link` header field, where it becomes part of a quoted string. */
export function isLinkAttribute(text: string): boolean {
  return /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/.test(text);
}

/** The logs whose lines a log of the global options includes or excludes. */
export function isLogScope(text: string): boolean {
  return /^http\.log\.access(?:\.[A-Za-z0-9_-]{1,64})?$/.test(text);
}

/** The meaning of `private_ranges` in a list of address ranges. */
export const PRIVATE_RANGES: readonly string[] = [
  '192.168.0.0/16',
  '172.16.0.0/12',
  '10.0.0.0/8',
  '127.0.0.1/8',
  'fd00::/8',
  '::1/128',
];

/**
 * Creates a function that checks whether a status is in a list: `404`, or a class such as `5xx`. An empty
 * list contains every status.
 */
export function statusMatcher(listed: readonly string[]): (status: number) => boolean {
  if (listed.length === 0) return () => true;
  const wanted = new Set(listed.map((one) => one.toLowerCase()));
  return (status) =>
    wanted.has(String(status)) ||
    wanted.has(`${Math.floor(status / 100)}xx`) ||
    wanted.has(String(Math.floor(status / 100)));
}

/** Which one of several existing files is selected. */
export const TRY_POLICIES = [
  'first_exist',
  'smallest_size',
  'largest_size',
  'most_recently_modified',
] as const;

export type TryPolicy = (typeof TRY_POLICIES)[number];

/** A valid candidate: a path without patterns, or `=404` as the last one. */
export function isTriedFile(file: string): boolean {
  if (file.startsWith('=')) return fallbackStatus(file) !== null;
  return file !== '' && !/[*[\]\\\0]/.test(file);
}

/** The status of `=404`; null for a file. */
export function fallbackStatus(file: string): number | null {
  return /^=[45]\d\d$/.test(file) ? Number(file.slice(1)) : null;
}

/**
 * A status is only allowed at the end, with the policy that selects the first existing file. Returns null if
 * it is correct.
 */
export function misplacedStatus(files: readonly string[], policy: TryPolicy): string | null {
  const at = files.findIndex((file) => fallbackStatus(file) !== null);
  if (at === -1) return null;
  if (at < files.length - 1) return `${files[at]} ends the search, so it must be the last`;
  return policy === 'first_exist'
    ? null
    : `${files[at]} is allowed only with the policy first_exist`;
}

/** Whether a text is the target of a rewrite: it begins with a path, a query or a placeholder. */
export function isRewriteTarget(text: string): boolean {
  return /^[/?{]/.test(text);
}
