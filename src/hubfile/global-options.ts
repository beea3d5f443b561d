import { isIP } from 'node:net';
import { parseUnixAddress, UNIX_FORM } from '../config/bind-address.ts';
import type {
  AdminOptions,
  BindAddress,
  ExternalAccount,
  GlobalOptions,
  ListenAddress,
  ListenerServerOptions,
  LogOptions,
  ServerOptions,
  UnixAddress,
} from '../config/config.ts';
import {
  defaultOnDemand,
  defaultOptions,
  MAX_WORKERS,
  onDemandMembers,
  serverMembers,
  STAGING_DIRECTORY,
  timeoutMembers,
} from '../config/shape-options.ts';
import { PORT } from '../config/units.ts';
import { isAdminOrigin, isCollectorUrl, isLogScope } from '../config/well-formed.ts';
import { Secret } from '../kernel/secret.ts';
import { Cursor, type OptionTable } from './cursor.ts';
import { logFormat } from './log-format.ts';
import { logLevel, logName, logOutput } from './log-options.ts';
import { dnsChallenge } from './dns-challenge.ts';
import { type DirectiveTable, type SiteDefaults, reordered } from './directive-table.ts';
import type { Origins, Span, Problems } from './place.ts';
import type { Line, Word } from './parser.ts';
import {
  badValue,
  bindAddresses,
  choiceOf,
  count,
  duration,
  flag,
  headerName,
  list,
  name,
  oneOf,
  optionsOf,
  ranges,
  matching,
} from './values.ts';

/** Reads the first block of a file, the one without an address. */
export function readGlobalOptions(
  line: Line,
  problems: Problems,
  origins: Origins,
  table: DirectiveTable,
): { readonly options: GlobalOptions; readonly defaults: SiteDefaults } {
  const words = [{ text: 'the global options', plain: true, replaced: false, span: line.span }];
  const block = line.block?.filter(({ unfinished }) => !unfinished) ?? null;
  const cursor = new Cursor({ ...line, words, block }, problems, origins);
  const [first, second] = (block ?? []).filter(isGatewayLog);
  if (first !== undefined && second !== undefined) {
    problems.attempt(() => new Cursor(second, problems, origins).failTwice(first.span));
  }
  let { places } = table;
  const order = (option: Cursor): Record<string, never> => {
    places = reordered(option, places, table);
    return {};
  };
  let bind: readonly BindAddress[] = [];
  const defaultBind = (option: Cursor): Record<string, never> => {
    bind = bindAddresses(option);
    return {};
  };
  const rules = { repeatable: ['log', 'order', 'servers'], unsupported: UNSUPPORTED };
  let general: Span | null = null;
  const servers: OptionTable<GlobalOptions>[string] = (option, sofar) => {
    if (option.left === 0) {
      if (general !== null) option.failTwice(general);
      general = option.span;
    }
    return readServers(option, sofar);
  };
  const own = { order, servers, default_bind: defaultBind };
  const options = cursor.options(defaultOptions, { ...OPTIONS, ...own }, rules);
  return { options, defaults: { places, bind } };
}

function isGatewayLog({ words: [option, name] }: Line): boolean {
  return option?.text === 'log' && (name === undefined || name.text === 'default');
}

const UNSUPPORTED: Readonly<Record<string, string>> = {
  cert_issuer: 'use acme_ca, or tls internal in a site',
  key_type: 'keys are ECDSA P-256',
  pki: 'the local authority needs no settings',
  default_sni: 'write the address of each site',
  shutdown_delay: 'use grace_period',
};

const NO_DNS = 'for the DNS challenge write acme_dns <provider>';

const OPTIONS: OptionTable<GlobalOptions> = {
  admin: (cursor) => ({ admin: admin(cursor) }),
  metrics: (cursor) => metrics(cursor),
  http_port: (cursor) => ({ httpPort: count(cursor, PORT) }),
  https_port: (cursor) => ({ httpsPort: count(cursor, PORT) }),
  email: (cursor, { acme }) => {
    return { acme: changed(cursor, acme, 'email', name(cursor, 'an email address')) };
  },
  acme_ca: (cursor, { acme }) => {
    const directories = list(cursor, 'the URL of an ACME directory');
    return { acme: changed(cursor, acme, 'directories', directories) };
  },
  acme_staging: (cursor, { acme }) => {
    const staging = cursor.optional()?.text ?? STAGING_DIRECTORY;
    return { acme: changed(cursor, acme, 'staging', staging) };
  },
  acme_challenges: (cursor, { acme }) => {
    const types = cursor.several('tls-alpn-01 or http-01').map((word) => {
      if (word.text === 'dns-01') badValue(cursor, word, `tls-alpn-01 or http-01 (${NO_DNS})`);
      return choiceOf(cursor, word, ['tls-alpn-01', 'http-01']);
    });
    return { acme: changed(cursor, acme, 'challenges', [...new Set(types)]) };
  },
  acme_dns: (cursor, { acme }) => {
    return { acme: changed(cursor, acme, 'dns', dnsChallenge(cursor)) };
  },
  acme_ca_root: (cursor, { acme }) => {
    return { acme: changed(cursor, acme, 'rootFile', name(cursor, 'a PEM file')) };
  },
  acme_eab: (cursor, { acme }) => {
    return { acme: changed(cursor, acme, 'externalAccount', externalAccount(cursor)) };
  },
  on_demand_tls: (cursor) => ({ onDemand: onDemand(cursor) }),
  local_certs: () => ({ localCerts: flag() }),
  skip_install_trust: () => ({ skipInstallTrust: flag() }),
  auto_https: (cursor) => ({ autoHttps: autoHttps(cursor) }),
  storage: (cursor) => ({ storage: storage(cursor) }),
  grace_period: (cursor) => ({ gracePeriodMs: duration(cursor) }),
  workers: (cursor) => ({ workers: workers(cursor) }),
  log: (cursor, { log: known, requestLogs }) =>
    cursor.left === 0 || cursor.peek()?.text === 'default'
      ? { log: gatewayLog(cursor, known) }
      : { requestLogs: [...requestLogs, requestLog(cursor, requestLogs)] },
  trace: (cursor, { trace }) => {
    oneOf(cursor, ['off']);
    return { trace: changed(cursor, trace, 'enabled', false) };
  },
  otlp: (cursor, { trace }) => {
    return { trace: changed(cursor, trace, 'otlp', url(cursor, 'the URL of an OTLP collector')) };
  },
  persist_config: (cursor) => persistConfig(cursor),
  debug: (cursor, { log: known }) => ({ log: changed(cursor, known, 'level', 'debug') }),
};

/** The settings with one field changed; its place is recorded together with those of the others. */
function changed<Settings extends object, Name extends keyof Settings & string>(
  cursor: Cursor,
  before: Settings,
  field: Name,
  value: Settings[Name],
): Settings {
  const after = { ...before, [field]: value };
  cursor.origins.change(after, before, field, cursor.span);
  return after;
}

const ADMIN_EXAMPLE = 'an address such as localhost:2029 or unix//path/to/socket, or off';
const METRICS_EXAMPLE = 'an address such as :9090 or 127.0.0.1:9090, or off';
/** The admin API can do everything, so without a host it is not open to the whole network. */
const ADMIN_HOST = 'localhost';
/** As for sites: all interfaces. */
const METRICS_HOST = '';

function admin(cursor: Cursor): AdminOptions | 'off' {
  const { admin: usual } = defaultOptions;
  const word = cursor.peek();
  if (word?.text.startsWith('fd/') === true) {
    const instead = 'write an address such as localhost:2029, or unix//path/to/socket';
    cursor.failUnsupported(word.span, `admin ${word.text.slice(0, 80)}`, instead);
  }
  const address =
    cursor.left === 0 && cursor.hasBlock && usual !== 'off'
      ? usual
      : word?.text.startsWith('unix/') === true
        ? { socket: unixAddress(cursor) }
        : listenAddress(cursor, ADMIN_EXAMPLE, ADMIN_HOST);
  if (address === 'off') return 'off';
  const options = cursor.options<{ origins: readonly string[] }>(
    { origins: [] },
    {
      origins: (option) => ({
        origins: option.several('a host').map((one) => origin(option, one)),
      }),
    },
    { unsupported: { enforce_origin: 'hubgate always enforces it' } },
  );
  return cursor.origins.of(cursor.span, { ...address, ...options });
}

/**
 * `metrics <address>` opens a listener for them. Without an address it only turns them on in a Caddyfile;
 * here they are always counted, for each site.
 */
function metrics(cursor: Cursor): Partial<Pick<GlobalOptions, 'metrics'>> {
  if (cursor.left > 0) return { metrics: listenAddress(cursor, METRICS_EXAMPLE, METRICS_HOST) };
  cursor.options({}, { per_host: () => ({}) });
  return {};
}

/** `gateway`, `gateway:2029`, or as in a Caddyfile `http://gateway:2029`. */
function origin(cursor: Cursor, word: Word): string {
  const host = word.text.toLowerCase().replace(/^(?:https?:)?\/\//, '');
  if (!isAdminOrigin(host)) badValue(cursor, word, 'a host such as gateway or gateway:2029');
  return host;
}

function listenAddress(cursor: Cursor, expected: string, usualHost: string): ListenAddress | 'off' {
  const word = cursor.argument(expected);
  if (word.text === 'off') return 'off';
  const address = hostAndPort(word.text);
  if (address === null) return badValue(cursor, word, expected);
  const host = address.host === '' ? usualHost : address.host;
  return cursor.origins.of(cursor.span, { ...address, host });
}

function hostAndPort(text: string): ListenAddress | null {
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:[\]/]*)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const isPort = Number(port) >= 0 && Number(port) <= 65_535;
  const isHost = host !== undefined && (bracketed === undefined || isIP(bracketed) === 6);
  return isHost && isPort ? { host, port: Number(port) } : null;
}

function unixAddress(cursor: Cursor): UnixAddress {
  const word = cursor.argument(UNIX_FORM);
  return parseUnixAddress(word.text) ?? badValue(cursor, word, UNIX_FORM);
}

function externalAccount(cursor: Cursor): ExternalAccount {
  cursor.block();
  const start: { keyId: string | null; macKey: Secret | null } = { keyId: null, macKey: null };
  const { keyId, macKey } = cursor.options(start, {
    key_id: (option) => ({ keyId: name(option, 'the id of the key') }),
    mac_key: (option) => ({ macKey: new Secret(name(option, 'the key')) }),
  });
  if (keyId === null || macKey === null) {
    return cursor.fail(cursor.span, 'missing-option', 'acme_eab needs key_id and mac_key');
  }
  return { keyId, macKey };
}

/**
 * Caddy stores what its API receives unless this is off, and uses it with `--resume`; its Caddyfile accepts
 * only `off`. Here, the file alone is the configuration.
 */
function persistConfig(cursor: Cursor): Record<string, never> {
  const word = cursor.peek();
  if (word?.text === 'on') {
    const instead =
      'hubgate always starts with the file: write configurations that you load by the API into it';
    cursor.failUnsupported(word.span, 'persist_config on', instead);
  }
  oneOf(cursor, ['off']);
  return {};
}

function onDemand(cursor: Cursor): GlobalOptions['onDemand'] {
  cursor.block();
  const { errors } = cursor.problems;
  const start: { ask: string | null; intervalMs: number; burst: number } = {
    ask: null,
    ...defaultOnDemand,
  };
  const { ask, intervalMs, burst } = cursor.options(
    start,
    {
      ...optionsOf(onDemandMembers),
      ask: (option) => ({ ask: url(option, 'the URL that is asked') }),
    },
    { unsupported: { permission: 'write ask <url>' } },
  );
  if (ask === null && cursor.problems.errors === errors) {
    const hint = 'without it anyone could make this gateway order certificates for any name';
    cursor.fail(cursor.span, 'missing-option', 'on_demand_tls needs ask <url>', hint);
  }
  return cursor.origins.of(cursor.span, { ask: ask ?? '', intervalMs, burst });
}

function url(cursor: Cursor, asked: string): string {
  return matching(cursor, asked, isCollectorUrl, 'an http or https URL without a user');
}

/** `storage <directory>`, or as in a Caddyfile `storage file_system <directory>`. */
function storage(cursor: Cursor): string {
  const isModule = cursor.peek()?.text === 'file_system';
  if (isModule && (cursor.left > 1 || cursor.hasBlock)) cursor.optional();
  if (!isModule || !cursor.hasBlock) return name(cursor, 'a directory');
  const start: { readonly root: string | null } = { root: null };
  const { root } = cursor.options(start, {
    root: (option) => ({ root: name(option, 'a directory') }),
  });
  return root ?? cursor.argument('root <directory>').text;
}

function workers(cursor: Cursor): GlobalOptions['workers'] {
  const word = cursor.argument('a number or auto');
  if (word.text === 'auto') return 'auto';
  const count = /^[1-9]\d*$/.test(word.text) ? Number(word.text) : Number.POSITIVE_INFINITY;
  if (count > MAX_WORKERS) badValue(cursor, word, `a number from 1 to ${MAX_WORKERS}, or auto`);
  return count;
}

const LOG: OptionTable<LogOptions> = {
  level: (option) => ({ level: logLevel(option) }),
  format: (option) => logFormat(option),
  output: (option) => logOutput(option),
};

const ALL_REQUESTS =
  'name the log: log <name> { include http.log.access … } has the requests of all sites';

/** The gateway's own log, which Caddy calls `default`. */
function gatewayLog(cursor: Cursor, known: GlobalOptions['log']): GlobalOptions['log'] {
  cursor.optional();
  const exclude = (option: Cursor) => ({ exclude: logScopes(option) });
  return cursor.options(known, { ...LOG, exclude }, { unsupported: { include: ALL_REQUESTS } });
}

/** A log with a name contains lines of sites' logs. */
function requestLog(
  cursor: Cursor,
  others: GlobalOptions['requestLogs'],
): GlobalOptions['requestLogs'][number] {
  const name = logName(cursor);
  if (others.some((log) => log.name === name)) {
    cursor.fail(cursor.span, 'duplicate-option', `a log ${name} exists already`);
  }
  const start: GlobalOptions['requestLogs'][number] = {
    ...defaultOptions.log,
    name,
    include: [],
    exclude: [],
  };
  const { errors } = cursor.problems;
  const read = cursor.options(start, {
    ...LOG,
    include: (option) => ({ include: logScopes(option) }),
    exclude: (option) => ({ exclude: logScopes(option) }),
  });
  // The invalid part may be what it includes.
  if (read.include.length > 0 || cursor.problems.errors > errors) return read;
  const hint =
    "include http.log.access or http.log.access.NAME; the gateway's own messages are in log { … }";
  return cursor.fail(cursor.span, 'missing-option', `log ${name} needs include`, hint);
}

/** Where the messages of Caddy's other loggers are found here, by the beginning of their names. */
const OTHER_LOGGERS: Readonly<Record<string, string>> = {
  'http.log.error': 'failed requests are in http.log.access: include it with level error',
  'http.handlers': 'requests are in http.log.access, and the reasons of failures in log { … }',
  'http.log': 'write http.log.access',
  http: 'write http.log.access',
  admin: 'the admin API writes to the log of the gateway: log { … }',
  tls: 'certificates are in the log of the gateway: log { … }',
  pki: 'certificates are in the log of the gateway: log { … }',
  events: 'events are in the log of the gateway: log { … }',
};

function logScopes(cursor: Cursor): readonly string[] {
  return cursor.several('http.log.access').flatMap((word) => {
    if (isLogScope(word.text)) return [word.text];
    const names = Object.keys(OTHER_LOGGERS);
    const logger = names.find((name) => `${word.text}.`.startsWith(`${name}.`));
    if (logger === undefined) {
      return badValue(cursor, word, 'http.log.access, or http.log.access.NAME');
    }
    const excludes = cursor.name === 'exclude' && logger !== 'http' && logger !== 'http.log';
    const hint = excludes
      ? 'leave it out: an access log has only lines of requests'
      : OTHER_LOGGERS[logger];
    const message = `the logger ${word.text.slice(0, 80)} does not exist in hubgate`;
    return cursor.fail(word.span, 'unsupported-option', message, hint);
  });
}

function readServers(
  cursor: Cursor,
  { listeners }: GlobalOptions,
): Pick<GlobalOptions, 'servers'> | Pick<GlobalOptions, 'listeners'> {
  const word = cursor.optional();
  if (word === undefined) return { servers: servers(cursor) };
  return { listeners: [...listeners, listener(cursor, word, listeners)] };
}

/** `servers <address> { … }`, for one listener. */
function listener(
  cursor: Cursor,
  word: Word,
  others: readonly ListenerServerOptions[],
): ListenerServerOptions {
  const address = hostAndPort(word.text);
  if (address === null || address.port === 0) {
    return badValue(cursor, word, 'the address of a listener such as :443 or 127.0.0.1:8443');
  }
  if (others.some(({ host, port }) => host === address.host && port === address.port)) {
    cursor.fail(word.span, 'duplicate-option', `servers ${word.text} is given twice`);
  }
  return cursor.origins.of(cursor.span, { ...address, servers: servers(cursor) });
}

function servers(cursor: Cursor): ServerOptions {
  cursor.block();
  return cursor.options(defaultOptions.servers, {
    ...optionsOf(serverMembers),
    trusted_proxies: (option) => {
      oneOf(option, ['static']);
      return { trustedProxies: ranges(option) };
    },
    client_ip_headers: (option) => ({
      clientIpHeaders: option
        .several('a header field')
        .map((word) => headerName(option, word).toLowerCase()),
    }),
    protocols: (option) => ({
      protocols: [
        ...new Set(
          option.several('h1 or h2').map((word) => {
            if (word.text === 'h2c') {
              const instead =
                'use HTTPS for HTTP/2 between clients and the gateway: protocols h1 h2';
              option.failUnsupported(word.span, 'h2c', instead);
            }
            if (word.text === 'h3') badValue(option, word, 'h1 or h2 (HTTP/3 is not supported)');
            return choiceOf(option, word, ['h1', 'h2']);
          }),
        ),
      ],
    }),
    timeouts: (option, sofar) => ({
      timeouts: option.options(sofar.timeouts, optionsOf(timeoutMembers)),
    }),
    proxy_protocol: (option) => ({ proxyProtocol: ranges(option) }),
    // What is always so: the rightmost address that is not trusted is the client's.
    trusted_proxies_strict: () => {
      flag();
      return {};
    },
  });
}

const OTHER_AUTO_HTTPS: Readonly<Record<string, string>> = {
  disable_certs:
    'write http://… for a site without a certificate, or tls <cert> <key> for certificate files',
  ignore_loaded_certs:
    'a site without tls uses the files of another site that cover its name; write tls { issuer acme } for a certificate of its own',
  prefer_wildcard: 'leave it out: a site without tls uses the certificate of the wildcard',
};

function autoHttps(cursor: Cursor): GlobalOptions['autoHttps'] {
  const word = cursor.peek();
  if (word !== undefined && Object.hasOwn(OTHER_AUTO_HTTPS, word.text)) {
    const hint = OTHER_AUTO_HTTPS[word.text];
    cursor.failUnsupported(word.span, `auto_https ${word.text}`, hint);
  }
  return oneOf(cursor, ['off', 'disable_redirects']);
}
