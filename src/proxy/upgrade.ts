import { createProxyServer } from 'http-proxy-3';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import { fieldUtf8, HeaderList } from '../http/header-list.ts';
import {
  awaitSwitch,
  joinEnds,
  tlsOptions,
  type TunnelEnds,
  type UpgradeSink,
  type UpgradeTarget,
} from './upgrade-request.ts';
import type { Duplex } from 'node:stream';

/** HTTP/1.1: http-proxy-3 makes the request and joins the sockets. */
export function switchHttp1(
  exchange: Exchange,
  { request, socket, head: early }: Extract<UpgradeRequest, { kind: 'http1' }>,
  target: UpgradeTarget,
  sink: UpgradeSink,
): Promise<TunnelEnds | null> {
  const { address, settings } = target;
  const fields = target.headers.clone();
  fields.set('connection', 'Upgrade');
  fields.set('upgrade', 'websocket');
  request.headers = fields.toRecord();
  request.url = target.path;
  // One per request, so that its events need no correlation.
  const proxy = createProxyServer({});
  proxy.on('error', () => {
    // Errors of the sockets: both are watched to their end.
  });
  const pending = new PendingClient(socket, early);
  return new Promise((resolve, reject) => {
    proxy.once('proxyReqWs', (upstreamRequest) => {
      // Registered before http-proxy-3's own, which writes the head that is in `response.headers`.
      upstreamRequest.once('upgrade', (response, upstream) => {
        try {
          const head = sink.switched(HeaderList.fromRaw(response.rawHeaders));
          head.headers.set('Connection', 'Upgrade');
          head.headers.set('Upgrade', 'websocket');
          exchange.takeOver(head);
          response.headers = utf8Record(head.headers);
          pending.release();
          joinEnds(socket, upstream);
          resolve({ client: socket, upstream });
        } catch (error) {
          // Thrown here it would end the process. http-proxy-3 goes on with what then is closed.
          response.headers = Object.create(null);
          exchange.abort();
          socket.destroy();
          upstream.destroy();
          reject(error);
        }
      });
      queueMicrotask(() => {
        // http-proxy-3 would destroy the client's socket on errors and hang on broken refusals.
        upstreamRequest.removeAllListeners('response');
        upstreamRequest.removeAllListeners('error');
        awaitSwitch(upstreamRequest, target, exchange, sink, resolve, reject);
      });
    });
    proxy.ws(request, socket, Buffer.alloc(0), {
      target: {
        protocol: address.protocol,
        host: address.hostname,
        hostname: address.hostname,
        port: address.port,
        ...(address.socketPath === null ? {} : { socketPath: address.socketPath }),
      },
      toProxy: true,
      secure: !settings.tlsInsecureSkipVerify,
      ssl: tlsOptions(target),
      // http-proxy-3 overwrites the one in `ssl`.
      ...(target.trustPool === null ? {} : { ca: target.trustPool }),
    });
  });
}

/** http-proxy-3 writes the head as UTF-8: text is handed over so that its bytes come out as they were. */
function utf8Record(headers: HeaderList): Record<string, string | string[]> {
  // The upstream chooses the names.
  const record: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of headers) {
    const text = fieldUtf8(value) ?? value;
    const present = record[name];
    if (present === undefined) record[name] = text;
    else record[name] = [...(typeof present === 'string' ? [present] : present), text];
  }
  return record;
}

/** Bytes that a client may send before its upgrade is answered, for which it is to wait (RFC 6455 §4.1). */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * Reads a connection whose upgrade is pending: only who reads notices that the client leaves, and what waits
 * for an upstream that never answers would wait with both sockets for ever.
 */
class PendingClient {
  readonly #socket: Duplex;
  readonly #early: Buffer[];
  #bytes: number;

  /** `early` came with the head of the request. */
  constructor(socket: Duplex, early: Buffer) {
    this.#socket = socket;
    this.#early = [early];
    this.#bytes = early.length;
    socket.on('data', this.#onData).on('end', this.#onEnd);
    socket.resume();
  }

  /** Reads no more, and gives back what has come. */
  release(): void {
    const socket = this.#socket;
    socket.off('data', this.#onData).off('end', this.#onEnd);
    socket.pause();
    if (this.#bytes > 0 && !socket.destroyed) socket.unshift(Buffer.concat(this.#early));
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#early.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_EARLY_BYTES) this.#socket.destroy();
  };

  /** Who ends its side of a WebSocket that is not there yet has no use for it. */
  readonly #onEnd = (): void => {
    this.#socket.destroy();
  };
}
