// The address of a database as libpq reads it: several hosts with their ports, which no parser of URLs knows.

import { HubgateError } from '../kernel/error.ts';

/** Where a database is and how it is reached, from a `postgres://` URL. It may contain a password. */
export interface PostgresAddress {
  /** Tried one after the other. A host that begins with `/` is the directory of a Unix socket. */
  readonly hosts: readonly PostgresHost[];
  /** null: the user of the process. */
  readonly user: string | null;
  readonly password: string | null;
  /** null: named as the user. */
  readonly database: string | null;
  /** null: not written. */
  readonly sslMode: SslMode | null;
  /** PEM file; `system` for the authorities of the system. */
  readonly rootCertificateFile: string | null;
  readonly clientCertificateFile: string | null;
  readonly clientKeyFile: string | null;
  /** Which server is used: one that accepts writes, one that is not a standby, or any. */
  readonly sessionAttributes: SessionAttributes;
  /** For each host. */
  readonly connectTimeoutMs: number;
  readonly applicationName: string;
  /** Settings of the session, as `-c name=value`. */
  readonly options: string | null;
}

export interface PostgresHost {
  readonly host: string;
  readonly port: number;
}

const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
type SslMode = (typeof SSL_MODES)[number];

const SESSION_ATTRIBUTES = ['read-write', 'primary', 'any'] as const;
type SessionAttributes = (typeof SESSION_ATTRIBUTES)[number];

const DEFAULT_PORT = 5432;
const DEFAULT_CONNECT_TIMEOUT_S = 3;

/** Parameters of other programs in the same URL, or of libpq, that change nothing here. */
const IGNORED = new Set(
  `channel_binding client_encoding connection_limit fallback_application_name gssencmode keepalives
  keepalives_count keepalives_idle keepalives_interval pgbouncer pool_timeout schema socket_timeout sslcompression
  sslsni`.split(/\s+/),
);

const URL_FORM =
  /^postgres(?:ql)?:\/\/(?:(?<user>[^:@/?#]*)(?::(?<password>[^@/?#]*))?@)?(?<hosts>[^@/?#]*)(?:\/(?<database>[^?#]*))?(?:\?(?<query>[^#]*))?$/i;
const HOST_FORM = /^(?:\[(?<bracketed>[0-9a-f:.%]+)\]|(?<plain>[^\s:[\]]*))(?::(?<port>\d*))?$/i;

/**
 * Reads a `postgres://` or `postgresql://` URL.
 *
 * @throws HubgateError `bad-postgres-url`, whose message never contains a part of the URL that may be secret
 */
export function parsePostgresUrl(text: string): PostgresAddress {
  if (text.trim() === '') refuse('it is empty');
  const groups = URL_FORM.exec(text.trim())?.groups;
  if (groups === undefined) refuse('it does not have the form postgres://USER@HOST:5432/DATABASE');
  const parameters = new URLSearchParams(groups['query'] ?? '');
  for (const name of parameters.keys()) {
    if (!KNOWN.has(name) && !IGNORED.has(name)) {
      refuse(`the parameter ${name.slice(0, 40)} is not known`);
    }
  }
  const written = (name: string): string | null => parameters.get(name) || null;
  const rootCertificateFile = written('sslrootcert');
  const sslMode = choice('sslmode', written('sslmode'), SSL_MODES);
  return {
    hosts: hostsOf(groups['hosts'] ?? '', parameters),
    user: decoded(groups['user']) ?? written('user'),
    password: decoded(groups['password']) ?? written('password'),
    database: decoded(groups['database']) ?? written('dbname'),
    sslMode: sslMode ?? (rootCertificateFile === 'system' ? 'verify-full' : null),
    rootCertificateFile,
    clientCertificateFile: written('sslcert'),
    clientKeyFile: written('sslkey'),
    sessionAttributes:
      choice('target_session_attrs', written('target_session_attrs'), SESSION_ATTRIBUTES) ??
      'read-write',
    connectTimeoutMs: seconds(written('connect_timeout')) * 1000,
    applicationName: written('application_name') ?? 'hubgate',
    options: written('options'),
  };
}

const KNOWN = new Set(
  `application_name connect_timeout dbname host options password port sslcert sslkey sslmode sslrootcert
  target_session_attrs user`.split(/\s+/),
);

function hostsOf(text: string, parameters: URLSearchParams): readonly PostgresHost[] {
  // As in libpq, parameters name what a URL cannot contain, such as the directory of a socket.
  const named = parameters.get('host')?.split(',') ?? [];
  const ports = parameters.get('port')?.split(',') ?? [];
  const given = named.length > 0 ? named : text.split(',');
  return given.map((each, index) => {
    const written = ports[index] ?? (ports.length === 1 ? ports[0] : undefined);
    const whole = safelyDecoded(each);
    if (whole.startsWith('/')) return { host: whole, port: portOf(written) };
    const parts = HOST_FORM.exec(whole)?.groups;
    if (parts === undefined) refuse('a host is not HOST or HOST:PORT');
    const host = parts['bracketed'] ?? parts['plain'] ?? '';
    return { host: host === '' ? 'localhost' : host, port: portOf(parts['port'] || written) };
  });
}

function portOf(text: string | undefined): number {
  if (text === undefined || text === '') return DEFAULT_PORT;
  const port = Number(text);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) refuse('a port is not 1 to 65535');
  return port;
}

/** As in libpq, 0 is no limit there; here each host has one. */
function seconds(text: string | null): number {
  if (text === null) return DEFAULT_CONNECT_TIMEOUT_S;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 60) {
    refuse('connect_timeout is a number of seconds from 1 to 60');
  }
  return value;
}

function choice<Choice extends string>(
  name: string,
  text: string | null,
  choices: readonly Choice[],
): Choice | null {
  if (text === null) return null;
  const found = choices.find((each) => each === text);
  if (found === undefined) refuse(`${name} is one of ${choices.join(', ')}`);
  return found;
}

function decoded(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : safelyDecoded(text);
}

function safelyDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    refuse('a percent sign is not followed by two hexadecimal digits');
  }
}

function refuse(why: string): never {
  throw new HubgateError('bad-postgres-url', `This is not the URL of a PostgreSQL server: ${why}`);
}
