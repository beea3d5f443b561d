import type { Exchange, ResponseStream, StreamListener } from '../http/exchange.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { LogFields, Logger } from '../kernel/log.ts';
import { isSecretName, withoutSecretParts } from '../kernel/secret.ts';
import type { LogFormat } from '../config/log-encoding.ts';
import { HIDDEN } from './request-secrets.ts';
import type { SiteHandler } from './site.ts';

export interface AccessLog {
  readonly name: string | null;
  /** Whether it includes a request that is not assigned to a log by name. */
  readonly concerns: (exchange: Exchange) => boolean;
  /** Whether it includes only requests that are assigned to it by name. */
  readonly onlyNamed: boolean;
  readonly writers: readonly AccessLogWriter[];
}

interface AccessLogWriter {
  readonly log: Logger;
  /** `caddy` has other fields than the others. */
  readonly format: LogFormat;
}

/** The name of a site's log among all logs. */
export function loggerName(name: string | null): string {
  return name === null ? 'http.log.access' : `http.log.access.${name}`;
}

interface AccessLogging {
  readonly logs: readonly AccessLog[];
  readonly clock: Clock;
  /** Whether header fields with credentials are written in clear. */
  readonly logCredentials: boolean;
}

/**
 * Writes a line for each exchange when it has ended. For an exchange that stays open (an event stream,
 * another protocol), it also writes one at the start. A reader of the log must not be able to act for a user,
 * so tokens and cookies are left out. The names of the fields are those of OpenTelemetry.
 *
 * @see https://opentelemetry.io/docs/specs/semconv/http/http-spans/
 */
export function logAccess(
  inner: SiteHandler,
  { logs, clock, logCredentials }: AccessLogging,
): SiteHandler {
  const requestFields = (exchange: Exchange): LogFields => fieldsOf(exchange, logCredentials);
  const needsHead = logs.some(({ writers }) => writers.some(isOfCaddy));
  return async (exchange) => {
    const began = clock.monotonic();
    let isLong = false;
    let response: HeaderList | null = null;
    const over = (stream: EndedStream | null): void => {
      const writers = writersFor(exchange, logs);
      if (writers.length === 0) return;
      const duration = seconds(clock.monotonic() - began);
      const isBroken = exchange.status >= 500;
      const plain = writers.filter((writer) => !isOfCaddy(writer));
      if (plain.length > 0) {
        const line = {
          ...requestFields(exchange),
          ...responseFields(exchange),
          ...appendedFields(exchange),
          ...(stream === null ? {} : streamFields(stream)),
          'http.server.request.duration': duration,
        };
        const said = isLong ? 'stream ended' : 'handled request';
        for (const { log } of plain) log[isBroken ? 'error' : 'info'](said, line);
      }
      for (const { log, logger } of writers.filter(isOfCaddy)) {
        const line = {
          logger,
          ...requestOfCaddy(exchange, logCredentials),
          duration,
          size: stream?.bytes ?? exchange.responseBytes,
          status: exchange.status,
          resp_headers: headersOfCaddy(response, logCredentials),
          ...appendedFields(exchange),
        };
        log[isBroken ? 'error' : 'info']('handled request', line);
      }
    };
    exchange.onHead(({ status, headers }) => {
      if (needsHead) response = headers;
      if (!staysOpen(exchange, status, headers)) return undefined;
      const writers = writersFor(exchange, logs).filter((writer) => !isOfCaddy(writer));
      if (writers.length === 0) return undefined;
      isLong = true;
      const line = {
        ...requestFields(exchange),
        ...appendedFields(exchange),
        'http.response.status_code': status,
        'http.server.request.duration': seconds(clock.monotonic() - began),
      };
      for (const { log } of writers) log.info('A stream began', line);
      return undefined;
    });
    const streams = watchStreams(exchange, over);
    try {
      await inner(exchange);
    } finally {
      const ended = (): void => over(null);
      if (!streams.begun && exchange.awaitsSent?.(ended) !== true) ended();
    }
  };
}

/** A writer, and the name of the log for which it writes a line. */
interface MeantWriter extends AccessLogWriter {
  readonly logger: string;
}

function isOfCaddy({ format }: AccessLogWriter): boolean {
  return format === 'caddy';
}

/** Each writer once, even if several logs use it. */
function writersFor(exchange: Exchange, logs: readonly AccessLog[]): readonly MeantWriter[] {
  const { variables } = exchange;
  if (variables.has(SKIPPED)) return [];
  const names = variables.get(NAMES)?.split(' ') ?? null;
  const meant = logs.filter(({ name, concerns, onlyNamed }) =>
    names === null ? !onlyNamed && concerns(exchange) : name !== null && names.includes(name),
  );
  const found = new Map<Logger, MeantWriter>();
  for (const { name, writers } of meant) {
    for (const writer of writers) {
      if (!found.has(writer.log)) found.set(writer.log, { ...writer, logger: loggerName(name) });
    }
  }
  return [...found.values()];
}

function staysOpen({ method, upgrade }: Exchange, status: number, headers: HeaderList): boolean {
  if (method === 'HEAD' || status >= 300) return false;
  if (upgrade !== null) return true;
  return headers.get('content-type')?.toLowerCase().startsWith('text/event-stream') ?? false;
}

function fieldsOf(exchange: Exchange, logCredentials: boolean): LogFields {
  const [path = '', query] = shownTarget(exchange).split(/\?(.*)/s);
  const { trace, tlsVersion, httpVersion } = exchange;
  return {
    request: exchange.id,
    ...(trace === null ? {} : { trace_id: trace.traceId, span_id: trace.spanId }),
    'http.request.method': exchange.originalMethod,
    'url.scheme': exchange.scheme,
    'server.address': exchange.originalHost.slice(0, MAX_SHOWN),
    'url.path': path,
    ...(query === undefined ? {} : { 'url.query': query }),
    'client.address': exchange.clientAddress,
    'network.peer.address': exchange.remoteAddress,
    'network.protocol.name': 'http',
    'network.protocol.version': httpVersion === '2.0' ? '2' : httpVersion,
    ...(tlsVersion === null ? {} : { 'tls.protocol.version': tlsVersion.replace('TLSv', '') }),
    ...shownHeaders(exchange.headers, logCredentials, (key) => `http.request.header.${key}`),
  };
}

function responseFields({ status, responseBytes, upstream }: Exchange): LogFields {
  return {
    'http.response.status_code': status,
    'http.response.body.size': responseBytes,
    ...(upstream === null
      ? {}
      : {
          'hubgate.upstream.address': upstream.hostport,
          'hubgate.upstream.duration': seconds(upstream.latencyMs),
        }),
  };
}

/** Rounded to the microsecond. */
function seconds(ms: number): number {
  return Math.round(ms * 1000) / 1_000_000;
}

/** What a stream has sent, and why it ended. */
interface EndedStream {
  readonly bytes: number;
  readonly events: number;
  readonly reason: string | null;
}

function streamFields({ bytes, events, reason }: EndedStream): LogFields {
  return {
    'http.response.body.size': bytes,
    'hubgate.stream.events': events,
    ...(reason === null ? {} : { 'hubgate.stream.end_reason': reason }),
  };
}

/** A stream stays open long after its response has begun, so it reports its end itself. */
function watchStreams(
  exchange: Exchange,
  over: (stream: EndedStream) => void,
): { readonly begun: boolean } {
  const state = { begun: false };
  const open = exchange.stream.bind(exchange);
  exchange.stream = (head) => new WatchedStream(open(head), state, over);
  return state;
}

class WatchedStream implements ResponseStream, StreamListener {
  readonly framing: ResponseStream['framing'];
  readonly #stream: ResponseStream;
  readonly #state: { begun: boolean };
  readonly #over: (stream: EndedStream) => void;
  #listener: StreamListener | null = null;
  #bytes = 0;

  constructor(
    stream: ResponseStream,
    state: { begun: boolean },
    over: (stream: EndedStream) => void,
  ) {
    this.framing = stream.framing;
    this.#stream = stream;
    this.#state = state;
    this.#over = over;
  }

  get bufferedBytes(): number {
    return this.#stream.bufferedBytes;
  }

  get events(): number {
    return this.#listener?.events ?? 0;
  }

  get ended(): string | null {
    return this.#listener?.ended ?? null;
  }

  write(framed: Buffer): boolean {
    this.#bytes += framed.length;
    return this.#stream.write(framed);
  }

  listen(listener: StreamListener): void {
    this.#state.begun = true;
    this.#listener = listener;
    this.#stream.listen(this);
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  drained(): void {
    this.#listener?.drained();
  }

  closed(): void {
    this.#listener?.closed();
    this.#over({ bytes: this.#bytes, events: this.events, reason: this.ended });
  }
}

/**
 * The members of a line of Caddy. The size of the request's body and the cipher are not known here.
 *
 * @see https://caddyserver.com/docs/logging
 */
function requestOfCaddy(exchange: Exchange, logCredentials: boolean): LogFields {
  const { httpVersion, tlsVersion } = exchange;
  const tls = {
    version: tlsVersion === 'TLSv1.3' ? 0x03_04 : 0x03_03,
    proto: httpVersion === '2.0' ? 'h2' : 'http/1.1',
  };
  return {
    request: {
      remote_ip: exchange.remoteAddress,
      remote_port: String(exchange.remotePort),
      client_ip: exchange.clientAddress,
      proto: `HTTP/${httpVersion}`,
      method: exchange.originalMethod,
      host: exchange.originalHost.slice(0, MAX_SHOWN),
      uri: shownTarget(exchange),
      headers: headersOfCaddy(exchange.headers, logCredentials),
      ...(tlsVersion === null ? {} : { tls }),
    },
    user_id: exchange.identity.user ?? '',
    // It is in error responses, and in messages of the gateway about the request.
    request_id: exchange.id,
  };
}

/** By names as Go writes them, without `Host`, which is a member of its own. */
function headersOfCaddy(
  headers: HeaderList | null,
  logCredentials: boolean,
): Record<string, readonly string[]> {
  const shown = shownHeaders(headers, logCredentials, (key) =>
    key.replaceAll(/(?:^|-)[a-z]/g, (initial) => initial.toUpperCase()),
  );
  delete shown['Host'];
  return shown;
}

function shownTarget({ originalTarget }: Exchange): string {
  return withoutSecretParts(originalTarget.slice(0, MAX_SHOWN), HIDDEN);
}

/** A `Referer` and similar fields may contain the URL of the address bar. */
function shownHeaders(
  headers: HeaderList | null,
  logCredentials: boolean,
  nameFor: (key: string) => string,
): Record<string, readonly string[]> {
  const shown: Record<string, string[]> = Object.create(null);
  for (const [name, value] of headers ?? []) {
    const key = name.toLowerCase();
    // It is the gateway's own, and its parts are logged already.
    if (key === 'traceparent') continue;
    const isSecret = isSecretName(key);
    const shownValue = fieldText(value).slice(0, MAX_SHOWN);
    const text =
      isSecret && logCredentials
        ? shownValue
        : isSecret
          ? HIDDEN
          : withoutSecretParts(shownValue, HIDDEN);
    (shown[nameFor(key)] ??= []).push(text);
  }
  return shown;
}

/** Longest target or value in a line, in characters. */
export const MAX_SHOWN = 1024;

const SKIPPED = 'log_skip';
const NAMES = 'log_name';
/** Followed by the name of a field. No placeholder contains a space. */
const APPENDED = 'log_append ';

/** Keeps a request out of the access logs. */
export function skipLog({ variables }: Exchange): void {
  variables.set(SKIPPED, 'true');
}

/** Assigns the request to the logs with these names, and to no other. */
export function nameLogs({ variables }: Exchange, names: readonly string[]): void {
  variables.set(NAMES, names.join(' '));
}

/** Adds a field to the lines of the request. */
export function appendToLog({ variables }: Exchange, field: string, value: string): void {
  variables.set(APPENDED + field, value);
}

function appendedFields({ variables }: Exchange): LogFields {
  const fields: Record<string, string> = {};
  for (const [name, value] of variables) {
    if (name.startsWith(APPENDED)) fields[name.slice(APPENDED.length)] = value;
  }
  return fields;
}
