import type { ClientRequest, IncomingMessage } from 'node:http';
import { isIP, Socket } from 'node:net';
import type { Duplex, Writable } from 'node:stream';
import { ignore } from '../kernel/error.ts';
import { breakOff } from '../http/body-end.ts';
import { PausedProbe } from '../http/disconnect-signal.ts';
import type { ResponseHead } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { PiecesOfTurn } from '../http/small-pieces.ts';
import type { Clock } from '../kernel/clock.ts';
import type { UpstreamAddress } from './address.ts';
import { Flow, type FlowListener } from './body-flow.ts';
import {
  type ForwardSink,
  MAX_STALL_MS,
  type RequestingClient,
  type TransportSettings,
} from './forwarding.ts';
import { clientLeft, RequestLifecycle } from './request-lifecycle.ts';
import { gatherWrites } from './upstream-writes.ts';

/**
 * Silence after which the system probes whether a peer is still alive; a dead one is detected within 40 s.
 */
export const KEEP_ALIVE_PROBE_MS = 30_000;

/** Receives the response to an upgrade: the switch itself, or another response of the upstream. */
export interface UpgradeSink extends ForwardSink {
  /**
   * The head for the client, created from the fields of the upstream's 101.
   *
   * @throws ForwardError `upstream-broken` if it names another protocol than WebSocket (RFC 9110 §7.8)
   */
  switched(headers: HeaderList): ResponseHead;
}

/** An upstream and the settings for reaching it. */
export interface DialTarget {
  readonly address: UpstreamAddress;
  readonly settings: TransportSettings;
  readonly trustPool: string | null;
}

export interface UpgradeTarget extends DialTarget {
  /** Path and query. */
  readonly path: string;
  /** Fields of the request, without hop-by-hop ones. */
  readonly headers: HeaderList;
  readonly clock: Clock;
}

/** The two ends of an upgraded connection. */
export interface TunnelEnds {
  readonly client: Duplex;
  readonly upstream: Duplex;
}

/** Without a given name, the upstream's own; none for an address, which the SNI cannot contain. */
export function tlsOptions({ address, settings, trustPool }: DialTarget): {
  servername: string;
  ca?: string;
} {
  const name = settings.tlsServerName ?? (isIP(address.hostname) === 0 ? address.hostname : '');
  return { servername: name, ...(trustPool === null ? {} : { ca: trustPool }) };
}

/** Handles failures, time limits and refusals of an upgrade request until there is a response. */
export class UpgradeExchange extends RequestLifecycle {
  readonly #request: ClientRequest;
  readonly #sink: ForwardSink;
  #response: IncomingMessage | null = null;
  #hasSwitched = false;

  constructor(
    request: ClientRequest,
    { settings, clock }: UpgradeTarget,
    client: RequestingClient,
    sink: ForwardSink,
    resolve: (refused: null) => void,
    reject: (error: unknown) => void,
  ) {
    super({ client, clock }, settings, () => resolve(null), reject);
    this.#request = request;
    this.#sink = sink;
  }

  start(): void {
    const request = this.#request;
    this.limit(this.settings.dialTimeoutMs, 'no connection');
    request.once('socket', (socket) => {
      const connected = 'encrypted' in socket ? 'secureConnect' : 'connect';
      socket.once(connected, () => {
        this.phase = 'sent';
        this.awaitHead();
      });
    });
    request.on('error', (error) => this.failed(error));
    request.once('upgrade', () => {
      this.#hasSwitched = true;
      this.settle();
    });
    request.on('information', ({ statusCode, rawHeaders }) => {
      this.guard(() => this.#inform(statusCode, HeaderList.fromRaw(rawHeaders)));
    });
    request.once('response', (response) => this.guard(() => this.#refuse(response)));
    this.watchClient();
  }

  #inform(status: number, headers: HeaderList): void {
    if (this.mayInform()) this.#sink.onInformation(status, headers, '1.1');
  }

  /** Passes on another response than the switch. */
  #refuse(response: IncomingMessage): void {
    this.beginResponse();
    this.#response = response;
    const headers = HeaderList.fromRaw(response.rawHeaders);
    const body = this.#sink.onHead(response.statusCode ?? 502, headers, '1.1');
    this.body = body;
    response.on('error', (error) => this.failed(error));
    if (body === null) return this.finish();
    body.on('error', (error) => this.failed(clientLeft(error)));
    this.awaitBody();
    response.on('data', (chunk: Buffer) => this.pass(chunk, body));
    response.on('end', () => {
      this.guard(() => {
        this.#sink.onEnd(body, HeaderList.fromRaw(response.rawTrailers));
        this.finish();
      });
    });
  }

  pause(): void {
    this.#response?.pause();
  }

  resume(): void {
    this.#response?.resume();
  }

  protected release(): void {
    if (!this.#hasSwitched) this.#request.destroy();
  }
}

/** No time limit of a tunnel depends on whether its source is paused. */
const NOBODY: FlowListener = { held: ignore, taken: ignore, freed: ignore };

/** Notices also that a client leaves whose messages the upstream does not take. */
function probing(client: Socket, clock: Clock): FlowListener {
  const pausedProbe = new PausedProbe(client, clock);
  client.once('close', () => pausedProbe.stop());
  return { ...NOBODY, held: () => pausedProbe.start() };
}

/** The client's end of a tunnel. */
interface ClientEnd {
  readonly from: Duplex;
  readonly to: Writable;
  /** Whether what was read shares memory with other streams of an HTTP/2 session. */
  readonly isView: boolean;
}

/**
 * Passes on everything in both directions, until one side ends. The connections should read into the memory of
 * `upstreamReads`, which is reused as soon as the other side has sent it.
 */
export function passBoth({ from, to, isView }: ClientEnd, upstream: Duplex, clock: Clock): void {
  if (upstream instanceof Socket) gatherWrites(upstream);
  const [down, up] = [
    new Flow(to, upstream, NOBODY),
    new Flow(upstream, from, from instanceof Socket ? probing(from, clock) : NOBODY),
  ];
  upstream.on('data', (chunk: Buffer) => {
    if (to.writable) down.write(chunk);
  });
  const pieces = new PiecesOfTurn(isView, (bytes) => {
    if (!upstream.writable) return;
    // A connection joins the pieces of one turn. TLS and HTTP/2 deliver 16 KiB each.
    upstream.cork();
    up.write(bytes);
    upstream.uncork();
  });
  from.on('data', (chunk: Buffer) => pieces.add(chunk));
  upstream.once('end', () => to.end());
  from.once('end', () => {
    pieces.flush();
    upstream.end();
  });
  from.once('close', () => pieces.flush());
  upstream.resume();
  from.resume();
}

/**
 * If one side closes, the other must not stay open. The upstream may still take what the client has sent, for
 * {@link MAX_STALL_MS} at most.
 */
export function joinEnds(client: Duplex, upstream: Duplex, clock: Clock): void {
  client.on('error', () => upstream.destroy());
  upstream.on('error', () => breakOff(client));
  client.once('close', () => {
    if (!(upstream instanceof Socket)) {
      upstream.destroy();
      return;
    }
    upstream.destroySoon();
    if (upstream.destroyed) return;
    const cancel = clock.after(MAX_STALL_MS, () => upstream.destroy());
    upstream.once('close', cancel);
  });
  // The listener has already done this for the client's connection. For HTTP/2, there is only a stream here.
  if (upstream instanceof Socket) upstream.setKeepAlive(true, KEEP_ALIVE_PROBE_MS);
}
