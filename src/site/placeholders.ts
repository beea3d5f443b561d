import { randomUUID } from 'node:crypto';
import { cookieValue } from '../http/cookie-value.ts';
import type { Exchange, Expand } from '../http/exchange.ts';
import { fieldUtf8, type HeaderList } from '../http/header-list.ts';

/** `\{`, or a brace pair with a name that could be a placeholder's. */
const PLACEHOLDER = /\\\{|\{([A-Za-z_][\w.$!#%&'*+^`|~-]*)\}/g;

/** Parts of a path that `{path.N}` can name. */
const MAX_PATH_PARTS = 1_000;

/**
 * Replaces the request placeholders of the Hubfile. What is no known placeholder stays as it is;
 * `\{` is a brace. What a placeholder brings in is not looked through again.
 */
export const expandPlaceholders: Expand = (template, exchange, response, encode) => {
  if (!template.includes('{')) return template;
  return template.replace(PLACEHOLDER, (match: string, name: string | undefined) => {
    if (name === undefined) return '{';
    const value = lookUp(shortName(name), exchange, response);
    if (value === undefined) return match;
    return encode === undefined ? value : encode(value);
  });
};

/** The long names of Caddy, and what they are called here. */
const LONG_NAMES: Readonly<Record<string, string>> = Object.assign(Object.create(null), {
  'http.request.host': 'host',
  'http.request.hostport': 'hostport',
  'http.request.port': 'port',
  'http.request.method': 'method',
  'http.request.scheme': 'scheme',
  'http.request.uri': 'uri',
  'http.request.uri.path': 'path',
  'http.request.uri.query': 'query',
  'http.request.orig_uri': 'orig_uri',
  'http.request.orig_uri.path': 'orig_path',
  'http.request.orig_uri.prefixed_query': 'orig_prefixed_query',
  'http.request.remote.host': 'remote_host',
  'http.vars.client_ip': 'client_ip',
  'http.vars.root': 'root',
  'http.request.uuid': 'uuid',
  'http.reverse_proxy.upstream.hostport': 'upstream_hostport',
  'http.reverse_proxy.status_code': 'rp.status_code',
  'http.auth.user.id': 'auth.user.id',
  'http.error.status_code': 'err.status_code',
  'http.error.status_text': 'err.status_text',
  'http.error.message': 'err.message',
  'http.error.id': 'err.id',
});
const LONG_FAMILIES: readonly (readonly [long: string, short: string])[] = [
  ['http.request.header.', 'header.'],
  ['http.request.cookie.', 'cookie.'],
  ['http.request.uri.query.', 'query.'],
  ['http.request.uri.path.', 'path.'],
  ['http.reverse_proxy.header.', 'rp.header.'],
  ['http.regexp.', 're.'],
  ['http.vars.', 'vars.'],
  ['http.matchers.file.', 'file_match.'],
];

/** Where a variable of `vars` is kept among those of the exchange. */
export function variableKey(name: string): string {
  return name === 'root' ? name : `vars.${name}`;
}

function shortName(name: string): string {
  if (name.startsWith('file.match.')) return `file_match.${name.slice('file.match.'.length)}`;
  if (!name.startsWith('http.')) return name;
  const short = LONG_NAMES[name];
  if (short !== undefined) return short;
  const family = LONG_FAMILIES.find(([long]) => name.startsWith(long));
  return family === undefined ? name : family[1] + name.slice(family[0].length);
}

function lookUp(
  name: string,
  exchange: Exchange,
  response: HeaderList | undefined,
): string | undefined {
  const dot = name.indexOf('.');
  if (dot === -1) return exchange.variables.get(name) ?? simple(name, exchange);
  const family = name.slice(0, dot);
  const rest = name.slice(dot + 1);
  switch (family) {
    case 'header':
      return text(exchange.headers.combined(rest));
    case 'query':
      return queryOf(exchange).get(rest) ?? '';
    case 'cookie':
      return text(cookieValue(exchange.headers, rest));
    case 'path':
      return pathPart(exchange, rest);
    case 'http':
      return responseField(rest, exchange, response);
    case 'rp':
      return exchange.variables.get(name.toLowerCase());
    case 'auth':
    case 'file_match':
    case 're':
    case 'vars':
      return exchange.variables.get(name) ?? '';
    default:
      return exchange.variables.get(name);
  }
}

function simple(name: string, exchange: Exchange): string | undefined {
  switch (name) {
    case 'host':
      return hostname(exchange.host);
    case 'hostport':
      return exchange.host;
    case 'port':
      return port(exchange);
    case 'method':
      return exchange.method;
    case 'scheme':
      return exchange.scheme;
    case 'path':
      return pathOf(exchange);
    case 'uri':
      return exchange.target;
    case 'orig_uri':
      return exchange.originalTarget;
    case 'orig_path':
      return exchange.originalTarget.split('?', 1)[0];
    case 'orig_prefixed_query':
      return exchange.originalTarget.replace(/^[^?]*/, '');
    case 'query':
      return queryText(exchange);
    case 'remote_host':
      return exchange.remoteAddress;
    case 'client_ip':
      return exchange.clientAddress;
    case 'uuid':
      return requestUuid(exchange);
    case 'upstream_hostport':
      return '';
    default:
      return undefined;
  }
}

/** The same for the whole request, so that a log and a header can agree. */
function requestUuid(exchange: Exchange): string {
  const uuid = exchange.variables.get('uuid') ?? randomUUID();
  exchange.variables.set('uuid', uuid);
  return uuid;
}

/** The path as sent, still encoded. */
export function pathOf(exchange: Exchange): string {
  const { target } = exchange;
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

function queryText(exchange: Exchange): string {
  const { target } = exchange;
  const query = target.indexOf('?');
  return query === -1 ? '' : target.slice(query + 1);
}

export function queryOf(exchange: Exchange): URLSearchParams {
  return new URLSearchParams(queryText(exchange));
}

/** `example.com:8443` as `example.com`, `[::1]:80` as `::1`; lower case, without a final dot. */
export function hostname(host: string): string {
  const bare = host.startsWith('[')
    ? host.slice(1, Math.max(1, host.indexOf(']')))
    : (host.split(':', 1)[0] ?? '');
  return bare.toLowerCase().replace(/\.$/, '');
}

function port(exchange: Exchange): string {
  const own = /:(\d+)$/.exec(exchange.host)?.[1];
  return own ?? (exchange.scheme === 'https' ? '443' : '80');
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
  return exchange.variables.get(`http.response.header.${field.toLowerCase()}`);
}

/** The text of a field value, which holds bytes; empty when there is none. */
function text(value: string | undefined): string {
  return value === undefined ? '' : (fieldUtf8(value) ?? value);
}
