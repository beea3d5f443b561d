import { nearestName } from '../config/problem.ts';

/** `\{` or `\}`, or a brace pair with a name that could be a placeholder's. Caddy's long names have any characters. */
export const PLACEHOLDER =
  /\\[{}]|\{((?:orig_)?\?query|%(?:uri|path|query)|http\.[^{}\\\n]+|[A-Za-z_][\w.$!#%&'*+^`|~-]*)\}/g;

const REQUEST_NAMES: readonly string[] = `
  host hostport port method scheme proto path dir file file.base file.ext uri query ?query %uri %path %query
  orig_method orig_uri orig_path orig_file orig_dir orig_query orig_?query orig_prefixed_query
  remote remote_host remote_port client_ip uuid upstream_hostport
  err.status_code err.status_text err.message err.id
  file_match.relative file_match.absolute file_match.type file_match.remainder
  rp.status_code rp.status_text resp.status_code auth.user.id
  tls_client_subject tls_client_issuer tls_client_serial tls_client_fingerprint tls_client_certificate_der_base64
`
  .trim()
  .split(/\s+/);

/** The values of a client's certificate, if its site has verified it. */
export const CERTIFICATE = 'tls_client_';
const ALTERNATIVE_NAME = /^tls_client_san\.(?:dns_names|emails|ips|uris)\.\d{1,3}$/;

export const TIME_NAMES = [
  'time.now',
  'time.now.http',
  'time.now.common_log',
  'time.now.year',
  'time.now.unix',
  'time.now.unix_ms',
] as const;

export const SYSTEM_NAMES = [
  'system.hostname',
  'system.os',
  'system.arch',
  'system.wd',
  'system.slash',
] as const;

/** Prefixes that are followed by a further name. */
const FAMILIES = [
  'header.',
  'query.',
  'cookie.',
  're.',
  'vars.',
  'rp.header.',
  'resp.header.',
  'http.response.header.',
  // Replaced when the configuration is built.
  'env.',
  'file.',
] as const;

/** Prefixes that are followed by a number. */
const NUMBERED = ['path.', 'labels.'] as const;

/** The network of the peer; the lengths of its prefix follow, for IPv4 and IPv6. */
export const REMOTE_NETWORK = 'http.request.remote.host/';
const PREFIX_LENGTHS = /^\d{1,3}(?:,\d{1,3})?$/;

/** Caddy's long names, and their names here. */
const LONG_NAMES: Readonly<Record<string, string>> = Object.assign(Object.create(null), {
  'http.request.host': 'host',
  'http.request.hostport': 'hostport',
  'http.request.port': 'port',
  'http.request.method': 'method',
  'http.request.orig_method': 'orig_method',
  'http.request.proto': 'proto',
  'http.request.scheme': 'scheme',
  'http.request.uri': 'uri',
  'http.request.uri.path': 'path',
  'http.request.uri.path.dir': 'dir',
  'http.request.uri.path.file': 'file',
  'http.request.uri.path.file.base': 'file.base',
  'http.request.uri.path.file.ext': 'file.ext',
  'http.request.uri.query': 'query',
  'http.request.uri.prefixed_query': '?query',
  'http.request.uri_escaped': '%uri',
  'http.request.uri.path_escaped': '%path',
  'http.request.uri.query_escaped': '%query',
  'http.request.orig_uri': 'orig_uri',
  'http.request.orig_uri.path': 'orig_path',
  'http.request.orig_uri.path.file': 'orig_file',
  'http.request.orig_uri.path.dir': 'orig_dir',
  'http.request.orig_uri.query': 'orig_query',
  'http.request.orig_uri.prefixed_query': 'orig_prefixed_query',
  'http.request.remote': 'remote',
  'http.request.remote.host': 'remote_host',
  'http.request.remote.port': 'remote_port',
  'http.request.uuid': 'uuid',
  'http.vars.client_ip': 'client_ip',
  'http.vars.root': 'vars.root',
  'http.reverse_proxy.upstream.hostport': 'upstream_hostport',
  'http.reverse_proxy.upstream.address': 'upstream_hostport',
  'http.reverse_proxy.status_code': 'rp.status_code',
  'http.reverse_proxy.status_text': 'rp.status_text',
  'http.intercept.status_code': 'resp.status_code',
  'http.auth.user.id': 'auth.user.id',
  'http.error.status_code': 'err.status_code',
  'http.error.status_text': 'err.status_text',
  'http.error.message': 'err.message',
  'http.error.id': 'err.id',
});
const LONG_FAMILIES: readonly (readonly [long: string, short: string])[] = [
  ['http.request.header.', 'header.'],
  ['http.request.cookie.', 'cookie.'],
  ['http.request.host.labels.', 'labels.'],
  ['http.request.uri.query.', 'query.'],
  ['http.request.uri.path.', 'path.'],
  ['http.reverse_proxy.header.', 'rp.header.'],
  ['http.intercept.header.', 'resp.header.'],
  ['http.regexp.', 're.'],
  ['http.vars.', 'vars.'],
  ['http.matchers.file.', 'file_match.'],
  ['http.request.tls.client.', CERTIFICATE],
];

/** Caddy's names without a dot for which this gateway has no data. */
const ELSEWHERE = /^tls_[a-z_0-9]+$/;

const SHORT_NAMES: readonly string[] = [...REQUEST_NAMES, ...TIME_NAMES, ...SYSTEM_NAMES];

/** The short name for a long one; any other name is returned unchanged. */
export function shortName(name: string): string {
  if (name === 'orig_?query') return 'orig_prefixed_query';
  if (name.startsWith('file.match.')) return `file_match.${name.slice('file.match.'.length)}`;
  if (!name.startsWith('http.')) return name;
  const short = LONG_NAMES[name];
  if (short !== undefined) return short;
  const family = LONG_FAMILIES.find(([long]) => name.startsWith(long));
  return family === undefined ? name : family[1] + name.slice(family[0].length);
}

/** Whether the value of a placeholder with this short name is percent-encoded. All others are plain text, or whole URLs. */
export function isEncoded(shortName: string): boolean {
  return /^(?:orig_)?(?:path|dir|file)$|^path\.|^file\./.test(shortName);
}

/** Whether at least some requests give it a value. */
export function isPlaceholder(name: string): boolean {
  const short = shortName(name);
  if (name.startsWith(REMOTE_NETWORK)) {
    return PREFIX_LENGTHS.test(name.slice(REMOTE_NETWORK.length));
  }
  if (SHORT_NAMES.includes(short) || ALTERNATIVE_NAME.test(short)) return true;
  if (FAMILIES.some((family) => short.startsWith(family) && short.length > family.length)) {
    return true;
  }
  const numbered = NUMBERED.find((family) => short.startsWith(family));
  return numbered !== undefined && /^\d{1,3}$/.test(short.slice(numbered.length));
}

/** Whether a text in a part of a configuration has a placeholder whose short name begins like this. */
export function usesPlaceholder(part: unknown, beginning: string): boolean {
  if (typeof part === 'string') {
    const names = [...part.matchAll(PLACEHOLDER)].map(([, name = '']) => shortName(name));
    return names.some((name) => name.startsWith(beginning));
  }
  if (typeof part !== 'object' || part === null) return false;
  return Object.values(part).some((member) => usesPlaceholder(member, beginning));
}

/** Whether it can only be meant as a placeholder. */
export function looksLikePlaceholder(name: string): boolean {
  return name.includes('.') || ELSEWHERE.test(name);
}

/** The placeholder that may have been meant. One of a family keeps its ending. */
export function placeholderLike(name: string): string | undefined {
  const ending = name.slice(name.lastIndexOf('.') + 1);
  if (ending !== name && SHORT_NAMES.includes(ending)) return ending;
  const nearest = nearestName(name, similarPlaceholders(name));
  return nearest === name ? undefined : nearest;
}

function similarPlaceholders(name: string): readonly string[] {
  const dot = name.lastIndexOf('.') + 1;
  const [family, rest] = [name.slice(0, dot), name.slice(dot)];
  const known = [...FAMILIES, ...NUMBERED, ...LONG_FAMILIES.map(([long]) => long)];
  const meant = family === '' ? undefined : nearestName(family, known);
  const whole = [...SHORT_NAMES, ...Object.keys(LONG_NAMES)];
  if (meant === undefined) return whole;
  const numbered = NUMBERED.some((one) => shortName(`${meant}0`).startsWith(one));
  const ofFamily = meant + (numbered && !/^\d{1,3}$/.test(rest) ? '0' : rest);
  return isPlaceholder(ofFamily) ? [...whole, ofFamily] : whole;
}
