import { realpathSync } from 'node:fs';
import type { FastcgiConfig, ReverseProxyConfig } from './proxy-config.ts';
import { HttpError } from '../http/errors.ts';
import { isHost, wantBody } from '../http/field-values.ts';
import type { Exchange, Expand, LeasedBody, WaitLimit } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { type ApplyOperations, compileOperations } from '../http/header-operations.ts';
import { rootOf } from '../http/request-path.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';
import type { UpstreamAddress } from './address.ts';
import { type FastcgiRequest, forwardByFastcgi } from './fastcgi/fastcgi.ts';
import { scriptOf, scriptParameters } from './fastcgi/parameters.ts';
import type { Connections } from './forwarding.ts';
import type { UpstreamQuestion } from './shareable.ts';
import { type ForwardedFields, upstreamRequestFields } from './header-fields.ts';
import type { UpstreamResponse } from './response.ts';
import { type Tunnels, wantsWebSocket } from './tunnels.ts';

interface ForwarderOptions extends ForwardedFields {
  readonly clock: Clock;
  readonly expand: Expand;
  /** The target of requests to upstreams; null: the client's target. */
  readonly target: ((exchange: Exchange) => string) | null;
  readonly tunnels: Tunnels;
  /** PEM certificates that HTTPS is verified against; null: those of the platform. */
  readonly trustPool: string | null;
  /** Upstreams get a request of the gateway's own, without the body and the upgrade of the client's. */
  readonly isOnlyAsked: boolean;
}

/** Fields in which the upstream gets the address of the client. */
const ADDRESS_FIELDS = ['x-forwarded-for', 'forwarded'];

/** One attempt at one upstream. */
interface Attempt {
  readonly exchange: Exchange;
  readonly address: UpstreamAddress;
  readonly connections: Connections;
  /** See {@link Forwarder.bodyOf}. */
  readonly body: LeasedBody | null;
  /** The length of a body that has been read to its end; null if it has not. */
  readonly bodyLength: number | null;
  /** See `ForwardRequest`. */
  readonly isRepeated: boolean;
}

/**
 * Refuses requests that cannot be sent to any upstream.
 *
 * @throws HttpError 400, 501
 */
export function refuseUnforwardable(exchange: Exchange): void {
  if (exchange.upgrade !== null) {
    if (wantsWebSocket(exchange)) return;
    // Implementations differ in where such a body ends and the data of the other protocol begins.
    if (exchange.hasBody) throw new HttpError(400, 'an upgrade with a body');
  }
  if (exchange.method === 'CONNECT') throw new HttpError(501, 'CONNECT is not forwarded');
  if (!exchange.target.startsWith('/')) throw new HttpError(400, 'a target without path');
}

/** Converts an exchange to a request to an upstream, and sends it in the way that the upstream requires. */
export class Forwarder {
  readonly #config: ReverseProxyConfig;
  readonly #options: ForwarderOptions;
  readonly #headerUp: ApplyOperations;
  readonly #stall: WaitLimit | null;

  constructor(config: ReverseProxyConfig, options: ForwarderOptions) {
    this.#config = config;
    this.#options = options;
    this.#headerUp = compileOperations(config.headerUp, 'request');
    this.#stall = writeLimit(config.transport.writeTimeoutMs, options.clock);
  }

  methodOf({ method }: Exchange): string {
    return this.#config.method ?? method;
  }

  /**
   * Half a body is worse than none, and an empty one in its place would pass for the whole.
   *
   * @throws HttpError 502 if an earlier upstream has received some of the body
   */
  refuseReadBody(exchange: Exchange): void {
    if (!this.#sendsBody(exchange) || exchange.isBodyWhole || exchange.abandoned) return;
    throw new HttpError(502, 'the body of the request was sent to another upstream');
  }

  #sendsBody({ hasBody }: Exchange): boolean {
    const { method } = this.#config;
    return hasBody && !this.#options.isOnlyAsked && method !== 'GET' && method !== 'HEAD';
  }

  /** Returns the client's body for one attempt; null if none is sent. */
  bodyOf(exchange: Exchange): LeasedBody | null {
    if (!this.#sendsBody(exchange)) return null;
    return exchange.lendBody({
      // RFC 9110 §10.1.1: the client sends its body when the upstream asks for it.
      onWanted: () => wantBody(exchange),
      stall: this.#stall,
    });
  }

  /**
   * Resolves when the response is complete.
   *
   * @throws HttpError at once, for a request that cannot be sent
   * @throws ForwardError, HttpError as {@link Connections.forward}
   */
  forward(attempt: Attempt, response: UpstreamResponse): Promise<void> {
    const { exchange, address, connections, body, bodyLength, isRepeated } = attempt;
    const { clock, trustPool, tunnels } = this.#options;
    const headers = this.#fieldsOf(exchange, address, body !== null);
    if (!this.#options.isOnlyAsked) {
      for (const name of ADDRESS_FIELDS) exchange.dependsOn?.('client', name);
    }
    // The client has sent all of it, or has been asked for it.
    if (bodyLength !== null || this.#config.requestBuffers > 0) headers.delete('expect');
    const declared = exchange.headers.get('content-length') ?? null;
    const isKnown = bodyLength !== null && !headers.has('trailer');
    const contentLength = declared ?? (isKnown ? String(bodyLength) : null);
    const { fastcgi, transport: settings } = this.#config;
    if (fastcgi !== null) {
      const script = this.#scriptRequest(fastcgi, exchange, headers, body);
      const request = { ...script, contentLength };
      return forwardByFastcgi({ address, settings }, request, response);
    }
    const path = this.#targetOf(exchange);
    if (!this.#options.isOnlyAsked && exchange.upgrade !== null && wantsWebSocket(exchange)) {
      const target = { address, settings, trustPool, headers, path, clock };
      return tunnels.open(exchange, exchange.upgrade, target, response);
    }
    const request = {
      method: this.methodOf(exchange),
      target: path,
      headers,
      body,
      contentLength,
      trailers: body === null ? noTrailers : () => this.#trailersOf(exchange),
      client: exchange,
      clock,
      isRepeated,
    };
    return connections.forward(request, response);
  }

  #trailersOf(exchange: Exchange): HeaderList {
    const list = exchange.trailers();
    // A field that is removed from the head must not arrive in the trailers.
    this.#changeFields(list, exchange);
    return list;
  }

  #changeFields(fields: HeaderList, exchange: Exchange): void {
    if (this.#config.headerUp.length === 0) return;
    const { expand } = this.#options;
    this.#headerUp(fields, (text, name) =>
      expand(text, exchange, undefined, undefined, name.toLowerCase()),
    );
  }

  /** Everything that an upstream would see of an exchange. */
  questionOf(exchange: Exchange, address: UpstreamAddress): UpstreamQuestion {
    const headers = this.#fieldsOf(exchange, address, exchange.hasBody);
    const { fastcgi } = this.#config;
    const parameters =
      fastcgi === null
        ? new Map<string, string>()
        : this.#scriptRequest(fastcgi, exchange, headers, null).parameters;
    return {
      method: this.methodOf(exchange),
      target: this.#targetOf(exchange),
      headers,
      parameters,
    };
  }

  #targetOf(exchange: Exchange): string {
    return this.#options.target?.(exchange) ?? spelledTarget(exchange);
  }

  #fieldsOf(exchange: Exchange, address: UpstreamAddress, hasBody: boolean): HeaderList {
    const headers = upstreamRequestFields(exchange, address, this.#options);
    if (!hasBody) {
      headers.delete('expect');
      headers.delete('trailer');
    }
    this.#changeFields(headers, exchange);
    if (this.#config.headerUp.length > 0) checkHost(headers);
    return headers;
  }

  #scriptRequest(
    { root, resolveRootSymlink, splitPath, env }: FastcgiConfig,
    exchange: Exchange,
    headers: HeaderList,
    body: LeasedBody | null,
  ): Omit<FastcgiRequest, 'contentLength'> {
    const { clock, expand } = this.#options;
    const method = this.methodOf(exchange);
    const target = this.#options.target?.(exchange) ?? exchange.target;
    const path = decodedPath(target);
    const { scriptName, pathInfo } = scriptOf(path, splitPath);
    const directory = rootOf(root, exchange, expand);
    const parameters = scriptParameters(exchange, headers, {
      method,
      target,
      root: resolveRootSymlink ? withoutLinks(directory) : directory,
      scriptName,
      pathInfo: pathInfo === '' ? remainderOf(exchange) : pathInfo,
      env: new Map(
        env.map(({ name, value }) => [name, expand(value, exchange, undefined, undefined, '')]),
      ),
    });
    return { method, parameters, body, client: exchange, clock, log: exchange.log };
  }
}

function noTrailers(): HeaderList {
  return new HeaderList();
}

/** The limit for an upstream that reads nothing; 0 means no limit. */
function writeLimit(limitMs: number, clock: Clock): WaitLimit | null {
  if (limitMs === 0) return null;
  const over = (): Error =>
    new HubgateError('upstream-write-timeout', 'The upstream no longer reads the request');
  return { limitMs, clock, over };
}

/** The remainder from a search for files, if the path has nothing after the script. */
function remainderOf({ variables }: Exchange): string {
  return variables.get('fastcgi.path_info') ?? variables.get('file_match.remainder') ?? '';
}

/** A directory without links; one that does not exist stays as it is, and the script is not found. */
function withoutLinks(directory: string): string {
  return orNull(() => realpathSync(directory)) ?? directory;
}

/** As the client spelled it, if that is configured and no rewrite has changed it. */
function spelledTarget({ target, originalTarget, rawTarget }: Exchange): string {
  return target === originalTarget ? (rawTarget ?? target) : target;
}

/** @throws HttpError 400 if it is not UTF-8 */
function decodedPath(target: string): string {
  try {
    return decodeURIComponent(target.split('?', 1)[0] ?? '');
  } catch (cause) {
    throw new HttpError(400, 'the path is not UTF-8', { cause });
  }
}

/**
 * The upstream gets its own address where `header_up` leaves the host empty, as from Caddy.
 *
 * @throws HttpError 500 if placeholders have made it something that is no host
 */
function checkHost(headers: HeaderList): void {
  const host = headers.combined('host');
  if (host === undefined || isHost(host)) return;
  if (host !== '') throw new HttpError(500, 'header_up has set Host to a text that is not a host');
  headers.delete('host');
}
