// The global options: their types, defaults and shapes.

import type { Secret } from '../kernel/secret.ts';
import {
  bindAddressText,
  bindForms,
  type BindAddress,
  type ListenAddress,
  parseBindAddress,
  parseUnixAddress,
  UNIX_FORM,
} from './bind-address.ts';
import { dnsShape } from './dns-challenge.ts';
import { LOG_FORMATS, logEncodingShape } from './log-encoding.ts';
import {
  byKind,
  defaultsOf,
  list,
  nullable,
  object,
  type Of,
  optional,
  refuse,
  section,
  type Shape,
  withDefault,
} from './shape.ts';
import { count, duration, flag, name, oneOf, orWord, secret, size, text } from './shape-values.ts';
import { DAY, MINUTE, PORT, SECOND } from './units.ts';
import {
  isAddressRange,
  isAdminOrigin,
  isCollectorUrl,
  isHeaderName,
  isLogMode,
  isLogName,
  isLogScope,
} from './well-formed.ts';

/** The meaning of `acme_staging` without a URL. */
export const STAGING_DIRECTORY = 'https://acme-staging-v02.api.letsencrypt.org/directory';

/** Most processes that can share the listeners. */
export const MAX_WORKERS = 256;

export const addressRange = text('an address range such as 10.0.0.0/8', isAddressRange);
export const headerName = text('the name of a header field', isHeaderName);
const collectorUrl = text('an http or https URL without a user', isCollectorUrl);

const host = name('a host');
const port = count({ ...PORT, min: 0 });
const hostOrAll = withDefault(text('an address, or nothing'), '');
/** As a program has them; in a file, they are texts. */
const parsedBindAddress = byKind<BindAddress>({
  host: object({ host: name('an IP address or a host name') }),
  unix: object({ path: name('a path'), mode: withDefault(count({ max: 0o777 }), 0o600) }),
  fd: object({ fd: count({ min: 3 }) }),
});

function bound<Address extends BindAddress>(
  parse: (text: string) => Address | null,
  forms: (text: string) => string,
): Shape<Address> {
  return {
    read(node, reading) {
      const isParsed = reading.inClear && node.value instanceof Map;
      const text = isParsed ? bindAddressText(parsedBindAddress.read(node, reading)) : node.value;
      if (typeof text !== 'string') return refuse(node, forms(''));
      return parse(text) ?? refuse(node, forms(text));
    },
    write: bindAddressText,
    schema: () => ({ type: 'string', description: forms('') }),
  };
}

export const bindAddress = bound(parseBindAddress, bindForms);

const adminOrigin = text('a host such as gateway or gateway:2029, in lower case', isAdminOrigin);
const adminMembers = {
  /**
   * Further hosts with which it may be addressed, in lower case; without a port, any port is accepted. A Unix
   * socket accepts any host if there are none.
   */
  origins: withDefault(list(adminOrigin), []),
};
const adminPortMembers = { host: withDefault(host, 'localhost'), port, ...adminMembers };
const adminSocketMembers = { socket: bound(parseUnixAddress, () => UNIX_FORM), ...adminMembers };

export type AdminOptions = Of<typeof adminPortMembers> | Of<typeof adminSocketMembers>;

const adminPort = object(adminPortMembers);
const adminSocket = object(adminSocketMembers);

const admin: Shape<AdminOptions> = {
  read: (node, reading) =>
    node.value instanceof Map && node.value.has('socket')
      ? adminSocket.read(node, reading)
      : adminPort.read(node, reading),
  write: (value, writing) =>
    'socket' in value ? adminSocket.write(value, writing) : adminPort.write(value, writing),
  schema: (definitions) => ({
    anyOf: [adminPort.schema(definitions), adminSocket.schema(definitions)],
  }),
};

const rollMembers = {
  /** Bytes. */
  size: withDefault(size({ min: 1 }), 100 * 1024 * 1024),
  /** Number of rolled files that are kept. */
  keep: withDefault(count({ min: 1 }), 10),
  /** 0: no limit on their age. */
  keepForMs: withDefault(duration(), 90 * DAY),
  /** 0: no limit on its age. */
  intervalMs: withDefault(duration(), 0),
};

/** When a log file is renamed and a new one begun, and how long renamed files are kept. */
export interface RollOptions extends Of<typeof rollMembers> {}

/** The same as in Caddy, so that an unattended log does not fill the disk. */
export const defaultRoll: RollOptions = defaultsOf(rollMembers);

export const logMembers = {
  level: withDefault(oneOf('debug', 'info', 'warn', 'error'), 'info'),
  format: withDefault(oneOf(...LOG_FORMATS), 'auto'),
  encoding: logEncodingShape,
  /** `stderr`, `stdout` or the path of a file. */
  output: withDefault(name('stderr, stdout or the path of a file'), 'stderr'),
  /** When a new file is begun; null: never. */
  roll: withDefault(nullable<RollOptions>(object(rollMembers)), defaultRoll),
  /** Permissions of a new file, in octal. Other users may have read access to a log, but not write access. */
  mode: withDefault(text('a mode such as 0640', isLogMode), '0600'),
};

export interface LogOptions extends Of<typeof logMembers> {}

const logScope = text('http.log.access, or http.log.access.NAME', isLogScope);

const gatewayLogMembers = {
  ...logMembers,
  /** The sites' logs whose lines it leaves out, as in {@link RequestLogOptions}. */
  exclude: withDefault(list(logScope), []),
};

/** The gateway's own log, which also has the lines of sites' logs without an output. */
interface GatewayLogOptions extends Of<typeof gatewayLogMembers> {}

const requestLogMembers = {
  ...logMembers,
  name: text('the name of a log', isLogName),
  /** `http.log.access` means all logs of sites, `http.log.access.NAME` the one with that name. */
  include: list(logScope, { min: 1 }),
  exclude: withDefault(list(logScope), []),
};

/** A log for requests of several sites, selected by the names of the sites' logs. */
export interface RequestLogOptions extends Of<typeof requestLogMembers> {}

/** Ways to prove control of a name other than DNS. */
export const challengesShape = list(oneOf('tls-alpn-01', 'http-01'), { min: 1 });

export interface ExternalAccount {
  readonly keyId: string;
  readonly macKey: Secret;
}

/** What each ACME issuer of a site can set as well. */
export const acmeAccountMembers = {
  /** PEM file of a private directory's root. */
  rootFile: optional(name('a PEM file')),
  /** The key of an account that was created by other means. */
  externalAccount: optional<ExternalAccount>(
    object({ keyId: name('the id of the key'), macKey: secret }),
  ),
};

const acmeDirectory = name('the URL of an ACME directory');
const acmeMembers = {
  email: optional(name('an email address')),
  /** Directory URLs in the order of the attempts. */
  directories: withDefault(list(acmeDirectory, { min: 1 }), [
    'https://acme-v02.api.letsencrypt.org/directory',
  ]),
  /** Directory URL of an authority for a dry run before these; null for none. */
  staging: optional(acmeDirectory),
  /** Ways to prove control of a name, in the order of the attempts. */
  challenges: withDefault(challengesShape, ['tls-alpn-01', 'http-01']),
  ...acmeAccountMembers,
  /** How names, including wildcards, are proven with DNS instead; null: with `challenges`. */
  dns: optional(dnsShape),
};

export interface AcmeOptions extends Of<typeof acmeMembers> {}

export const onDemandMembers = {
  /** URL that is requested with `?domain=<name>`: 2xx allows the name. */
  ask: collectorUrl,
  /** At most `burst` orders begin within this time; 0: no limit. */
  intervalMs: withDefault(duration(), 0),
  burst: withDefault(count({ min: 1 }), 1),
};

export interface OnDemandOptions extends Of<typeof onDemandMembers> {}

export const defaultOnDemand = defaultsOf(onDemandMembers);

const traceMembers = {
  /** Whether requests to the app get a `traceparent`, and spans are created. */
  enabled: withDefault(flag, true),
  /** URL of a collector that receives a span for each request, over OTLP; null: none. */
  otlp: optional(collectorUrl),
};

/** How requests that are part of a trace are handled (W3C Trace Context). */
interface TraceOptions extends Of<typeof traceMembers> {}

export const timeoutMembers = {
  /** Time for the header section of a request, and for a PROXY protocol header; 0 means no limit. */
  readHeaderMs: withDefault(duration(), 10 * SECOND),
  /** Longest silence while a body is read; 0 means no limit. */
  readBodyMs: withDefault(duration(), MINUTE),
  /** How long a keep-alive connection may wait for a request. */
  idleMs: withDefault(duration(), 2 * MINUTE),
};

interface ServerTimeouts extends Of<typeof timeoutMembers> {}

export const serverMembers = {
  /** CIDR ranges whose forwarded headers are trusted. */
  trustedProxies: withDefault(list(addressRange), []),
  /** Header fields, in lower case, that contain the client's address if the peer is a trusted proxy. */
  clientIpHeaders: withDefault(
    list(text('a header field in lower case', isLowerCaseField), { min: 1 }),
    ['x-forwarded-for'],
  ),
  protocols: withDefault(list(oneOf('h1', 'h2'), { min: 1 }), ['h1', 'h2']),
  /** Bytes of a request's header section; a 64 KiB token and the other fields must fit. */
  maxHeaderSize: withDefault(size({ min: 1 }), 80 * 1024),
  timeouts: section<ServerTimeouts>(timeoutMembers),
  /** Whether upstreams get the path as the client spelled it, instead of the one that matchers use. */
  forwardRawPath: withDefault(flag, false),
  /** Whether fields with `_` in their names stay in requests. */
  underscoresInHeaders: withDefault(flag, false),
  /** CIDR ranges of peers that must send a PROXY protocol header. */
  proxyProtocol: withDefault(list(addressRange), []),
  /** Whether access logs contain credentials in header fields in clear. */
  logCredentials: withDefault(flag, false),
  /** Open connections of each listener; 0 means no limit, here and below. */
  maxConnections: withDefault(count(), 0),
  /** Open connections of one client address to each listener. */
  maxConnectionsPerClient: withDefault(count(), 0),
};

export interface ServerOptions extends Of<typeof serverMembers> {}

const servers = section<ServerOptions>(serverMembers);
const listenerMembers = {
  /** In the format of `bind`; empty: all interfaces. */
  host: hostOrAll,
  port: count(PORT),
  servers: object<ServerOptions>(serverMembers),
};

/** The options of one listener. The general `servers` options do not apply to it. */
export interface ListenerServerOptions extends Of<typeof listenerMembers> {}

const optionsMembers = {
  /** Address of the admin API, or `off`. */
  admin: withDefault(orWord('off', admin), { host: 'localhost', port: 2029, origins: [] }),
  /**
   * Where metrics and health, and nothing else, are served: any client can reach it. An empty host stands for all
   * interfaces.
   */
  metrics: withDefault(orWord('off', object<ListenAddress>({ host: hostOrAll, port })), 'off'),
  httpPort: withDefault(count(PORT), 80),
  httpsPort: withDefault(count(PORT), 443),
  acme: section<AcmeOptions>(acmeMembers),
  /** The service that decides which names `on_demand` sites may have; null: none are allowed. */
  onDemand: optional<OnDemandOptions>(object(onDemandMembers)),
  /** Whether every site gets a certificate of the local authority. */
  localCerts: withDefault(flag, false),
  skipInstallTrust: withDefault(flag, false),
  autoHttps: withDefault(oneOf('on', 'off', 'disable_redirects'), 'on'),
  /** Directory of certificates, keys and history; null means the platform's default. */
  storage: optional(name('a directory')),
  gracePeriodMs: withDefault(duration(), 30 * SECOND),
  /**
   * Processes that share the listeners; `auto`: one for each processor; null: one, or several where the machine
   * has the processors and the memory, and nothing of the configuration belongs to one process.
   */
  workers: optional(orWord('auto', count({ min: 1, max: MAX_WORKERS }))),
  log: section<GatewayLogOptions>(gatewayLogMembers),
  requestLogs: withDefault(list<RequestLogOptions>(object(requestLogMembers)), []),
  trace: section<TraceOptions>(traceMembers),
  /**
   * Files that no site serves, wherever they are. The files of the configuration are added when it is loaded.
   */
  hiddenFiles: withDefault(list(name('a file')), []),
  servers,
  /** Options of single listeners, which replace `servers`. */
  listeners: withDefault(list<ListenerServerOptions>(object(listenerMembers)), []),
};

export interface GlobalOptions extends Of<typeof optionsMembers> {}

/** The global options of a configuration that does not set any. */
export const defaultOptions: GlobalOptions = defaultsOf(optionsMembers);

export const optionsShape = section<GlobalOptions>(optionsMembers);

function isLowerCaseField(field: string): boolean {
  return isHeaderName(field) && field === field.toLowerCase();
}
