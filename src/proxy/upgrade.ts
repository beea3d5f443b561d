import { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { HttpError } from '../http/errors.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import { fieldText, HeaderList } from '../http/header-list.ts';
import {
  joinEnds,
  passBoth,
  tlsOptions,
  type TunnelEnds,
  UpgradeExchange,
  type UpgradeSink,
  type UpgradeTarget,
} from './upgrade-request.ts';
import { upstreamReads } from './upstream-reads.ts';
import { Readable } from 'node:stream';

type Http1Upgrade = Extract<UpgradeRequest, { kind: 'http1' }>;

/** HTTP/1.1: http-proxy-3 sends the request and joins the sockets. */
export function switchHttp1(
  exchange: Exchange,
  upgrade: Http1Upgrade,
  target: UpgradeTarget,
  sink: UpgradeSink,
): Promise<TunnelEnds | null> {
  const { socket } = upgrade;
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
  const pending = new PendingClient(upgrade);
  const switching = new Promise<TunnelEnds | null>((resolve, reject) => {
    proxy.once('proxyReqWs', (upstreamRequest) => {
      pending.refuse = (error) => upstreamRequest.destroy(error);
      queueMicrotask(() => {
        // http-proxy-3 would destroy the client's socket on errors, hang on aborted refusals, and join the sockets
        // whatever the upstream has switched to.
        const [join] = upstreamRequest.listeners('upgrade');
        for (const event of ['upgrade', 'response', 'error']) {
          upstreamRequest.removeAllListeners(event);
        }
        upstreamRequest.once('upgrade', (response, upstream, early) => {
          try {
            const head = sink.switched(HeaderList.fromRaw(response.rawHeaders));
            head.headers.set('Connection', 'Upgrade');
            head.headers.set('Upgrade', 'websocket');
            exchange.takeOver(head);
            // http-proxy-3 writes the head from these.
            response.headers = utf8Record(head.headers);
          } catch (error) {
            upstream.destroy();
            reject(error);
            return;
          }
          pending.release();
          if (upgrade.head.length > 0) socket.unshift(upgrade.head);
          upgrade.readInto(upstreamReads.socketOptions.onread);
          joinEnds(socket, upstream, target.clock);
          join?.call(upstreamRequest, response, upstream, early);
          resolve({ client: socket, upstream });
        });
        new UpgradeExchange(upstreamRequest, target, exchange, sink, resolve, reject).start();
      });
    });
    proxy.once('open', (upstream) => {
      if (socket.destroyed) return;
      // The pipes of http-proxy-3 would pause a side for each piece.
      upstream.unpipe(socket);
      socket.unpipe(upstream);
      passBoth({ from: socket, to: socket, isView: false }, upstream, target.clock);
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
  // After a failure, there may be another attempt.
  const release = (): void => pending.release();
  switching.then(release, release);
  return switching;
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
    const text = fieldText(value);
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
  /** Called when the client has sent too much. */
  refuse: (error: Error) => void = () => {};
  readonly #upgrade: Http1Upgrade;
  readonly #early: Buffer[];
  #bytes: number;
  #isReleased = false;

  constructor(upgrade: Http1Upgrade) {
    this.#upgrade = upgrade;
    this.#early = [upgrade.head];
    this.#bytes = upgrade.head.length;
    upgrade.socket.on('data', this.#onData).on('end', this.#onEnd).resume();
  }

  /** Stops reading, and leaves the received data to the next reader. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    const { socket } = this.#upgrade;
    socket.off('data', this.#onData).off('end', this.#onEnd);
    // The socket's own `pause` would also stop reading, and nobody would notice that the client leaves.
    Readable.prototype.pause.call(socket);
    this.#upgrade.head = Buffer.concat(this.#early);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#early.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes <= MAX_EARLY_BYTES) return;
    // The rest is discarded.
    this.#upgrade.socket.off('data', this.#onData);
    this.refuse(new HttpError(400, `more than ${MAX_EARLY_BYTES} bytes before the switch`));
  };

  /** A client that ends its side of a pending WebSocket does not want it any more. */
  readonly #onEnd = (): void => {
    this.#upgrade.socket.destroy();
  };
}
