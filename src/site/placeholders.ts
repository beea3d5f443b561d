import { randomUUID } from 'node:crypto';
import { cookieValue } from '../http/field-values.ts';
import { networkOf } from '../http/forwarded.ts';
import type { Exchange, Expand } from '../http/exchange.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { decodePath, mergeSlashes, pathOf } from '../http/request-path.ts';
import { lateValueOf } from '../http/request-variables.ts';
import { queryEncoded } from './rewritten-target.ts';
import {
  CERTIFICATE,
  isEncoded,
  isPlaceholder,
  PLACEHOLDER,
  REMOTE_NETWORK,
  shortName,
  type SYSTEM_NAMES,
  type TIME_NAMES,
} from './placeholder-names.ts';
import os from 'node:os';
import { sep } from 'node:path';

/** Parts of a path that `{path.N}` can refer to. */
const MAX_PATH_PARTS = 1_000;
/** Placeholders for the address of a client, and its version of HTTP. */
const OF_CLIENT = new Set(['remote', 'remote_host', 'remote_port', 'client_ip', 'proto']);
/** A field of the response, which handlers may have set for this client. */
const RESPONSE_FIELD = 'http.response.header.';
/** Prefixes of placeholders for variables that a handler has set because of an earlier response or an error. */
const OF_EARLIER_RESPONSE = ['rp.', 'resp.', RESPONSE_FIELD, 'err.message', 'err.id'];
/** Labels of a host (RFC 1035 §2.3.4: 255 bytes). */
const MAX_LABELS = 128;

/**
 * Replaces the request placeholders of the Hubfile. What is not a known placeholder, or has no value in this request,
 * stays as it is; `\{` and `\}` are braces. What a placeholder brings in is not looked through again.
 */
export const expandPlaceholders: Expand = (template, exchange, response, encode, field) =>
  expanded(template, exchange, response, encode, field, () => false);

/**
 * The same for matchers, where Caddy makes empty what has no value: a destination of a `map` that did not run, for
 * example. Other text in their braces is a mistake of the configuration. Paths are as the matcher `path` sees them.
 */
export function expandForMatcher(template: string, exchange: Exchange): string {
  return expanded(template, exchange, undefined, asMatched, undefined, () => true);
}

/** The value of a placeholder as plain text: the path and its parts are percent-encoded. */
export function decodedValue(value: string, name: string): string {
  return isEncoded(name) ? decodePath(value) : value;
}

/**
 * The same with one slash in place of several. A rule that compares it must not be bypassed by another way to write the same
 * path: `/%40admin` and `//@admin` are `/@admin`.
 */
export function asMatched(value: string, name: string): string {
  return isEncoded(name) ? mergeSlashes(decodePath(value)) : value;
}

/**
 * The same for targets and variables, which may contain other text in braces.
 *
 * @param mapped the destinations of `map` in the site
 */
export function emptyingPlaceholders(mapped: ReadonlySet<string>): Expand {
  const isOwn = (name: string): boolean => mapped.has(name) || isPlaceholder(name);
  return (template, exchange, response, encode, field) =>
    expanded(template, exchange, response, encode, field, isOwn);
}

function expanded(
  template: string,
  exchange: Exchange,
  response: HeaderList | undefined,
  encode: ((value: string, name: string) => string) | undefined,
  field: string | undefined,
  isEmptied: (name: string) => boolean,
): string {
  if (!template.includes('{')) return template;
  return template.replace(PLACEHOLDER, (match: string, name: string | undefined) => {
    if (name === undefined) return match.slice(1);
    const short = shortName(name);
    const value = lookUp(short, exchange, response);
    if (value === undefined) return isEmptied(name) ? '' : match;
    noteDependence(short, exchange, response, field);
    return encode === undefined ? value : encode(value, short);
  });
}

/**
 * A response in which this placeholder is used may not be for others. Handlers before a cache may have set a variable
 * by anything.
 */
function noteDependence(
  name: string,
  exchange: Exchange,
  response: HeaderList | undefined,
  field: string | undefined,
): void {
  const { dependsOn, preset } = exchange;
  if (dependsOn === undefined) return;
  // The host belongs to the URL, so that no app names it in `Vary`.
  if (field === 'host') return noteDependence(name, exchange, response, undefined);
  if (name.startsWith('header.')) dependsOn({ field: name.slice('header.'.length) }, field);
  else if (name.startsWith('cookie.')) dependsOn({ field: 'cookie' }, field);
  else if (name.startsWith('vars.') || isOfClient(name)) dependsOn('client', field);
  else if (name.startsWith('re.')) {
    if (isCapturedFromClient(name, exchange)) dependsOn('client', field);
  } else if (name.startsWith(RESPONSE_FIELD) && response !== undefined) {
    if (preset.has(name.slice(RESPONSE_FIELD.length))) dependsOn('client', field);
  } else if (OF_EARLIER_RESPONSE.some((prefix) => name.startsWith(prefix))) {
    dependsOn({ variable: name.toLowerCase() }, field);
  }
}

function isOfClient(name: string): boolean {
  return OF_CLIENT.has(name) || name.startsWith(REMOTE_NETWORK);
}

/** The key among the variables of a request that says whose text was captured. It is no placeholder. */
export function clientCaptures(prefix: string): string {
  return `${prefix} of the client`;
}

/** Whether the value of `{re.…}` was captured from a text that may differ between clients. */
function isCapturedFromClient(placeholder: string, { variables }: Exchange): boolean {
  const prefix = placeholder.slice(0, placeholder.lastIndexOf('.'));
  return variables.has(clientCaptures(prefix));
}

/** The key of a `vars` variable among those of the exchange. */
export function variableKey(name: string): string {
  return name === 'root' ? name : `vars.${name}`;
}

function lookUp(
  name: string,
  exchange: Exchange,
  response: HeaderList | undefined,
): string | undefined {
  if (name.startsWith(CERTIFICATE) && isPlaceholder(name)) {
    return exchange.identity.certificate?.value(name.slice(CERTIFICATE.length)) ?? '';
  }
  const dot = name.indexOf('.');
  if (dot === -1) {
    const set = lateValueOf(name, exchange) ?? exchange.variables.get(name);
    return set ?? OF_REQUEST.get(name)?.(exchange);
  }
  const family = name.slice(0, dot);
  const rest = name.slice(dot + 1);
  switch (family) {
    case 'header':
      return exchange.headers.getAll(rest).map(text).join(',');
    case 'query':
      return queryOf(exchange).getAll(rest).join(',');
    case 'cookie':
      return text(cookieValue(exchange.headers, rest));
    case 'path':
      return pathPart(exchange, rest);
    case 'http':
      if (name.startsWith(REMOTE_NETWORK)) {
        return isPlaceholder(name)
          ? networkOf(exchange.remoteAddress, name.slice(REMOTE_NETWORK.length))
          : undefined;
      }
      return responseField(rest, exchange, response);
    case 'labels':
      return hostValue(name, exchange.host);
    case 'vars':
      return exchange.variables.get(variableKey(rest)) ?? '';
    case 'time':
      return timeValue(name);
    case 'system':
      return SYSTEM.get(name)?.();
    case 'rp':
    case 'resp':
      return exchange.variables.get(name.toLowerCase());
    case 'auth':
      return name === 'auth.user.id'
        ? (exchange.identity.user ?? '')
        : (exchange.variables.get(name) ?? '');
    case 'file':
      return filePart(rest, exchange);
    case 'file_match':
    case 're':
      return exchange.variables.get(name) ?? '';
    default:
      return lateValueOf(name, exchange) ?? exchange.variables.get(name);
  }
}

/** The placeholders without a dot that do not come from a handler. */
const OF_REQUEST: ReadonlyMap<string, (exchange: Exchange) => string> = new Map(
  Object.entries({
    host: ({ host }) => hostname(host),
    hostport: ({ host }) => host,
    port,
    method: ({ method }) => method,
    orig_method: ({ originalMethod }) => originalMethod,
    scheme: ({ scheme }) => scheme,
    proto: ({ httpVersion }) => `HTTP/${httpVersion}`,
    dir: (exchange) => splitPath(exchange).dir,
    file: (exchange) => splitPath(exchange).file,
    path: pathOf,
    uri: ({ target }) => target,
    query: queryText,
    '?query': prefixedQuery,
    '%uri': ({ target }) => queryEncoded(target),
    '%path': escapedPath,
    '%query': (exchange) => queryEncoded(queryText(exchange)),
    orig_uri: ({ originalTarget }) => originalTarget,
    orig_path: ({ originalTarget }) => pathOf({ target: originalTarget }),
    orig_file: ({ originalTarget }) => splitPath({ target: originalTarget }).file,
    orig_dir: ({ originalTarget }) => splitPath({ target: originalTarget }).dir,
    orig_query: ({ originalTarget }) => queryText({ target: originalTarget }),
    orig_prefixed_query: ({ originalTarget }) => prefixedQuery({ target: originalTarget }),
    remote: ({ remoteAddress, remotePort }) => hostport(remoteAddress, remotePort),
    remote_port: ({ remotePort }) => String(remotePort),
    remote_host: ({ remoteAddress }) => remoteAddress,
    client_ip: ({ clientAddress }) => clientAddress,
    uuid: requestUuid,
    upstream_hostport: ({ upstream }) => upstream?.hostport ?? '',
  } satisfies Record<string, (exchange: Exchange) => string>),
);

/** The same for the whole request, so that a log and a header can agree. */
function requestUuid(exchange: Exchange): string {
  const uuid = exchange.variables.get('uuid') ?? randomUUID();
  exchange.variables.set('uuid', uuid);
  return uuid;
}

function queryText({ target }: Pick<Exchange, 'target'>): string {
  const query = target.indexOf('?');
  return query === -1 ? '' : target.slice(query + 1);
}

function prefixedQuery(request: Pick<Exchange, 'target'>): string {
  const query = queryText(request);
  return query === '' ? '' : `?${query}`;
}

export function queryOf(exchange: Exchange): URLSearchParams {
  return new URLSearchParams(queryText(exchange));
}

/** The path, which is encoded already, as such a value. */
function escapedPath(exchange: Exchange): string {
  return queryEncoded(pathOf(exchange))
    .replaceAll(/%25([0-9A-F]{2})/gi, '%$1')
    .replaceAll('%20', '+');
}

/** Converts `example.com:8443` to `example.com`, `[::1]:80` to `::1`; lower case, without a final dot. */
export function hostname(host: string): string {
  if (host.startsWith('[')) return withoutDot(host.slice(1, Math.max(1, host.indexOf(']'))));
  const colon = host.indexOf(':');
  return withoutDot(colon === -1 ? host : host.slice(0, colon));
}

function withoutDot(name: string): string {
  const lower = name.toLowerCase();
  return lower.endsWith('.') ? lower.slice(0, -1) : lower;
}

/** As the client names it; empty where it leaves the default port out. */
function port({ host }: Exchange): string {
  return /:(\d+)$/.exec(host)?.[1] ?? '';
}

/** The path up to its last slash, which belongs to the directory, and the part after it. */
function splitPath(exchange: Pick<Exchange, 'target'>): {
  readonly dir: string;
  readonly file: string;
} {
  const path = pathOf(exchange);
  const start = path.lastIndexOf('/') + 1;
  return { dir: path.slice(0, start), file: path.slice(start) };
}

/** `base` and `ext`: the last segment of the path without its extension, and the extension with its dot. */
function filePart(part: string, exchange: Exchange): string | undefined {
  const path = pathOf(exchange);
  const isDirectory = path.endsWith('/');
  const name = path.split('/').findLast((segment) => segment !== '') ?? '/';
  const dot = isDirectory ? -1 : name.lastIndexOf('.');
  const end = dot === -1 ? name.length : dot;
  if (part === 'base') return name.slice(0, end);
  return part === 'ext' ? name.slice(end) : undefined;
}

/** `{host}`, or `{labels.0}`: they count from the right, that of `example.com` is `com`. */
export function hostValue(name: string, host: string): string | undefined {
  if (name === 'host') return hostname(host);
  const index = /^labels\.(\d{1,3})$/.exec(name)?.[1];
  if (index === undefined) return undefined;
  const labels = hostname(host).split('.', MAX_LABELS);
  return labels.at(-1 - Number(index)) ?? '';
}

function hostport(address: string, portNumber: number): string {
  return `${address.includes(':') ? `[${address}]` : address}:${portNumber}`;
}

function pathPart(exchange: Exchange, index: string): string | undefined {
  if (!/^\d{1,3}$/.test(index)) return undefined;
  return pathOf(exchange).slice(1).split('/', MAX_PATH_PARTS)[Number(index)] ?? '';
}

function responseField(
  name: string,
  exchange: Exchange,
  response: HeaderList | undefined,
): string | undefined {
  const prefix = 'response.header.';
  if (!name.startsWith(prefix)) return undefined;
  const field = name.slice(prefix.length);
  if (response !== undefined) return text(response.combined(field));
  const known = exchange.variables.get(`http.response.header.${field.toLowerCase()}`);
  // Before there is a response, its fields are those that handlers have set so far.
  return known ?? text(exchange.preset.combined(field));
}

/** The text of a field value, which consists of bytes; empty if there is none. */
function text(value: string | undefined): string {
  return value === undefined ? '' : fieldText(value);
}

// Placeholders that do not depend on the request: the time, and this machine.

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/**
 * Go's names for architectures that Node names differently, so that files written for Caddy have the same
 * meaning.
 */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' };
const SYSTEMS: Readonly<Record<string, string>> = { win32: 'windows' };

const TIMES: ReadonlyMap<string, (now: Date) => string> = new Map(
  Object.entries({
    'time.now': (now) => now.toISOString(),
    'time.now.http': (now) => now.toUTCString(),
    'time.now.common_log': commonLog,
    'time.now.year': (now) => String(now.getUTCFullYear()),
    'time.now.unix': (now) => String(Math.floor(now.getTime() / 1000)),
    'time.now.unix_ms': (now) => String(now.getTime()),
  } satisfies Record<(typeof TIME_NAMES)[number], (now: Date) => string>),
);

/** `time.now` and its forms; times are UTC. */
export function timeValue(name: string, now = new Date()): string | undefined {
  return TIMES.get(name)?.(now);
}

const SYSTEM: ReadonlyMap<string, () => string> = new Map(
  Object.entries({
    'system.hostname': () => os.hostname(),
    'system.os': () => SYSTEMS[process.platform] ?? process.platform,
    'system.arch': () => ARCHITECTURES[process.arch] ?? process.arch,
    'system.wd': () => process.cwd(),
    'system.slash': () => sep,
  } satisfies Record<(typeof SYSTEM_NAMES)[number], () => string>),
);

/** The common log format of web servers: `22/Nov/2026:05:00:00 +0000`. */
export function commonLog(now: Date): string {
  const [day, time = ''] = now.toISOString().split(/[T.]/);
  const [year, month, date] = (day ?? '').split('-');
  return `${date}/${MONTHS[Number(month) - 1]}/${year}:${time} +0000`;
}
