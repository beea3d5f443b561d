import { join, resolve, sep } from 'node:path';
import { HttpError } from '../../http/errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { type HeaderList, utf8Field } from '../../http/header-list.ts';
import { splitAfter } from '../../http/request-path.ts';
import { HubgateError } from '../../kernel/error.ts';
import { ForwardError } from '../forward-error.ts';

/** Largest size of all parameters of one request, in bytes. */
const MAX_PARAMETER_BYTES = 256 * 1024;

/** The properties of a request for a script, in addition to the fields: decoded paths, all of them text. */
export interface ScriptRequest {
  readonly method: string;
  /** Path and query, as they may be rewritten for the script. */
  readonly target: string;
  /** Directory of the site's files, from the view of the server of the script. */
  readonly root: string;
  /** The path of the script below the root, beginning with `/`. */
  readonly scriptName: string;
  readonly pathInfo: string;
  /** Values from the configuration, which override all others. */
  readonly env: ReadonlyMap<string, string>;
}

/**
 * The environment of a script (RFC 3875 §4.1). `Proxy` is left out, because programs use `HTTP_PROXY` as the
 * address of their own proxy (CVE-2016-5385). Names that could be confused with others are left out too
 * (`X_Real_IP`). The address is that of the client behind trusted proxies.
 *
 * @throws ForwardError `unsendable-request` if they are too long
 */
export function scriptParameters(
  exchange: Exchange,
  headers: HeaderList,
  script: ScriptRequest,
): Map<string, string> {
  const { method, target, root, scriptName, pathInfo } = script;
  const [, query = ''] = target.split(/\?(.*)/s, 2);
  const [, host = '', port] = /^(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(exchange.host) ?? [];
  const directory = resolve(root);
  const secure = exchange.scheme === 'https';
  const user = exchange.identity.user ?? undefined;
  const parameters = new Map<string, string>();
  // First, so that no field can override the following parameters.
  for (const [name, value] of fieldParameters(headers)) parameters.set(name, value);
  const known: Readonly<Record<string, string>> = {
    GATEWAY_INTERFACE: 'CGI/1.1',
    SERVER_SOFTWARE: 'hubgate',
    SERVER_PROTOCOL: exchange.httpVersion === '2.0' ? 'HTTP/2.0' : `HTTP/${exchange.httpVersion}`,
    SERVER_NAME: host.replace(/^\[|\]$/g, ''),
    SERVER_PORT: port ?? (secure ? '443' : '80'),
    REQUEST_METHOD: method,
    REQUEST_SCHEME: exchange.scheme,
    REQUEST_URI: exchange.originalTarget,
    QUERY_STRING: query,
    DOCUMENT_ROOT: directory,
    DOCUMENT_URI: scriptName,
    SCRIPT_NAME: scriptName,
    SCRIPT_FILENAME: join(directory, scriptName),
    PATH_INFO: pathInfo,
    ...translated(directory, pathInfo),
    REMOTE_ADDR: exchange.clientAddress,
    REMOTE_HOST: exchange.clientAddress,
    REMOTE_PORT: String(exchange.remotePort),
    ...(user === undefined ? {} : { REMOTE_USER: user, AUTH_TYPE: 'Basic' }),
    ...(secure ? { HTTPS: 'on' } : {}),
    CONTENT_TYPE: headers.get('content-type') ?? '',
  };
  for (const [name, value] of [...Object.entries(known), ...script.env]) {
    parameters.set(name, name === 'CONTENT_TYPE' ? value : utf8Field(value));
  }
  let bytes = 0;
  for (const [name, value] of parameters) bytes += name.length + value.length + 8;
  if (bytes > MAX_PARAMETER_BYTES) {
    const message = `more than ${MAX_PARAMETER_BYTES} bytes of parameters`;
    const cause = new HubgateError('unsendable-request', message);
    throw new ForwardError('unsendable-request', 'unsent', cause);
  }
  return parameters;
}

/** A path that a placeholder has led out of the root is not translated. */
function translated(directory: string, pathInfo: string): { PATH_TRANSLATED?: string } {
  if (pathInfo === '') return {};
  const path = join(directory, pathInfo);
  const below = directory.endsWith(sep) ? directory : directory + sep;
  return path.startsWith(below) ? { PATH_TRANSLATED: path } : {};
}

/** Fields that frame the message, or that are passed in another way. */
const OWN = new Set(['content-length', 'content-type', 'expect', 'te', 'trailer', 'proxy']);

function fieldParameters(headers: HeaderList): Map<string, string> {
  const found = new Map<string, string>();
  headers.forEach((key, value) => {
    // Any other character would become _ too, and so the name of another field.
    if (OWN.has(key) || !/^[a-z0-9-]+$/.test(key)) return;
    const name = `HTTP_${key.replaceAll('-', '_').toUpperCase()}`;
    const known = found.get(name);
    // RFC 9113 §8.2.3: cookie crumbs are joined.
    const separator = key === 'cookie' ? '; ' : ', ';
    found.set(name, known === undefined ? value : `${known}${separator}${value}`);
  });
  return found;
}

/**
 * Splits a decoded path after the name of the script.
 *
 * @throws HttpError 404 for a path that no script can have
 */
export function scriptOf(
  path: string,
  ends: readonly string[],
): { readonly scriptName: string; readonly pathInfo: string } {
  const [head, pathInfo] = splitAfter(path, ends);
  const names = head.split('/').filter((name) => name !== '' && name !== '.');
  if (path.includes('\0') || names.includes('..')) throw new HttpError(404, 'no path of a script');
  const slash = head.endsWith('/') && names.length > 0 ? '/' : '';
  return { scriptName: `/${names.join('/')}${slash}`, pathInfo };
}
