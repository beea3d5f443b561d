import { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import { fieldUtf8, HeaderList } from '../http/header-list.ts';
import {
  awaitSwitch,
  joinEnds,
  passBoth,
  tlsOptions,
  type TunnelEnds,
  type UpgradeSink,
  type UpgradeTarget,
} from './upgrade-request.ts';
import { upstreamReads } from './upstream-reads.ts';
import type { Duplex } from 'node:stream';

/** HTTP/1.1: http-proxy-3 sends the request and joins the sockets. */
export function switchHttp1(
  exchange: Exchange,
  { socket, head: early, readInto }: Extract<UpgradeRequest, { kind: 'http1' }>,
  target: UpgradeTarget,
  sink: UpgradeSink,
): Promise<TunnelEnds | null> {
  const { address, settings } = target;
  const fields = target.headers.clone();
  fields.set('connection', 'Upgrade');
  fields.set('upgrade', 'websocket');
  const request = upgradeRequest(socket, target.path, fields);
  // One per request, so that its events need no correlation.
  const proxy = createProxyServer({});
  proxy.on('error', () => {
    // Errors of the sockets: the ends of both are watched.
  });
  const pending = new PendingClient(socket, early);
  return new Promise((resolve, reject) => {
    proxy.once('proxyReqWs', (upstreamRequest) => {
      // Registered before the listener of http-proxy-3, which writes the head in `response.headers`.
      upstreamRequest.once('upgrade', (response, upstream) => {
        try {
          const head = sink.switched(HeaderList.fromRaw(response.rawHeaders));
          head.headers.set('Connection', 'Upgrade');
          head.headers.set('Upgrade', 'websocket');
          exchange.takeOver(head);
          response.headers = utf8Record(head.headers);
          pending.release();
          readInto(upstreamReads.socketOptions.onread);
          joinEnds(socket, upstream);
          resolve({ client: socket, upstream });
        } catch (error) {
          // If it were thrown here, it would end the process. http-proxy-3 continues with sockets that are
          // then closed.
          response.headers = Object.create(null);
          exchange.abort();
          socket.destroy();
          upstream.destroy();
          reject(error);
        }
      });
      queueMicrotask(() => {
        // http-proxy-3 would destroy the client's socket on errors, and hang on aborted refusals.
        upstreamRequest.removeAllListeners('response');
        upstreamRequest.removeAllListeners('error');
        awaitSwitch(upstreamRequest, target, exchange, sink, resolve, reject);
      });
    });
    proxy.once('open', (upstream) => {
      if (socket.destroyed) return;
      // The pipes of http-proxy-3 would pause a side for each piece.
      upstream.unpipe(socket);
      socket.unpipe(upstream);
      passBoth({ from: socket, to: socket, isView: false }, upstream);
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
      ssl: { ...tlsOptions(target), ...upstreamReads.socketOptions },
      // http-proxy-3 overwrites the one in `ssl`.
      ...(target.trustPool === null ? {} : { ca: target.trustPool }),
    });
  });
}

/** The request in the form that http-proxy-3 takes. */
function upgradeRequest(socket: Socket, path: string, fields: HeaderList): IncomingMessage {
  const request = new IncomingMessage(socket);
  request.method = 'GET';
  request.url = path;
  request.headers = fields.toRecord();
  return request;
}

/**
 * http-proxy-3 writes the head as UTF-8, so text is passed in such a way that the original bytes are written.
 */
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

/**
 * Bytes that a client may send before the response to its upgrade, for which it is supposed to wait (RFC 6455
 * §4.1).
 */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * Reads a connection with a pending upgrade. Only a reader notices that the client leaves. Otherwise, a
 * request to an upstream that never responds would keep both sockets open forever.
 */
class PendingClient {
  readonly #socket: Duplex;
  readonly #early: Buffer[];
  #bytes: number;

  /** `early` arrived with the head of the request. */
  constructor(socket: Duplex, early: Buffer) {
    this.#socket = socket;
    this.#early = [early];
    this.#bytes = early.length;
    socket.on('data', this.#onData).on('end', this.#onEnd);
    socket.resume();
  }

  /** Stops reading, and returns the received data to the socket. */
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

  /** A client that ends its side of a pending WebSocket does not want it any more. */
  readonly #onEnd = (): void => {
    this.#socket.destroy();
  };
}
