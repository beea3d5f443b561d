import {
  bindAddressText,
  bindForms,
  parseBindAddress,
  parseUnixAddress,
  UNIX_FORM,
} from './bind-address.ts';
import type {
  AdminOptions,
  BindAddress,
  GlobalOptions,
  ListenAddress,
  ListenerServerOptions,
  RequestLogOptions,
  RollOptions,
} from './config.ts';
import { defaultOnDemand, defaultOptions, defaultRoll, MAX_WORKERS } from './defaults.ts';
import { dnsShape } from './dns-challenge.ts';
import { LOG_FORMATS, logEncodingShape } from './log-encoding.ts';
import { byKind, list, nullable, object, refuse, type Shape } from './shape.ts';
import { count, duration, flag, name, oneOf, orWord, secret, size, text } from './shape-values.ts';
import {
  isAddressRange,
  isAdminOrigin,
  isCollectorUrl,
  isHeaderName,
  isLogMode,
  isLogName,
  isLogScope,
} from './well-formed.ts';

const PORT = { min: 1, max: 65_535 };

export const addressRange = text('an address range such as 10.0.0.0/8', isAddressRange);
export const headerName = text('the name of a header field', isHeaderName);

const host = name('a host');
const port = count({ min: 0, max: 65_535 });
const hostOrAll = text('an address, or nothing');
const metricsAddress = object<ListenAddress>({ host: hostOrAll, port }, { host: '' });
/** As a program has them; in a file, they are texts. */
const parsedBindAddress = byKind<BindAddress>({
  host: object({ host: name('an IP address or a host name') }),
  unix: object({ path: name('a path'), mode: count({ max: 0o777 }) }, { mode: 0o600 }),
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

type AdminSocket = Extract<AdminOptions, { readonly socket: unknown }>;

const origins = list(text('a host such as gateway or gateway:2029, in lower case', isAdminOrigin));
const adminPort = object<Exclude<AdminOptions, AdminSocket>>(
  { host, port, origins },
  { host: 'localhost', origins: [] },
);
const adminSocket = object<AdminSocket>(
  { socket: bound(parseUnixAddress, () => UNIX_FORM), origins },
  { origins: [] },
);
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

/** When log files are renamed. */
export const rollShape = object<RollOptions>(
  {
    size: size({ min: 1 }),
    keep: count({ min: 1 }),
    keepForMs: duration(),
    intervalMs: duration(),
  },
  defaultRoll,
);

/** Other users may have read access to a log, but not write access. */
export const logMode = text('a mode such as 0640', isLogMode);

const log = {
  level: oneOf('debug', 'info', 'warn', 'error'),
  format: oneOf(...LOG_FORMATS),
  encoding: logEncodingShape,
  output: name('stderr, stdout or the path of a file'),
  roll: nullable(rollShape),
  mode: logMode,
};

const logScope = text('http.log.access, or http.log.access.NAME', isLogScope);

/** Ways to prove control of a name other than DNS. */
export const challengesShape = list(oneOf('tls-alpn-01', 'http-01'), { min: 1 });
/** The key of an account that was created by other means. */
export const externalAccountShape = nullable(
  object<NonNullable<GlobalOptions['acme']['externalAccount']>>({
    keyId: name('the id of the key'),
    macKey: secret,
  }),
);

const acme = object<GlobalOptions['acme']>(
  {
    email: nullable(name('an email address')),
    directories: list(name('the URL of an ACME directory'), { min: 1 }),
    staging: nullable(name('the URL of an ACME directory')),
    challenges: challengesShape,
    rootFile: nullable(name('a PEM file')),
    externalAccount: externalAccountShape,
    dns: nullable(dnsShape),
  },
  defaultOptions.acme,
);

const servers = object<GlobalOptions['servers']>(
  {
    trustedProxies: list(addressRange),
    clientIpHeaders: list(text('a header field in lower case', isLowerCaseField), { min: 1 }),
    protocols: list(oneOf('h1', 'h2'), { min: 1 }),
    maxHeaderSize: size({ min: 1 }),
    timeouts: object(
      { readHeaderMs: duration(), readBodyMs: duration(), idleMs: duration() },
      defaultOptions.servers.timeouts,
    ),
    forwardRawPath: flag,
    underscoresInHeaders: flag,
    proxyProtocol: list(addressRange),
    logCredentials: flag,
    maxConnections: count(),
    maxConnectionsPerClient: count(),
  },
  defaultOptions.servers,
);

const workers: Shape<GlobalOptions['workers']> = nullable(
  orWord('auto', count({ min: 1, max: MAX_WORKERS })),
);

export const optionsShape: Shape<GlobalOptions> = object(
  {
    admin: orWord('off', admin),
    metrics: orWord('off', metricsAddress),
    httpPort: count(PORT),
    httpsPort: count(PORT),
    acme,
    onDemand: nullable(
      object<NonNullable<GlobalOptions['onDemand']>>(
        {
          ask: text('an http or https URL without a user', isCollectorUrl),
          intervalMs: duration(),
          burst: count({ min: 1 }),
        },
        defaultOnDemand,
      ),
    ),
    localCerts: flag,
    skipInstallTrust: flag,
    autoHttps: oneOf('on', 'off', 'disable_redirects'),
    storage: nullable(name('a directory')),
    gracePeriodMs: duration(),
    workers,
    log: object<GlobalOptions['log']>({ ...log, exclude: list(logScope) }, defaultOptions.log),
    requestLogs: list(
      object<RequestLogOptions>(
        {
          ...log,
          name: text('the name of a log', isLogName),
          include: list(logScope, { min: 1 }),
          exclude: list(logScope),
        },
        { ...defaultOptions.log, exclude: [] },
      ),
    ),
    trace: object<GlobalOptions['trace']>(
      {
        enabled: flag,
        otlp: nullable(text('an http or https URL without a user', isCollectorUrl)),
      },
      defaultOptions.trace,
    ),
    hiddenFiles: list(name('a file')),
    servers,
    listeners: list(
      object<ListenerServerOptions>({ host: hostOrAll, port: count(PORT), servers }, { host: '' }),
    ),
  },
  defaultOptions,
);

function isLowerCaseField(field: string): boolean {
  return isHeaderName(field) && field === field.toLowerCase();
}
