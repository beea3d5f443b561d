import type { ClientRequest, IncomingMessage } from 'node:http';
import { isIP, Socket } from 'node:net';
import type { Duplex, Writable } from 'node:stream';
import { breakOff } from '../http/body-end.ts';
import { PausedProbe } from '../http/disconnect-signal.ts';
import type { ResponseHead } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { tooLarge } from '../http/http1-syntax.ts';
import { PiecesOfTurn } from '../http/small-pieces.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { UpstreamAddress } from './address.ts';
import { BodyFlow, Flow, type FlowListener } from './body-flow.ts';
import {
  type ForwardSink,
  MAX_INFORMATIONAL,
  MAX_STALL_MS,
  type RequestingClient,
  type TransportSettings,
} from './forwarding.ts';
import { exchangeFailure, type ForwardPhase } from './forward-error.ts';
import { clientLeft } from './request-lifecycle.ts';
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
export function awaitSwitch(
  request: ClientRequest,
  { settings, clock }: UpgradeTarget,
  client: RequestingClient,
  sink: ForwardSink,
  resolve: (refused: null) => void,
  reject: (error: unknown) => void,
): void {
  let phase: ForwardPhase = 'unsent';
  let stopLimit = ignore;
  let stopStall = ignore;
  const limit = (ms: number): void => {
    stopLimit();
    if (ms === 0) return;
    stopLimit = clock.after(ms, () => {
      fail(new HubgateError('upstream-timeout', `no answer within ${ms} ms`));
    });
  };
  const fail = (error: Error): void => {
    answered();
    reject(exchangeFailure(error, phase, client.abandoned));
    request.destroy();
  };
  const answered = (): void => {
    stopLimit();
    stopStall();
    forgetClient();
  };
  const awaitTaking = (): void => {
    stopStall();
    stopStall = clock.after(MAX_STALL_MS, () => fail(clientLeft()));
  };

  limit(settings.dialTimeoutMs);
  const forgetClient = client.onAbandoned(() => {
    fail(new HubgateError('client-left', 'the client left'));
  });
  request.once('socket', (socket) => {
    const connected = 'encrypted' in socket ? 'secureConnect' : 'connect';
    socket.once(connected, () => {
      phase = 'sent';
      limit(settings.responseHeaderTimeoutMs);
    });
  });
  request.on('error', fail);
  request.once('upgrade', answered);
  let informational = 0;
  request.on('information', ({ statusCode, rawHeaders }) => {
    informational += 1;
    if (informational > MAX_INFORMATIONAL) {
      fail(tooLarge(`More than ${MAX_INFORMATIONAL} informational responses`));
      return;
    }
    try {
      sink.onInformation(statusCode, HeaderList.fromRaw(rawHeaders), '1.1');
    } catch (error) {
      answered();
      reject(error);
      request.destroy();
    }
  });
  request.once('response', (response) => {
    stopLimit();
    phase = 'responding';
    try {
      const flow = { held: awaitTaking, taken: awaitTaking, freed: () => stopStall() };
      passRefusal(response, sink, flow, (error) => {
        if (error === null) {
          answered();
          resolve(null);
        } else {
          fail(error);
        }
      });
    } catch (error) {
      answered();
      reject(error);
      request.destroy();
    }
  });
}

function passRefusal(
  response: IncomingMessage,
  sink: ForwardSink,
  listener: FlowListener,
  done: (error: Error | null) => void,
): void {
  const headers = HeaderList.fromRaw(response.rawHeaders);
  const body = sink.onHead(response.statusCode ?? 502, headers, '1.1');
  response.on('error', done);
  if (body === null) {
    response.destroy();
    done(null);
    return;
  }
  body.on('error', done);
  const flow = new BodyFlow(body, response, listener);
  response.on('data', (chunk: Buffer) => flow.write(chunk));
  response.once('close', () => flow.end());
  response.on('end', () => {
    sink.onEnd(body, HeaderList.fromRaw(response.rawTrailers));
    done(null);
  });
}

/** No time limit of a tunnel depends on whether its source is paused. */
const NOBODY: FlowListener = { held: ignore, taken: ignore, freed: ignore };

/** Notices also that a client leaves whose messages the upstream does not take. */
function probing(client: Socket, clock: Clock): FlowListener {
  const pausedProbe = new PausedProbe(client, clock);
  client.once('close', () => pausedProbe.stop());
  return { ...NOBODY, held: () => pausedProbe.start() };
}

function ignore(): void {}

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
