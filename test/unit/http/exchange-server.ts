import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import type { ServerOptions } from '../../../src/config/config.ts';
import { defaultOptions } from '../../../src/config/shape-options.ts';
import { answerError } from '../../../src/http/answer.ts';
import { HttpError } from '../../../src/http/errors.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import type { ExchangeSettings } from '../../../src/server/connection-policy.ts';
import { Http1 } from '../../../src/server/protocols.ts';
import { Http2 } from '../../../src/server/http2.ts';
import { mountedExchange } from '../../../src/server/mounted-exchange.ts';
import { Peers } from '../../../src/server/proxy-protocol.ts';

export interface ExchangeServer {
  /** Port of the HTTP/1.1 listener. */
  readonly http1: number;
  /** Port of the HTTP/2 listener, with prior knowledge. */
  readonly http2: number;
  /** What handlers threw beside HttpErrors. */
  readonly faults: unknown[];
  /** Statuses of the HttpErrors that handlers threw. */
  readonly statuses: number[];
  /** As a gateway does that stops or has other limits. */
  drain(): void;
  [Symbol.asyncDispose](): Promise<void>;
  close(): Promise<void>;
}

type Answering = Pick<ExchangeServer, 'faults' | 'statuses'> & {
  readonly answer: (exchange: Exchange) => Promise<void>;
};

/** Runs a handler as the gateway would, and keeps what it threw. */
function answering(handler: Handler): Answering {
  const faults: unknown[] = [];
  const statuses: number[] = [];
  const answer = async (exchange: Exchange): Promise<void> => {
    try {
      await handler(exchange, () => Promise.resolve());
    } catch (error) {
      if (error instanceof HttpError) statuses.push(error.status);
      else faults.push(error);
      if (exchange.begun) exchange.abort();
      else answerError(exchange, error instanceof HttpError ? error.status : 500);
    }
  };
  return { answer, faults, statuses };
}

/** Serves a handler over HTTP/1.1 and HTTP/2 on loopback, as the listeners of the gateway do. */
export async function serveExchanges(
  handler: Handler,
  silence: ExchangeSettings['silence'] = null,
  timeouts: Partial<ServerOptions['timeouts']> = {},
): Promise<ExchangeServer> {
  const answered = answering(handler);
  const { servers } = defaultOptions;
  const limits = {
    ...servers,
    maxHeaderSize: 80 * 1024,
    timeouts: { ...servers.timeouts, ...timeouts },
  };
  const settings = { log: silentLogger, clientAddress: null, keeps: limits, silence };
  const reception = {
    settings: () => settings,
    take: (exchange: Exchange) => void answered.answer(exchange),
  };
  const first = new Http1(limits, reception, systemClock);
  const second = new Http2(limits, reception, systemClock, silentLogger);
  const peers = new Peers();
  const server = (protocol: Http1 | Http2): net.Server =>
    net.createServer({ noDelay: true }, (socket) => {
      peers.add(socket, null);
      peers.mark(socket);
      protocol.accept(socket);
    });
  return opened(server(first), server(second), answered, () => {
    first.drain();
    second.drain();
  });
}

/** Serves a handler as one that is mounted in servers of Node's. */
export function serveMounted(handler: Handler): Promise<ExchangeServer> {
  const answered = answering(handler);
  const { answer } = answered;
  return opened(
    http.createServer((...both) => void answer(mountedExchange(...both, silentLogger))),
    http2.createServer((...both) => void answer(mountedExchange(...both, silentLogger))),
    answered,
  );
}

async function opened(
  h1: net.Server,
  h2: net.Server,
  { faults, statuses }: Answering,
  drain: () => void = () => {},
): Promise<ExchangeServer> {
  const sockets = new Set<net.Socket>();
  for (const one of [h1, h2]) {
    one.on('connection', (socket: net.Socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('close', () => sockets.delete(socket));
    });
    one.listen(0, '127.0.0.1');
    await once(one, 'listening');
  }
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    await Promise.all([h1, h2].map((one) => new Promise((done) => one.close(done))));
  };
  return {
    http1: portOf(h1),
    http2: portOf(h2),
    faults,
    statuses,
    drain,
    close,
    [Symbol.asyncDispose]: close,
  };
}

export function portOf(server: net.Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('no port');
  return address.port;
}

export interface Answer {
  readonly status: number;
  readonly headers: Record<string, string | string[]>;
  readonly body: string;
  readonly trailers: Record<string, string>;
  readonly informational: { readonly status: number; readonly link: string | undefined }[];
  /** True when the response ended before it was complete. */
  readonly broken: boolean;
}

export interface Ask {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
  readonly chunked?: boolean;
  /** The body goes on for ever. */
  readonly unended?: boolean;
}

/** One HTTP/1.1 request on a connection of its own. */
export function ask1(port: number, ask: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: '127.0.0.1',
      port,
      method: ask.method ?? 'GET',
      path: ask.path ?? '/',
      agent: false,
      headers: {
        ...ask.headers,
        ...(ask.chunked === true ? { 'transfer-encoding': 'chunked' } : {}),
      },
    });
    const informational: { status: number; link: string | undefined }[] = [];
    request.on('information', ({ statusCode, headers }) => {
      informational.push({ status: statusCode, link: String(headers['link'] ?? '') });
    });
    request.on('error', reject);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', () => {});
      response.on('close', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: JSON.parse(JSON.stringify(response.headers)),
          body: Buffer.concat(chunks).toString(),
          trailers: JSON.parse(JSON.stringify(response.trailers)),
          informational,
          broken: !response.complete,
        });
      });
    });
    if (ask.unended === true) request.write(ask.body ?? '');
    else request.end(ask.body);
  });
}

/** One HTTP/2 request on a connection of its own. */
export function ask2(port: number, ask: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const session = http2.connect(`http://127.0.0.1:${port}`, { maxSessionMemory: 100 });
    session.on('error', reject);
    const stream = session.request(
      { ':method': ask.method ?? 'GET', ':path': ask.path ?? '/', ...ask.headers },
      { endStream: ask.body === undefined },
    );
    const informational: { status: number; link: string | undefined }[] = [];
    stream.on('headers', (headers) => {
      informational.push({
        status: Number(headers[':status']),
        link: String(headers['link'] ?? ''),
      });
    });
    const chunks: Buffer[] = [];
    let head: Record<string, string | string[]> = {};
    let trailers: Record<string, string> = {};
    let failed = false;
    stream.on('response', (headers) => {
      head = JSON.parse(JSON.stringify(headers));
    });
    stream.on('trailers', (headers) => {
      trailers = JSON.parse(JSON.stringify(headers));
    });
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('error', () => {
      failed = true;
    });
    stream.on('close', () => {
      session.close();
      resolve({
        status: Number(head[':status'] ?? 0),
        headers: head,
        body: Buffer.concat(chunks).toString(),
        trailers,
        informational,
        broken: failed || stream.rstCode !== 0,
      });
    });
    if (ask.unended === true) stream.write(ask.body ?? '');
    else if (ask.body !== undefined) stream.end(ask.body);
  });
}

export const PROTOCOLS = [
  { name: 'HTTP/1.1', ask: ask1, port: (server: ExchangeServer) => server.http1 },
  { name: 'HTTP/2', ask: ask2, port: (server: ExchangeServer) => server.http2 },
] as const;
