import { once } from 'node:events';
import http, { ServerResponse } from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { answerError } from '../../../src/http/answer.ts';
import { HttpError } from '../../../src/http/errors.ts';
import type { Exchange, Handler, UpgradeRequest } from '../../../src/http/exchange.ts';
import {
  NodeExchange,
  type NodeRequest,
  type NodeResponse,
} from '../../../src/http/node-exchange.ts';
import { silentLogger } from '../../../src/kernel/log.ts';

export interface ExchangeServer {
  /** Port of the HTTP/1.1 listener. */
  readonly http1: number;
  /** Port of the HTTP/2 listener, with prior knowledge. */
  readonly http2: number;
  /** What handlers threw beside HttpErrors. */
  readonly faults: unknown[];
  /** Statuses of the HttpErrors that handlers threw. */
  readonly statuses: number[];
  [Symbol.asyncDispose](): Promise<void>;
  close(): Promise<void>;
}

/** Serves a handler over HTTP/1.1 and HTTP/2 on loopback, as the listeners of the gateway do. */
export async function serveExchanges(handler: Handler): Promise<ExchangeServer> {
  const faults: unknown[] = [];
  const statuses: number[] = [];
  let count = 0;

  const run = (request: NodeRequest, response: NodeResponse, upgrade: UpgradeRequest | null) => {
    count += 1;
    const origin = {
      id: `r${count}`,
      log: silentLogger,
      clientAddress: null,
      peer: null,
      silence: null,
      upgrade,
    };
    const exchange = new NodeExchange(request, response, origin);
    void answer(exchange);
  };
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

  const sockets = new Set<net.Socket>();
  const h1 = http.createServer({ maxHeaderSize: 80 * 1024 }, (request, response) => {
    run(request, response, null);
  });
  h1.on('checkContinue', (request, response) => run(request, response, null));
  h1.on('upgrade', (request, socket: Duplex, head) => {
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    if (socket instanceof net.Socket) response.assignSocket(socket);
    response.on('finish', () => socket.end());
    run(request, response, { kind: 'http1', request, socket, head });
  });
  const h2 = http2.createServer(
    { settings: { enableConnectProtocol: true } },
    (request, response) => {
      run(request, response, null);
    },
  );
  h2.on('checkContinue', (request, response) => run(request, response, null));
  h2.on('connect', (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => {
    const protocol = request.headers[':protocol'] ?? '';
    run(request, response, { kind: 'http2', protocol, stream: response.stream });
  });
  for (const server of [h1, h2]) {
    server.on('connection', (socket: net.Socket) => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    await Promise.all([h1, h2].map((server) => new Promise((done) => server.close(done))));
  };
  return {
    http1: portOf(h1),
    http2: portOf(h2),
    faults,
    statuses,
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
    request.end(ask.body);
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
    if (ask.body !== undefined) stream.end(ask.body);
  });
}

export const PROTOCOLS = [
  { name: 'HTTP/1.1', ask: ask1, port: (server: ExchangeServer) => server.http1 },
  { name: 'HTTP/2', ask: ask2, port: (server: ExchangeServer) => server.http2 },
] as const;
