import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { BodyMemory } from '../../../src/coalescing/arriving-body.ts';
import type { Exchange, Handler } from '../../../src/http/exchange.ts';
import { forwardedFields } from '../../../src/http/forwarded.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { ReverseProxy, type ReverseProxyOptions } from '../../../src/proxy/reverse-proxy.ts';
import { UpstreamRegistry } from '../../../src/proxy/upstreams.ts';
import type { ExchangeSettings } from '../../../src/server/connection-policy.ts';
import { type ExchangeServer, portOf, serveExchanges } from '../http/exchange-server.ts';
import type { ReverseProxyConfig } from '../../../src/proxy/proxy-config.ts';

export type Overrides = Partial<
  Omit<ReverseProxyConfig, 'kind' | 'passiveHealth' | 'transport'>
> & {
  readonly passiveHealth?: Partial<ReverseProxyConfig['passiveHealth']>;
  readonly transport?: Partial<ReverseProxyConfig['transport']>;
};

/** The defaults of the Hubfile, with what a test changes. */
export function proxyConfig(
  upstreams: readonly string[],
  overrides: Overrides = {},
): ReverseProxyConfig {
  return {
    kind: 'reverse_proxy',
    upstreams,
    upstreamsAllow: [],
    dynamic: null,
    loadBalancing: {
      policy: { kind: 'first' },
      tryDurationMs: 0,
      tryIntervalMs: 250,
      retries: null,
      retryMatch: null,
    },
    activeHealth: null,
    method: null,
    rewrite: null,
    headerUp: [],
    headerDown: [],
    requestBuffers: 0,
    responseBuffers: 0,
    flushIntervalMs: 0,
    streamTimeoutMs: 0,
    streamCloseDelayMs: 0,
    trustedProxies: [],
    fastcgi: null,
    handleResponse: [],
    ...overrides,
    passiveHealth: {
      failDurationMs: 0,
      maxFails: 1,
      unhealthyStatus: [],
      unhealthyLatencyMs: 0,
      unhealthyRequestCount: 0,
      ...overrides.passiveHealth,
    },
    transport: {
      dialTimeoutMs: 3_000,
      responseHeaderTimeoutMs: 0,
      readTimeoutMs: 0,
      writeTimeoutMs: 0,
      keepAliveMs: 120_000,
      maxConnectionsPerHost: 0,
      versions: ['1.1'],
      tlsInsecureSkipVerify: false,
      tlsServerName: null,
      tlsTrustPoolFiles: [],
      ...overrides.transport,
    },
  };
}

export function proxyOptions(
  registry: UpstreamRegistry,
  more: Partial<
    Pick<
      ReverseProxyOptions,
      'clock' | 'compileRoutes' | 'copiesResponse' | 'mayRetry' | 'sharing' | 'bodyMemory'
    >
  > = {},
): ReverseProxyOptions {
  return {
    registry,
    log: silentLogger,
    clock: more.clock ?? systemClock,
    random: Math.random,
    expand: (template, exchange) =>
      template.replaceAll('{host}', exchange.host).replaceAll('{path}', exchange.target),
    trusted: () => false,
    isForwarded: forwardedFields(['x-real-ip', 'x-forwarded-for']),
    target: null,
    copiesResponse: more.copiesResponse ?? (() => false),
    mayRetry: more.mayRetry ?? null,
    authorization: null,
    compileRoutes: more.compileRoutes ?? (() => () => {}),
    scheduler: new Scheduler(),
    sharing: more.sharing ?? null,
    bodyMemory: more.bodyMemory ?? new BodyMemory(),
    usesUpstreamResponse: false,
  };
}

export interface TestGateway extends ExchangeServer {
  readonly registry: UpstreamRegistry;
  readonly proxy: ReverseProxy;
}

/** A gateway that does nothing but proxy. */
export async function proxyTo(
  upstreams: readonly string[],
  overrides: Overrides = {},
  more: Parameters<typeof proxyOptions>[1] & {
    readonly before?: (exchange: Exchange) => void;
    /** How long a client may be silent in the middle of its body. */
    readonly silence?: ExchangeSettings['silence'];
  } = {},
): Promise<TestGateway> {
  const registry = new UpstreamRegistry();
  const proxy = new ReverseProxy(proxyConfig(upstreams, overrides), proxyOptions(registry, more));
  const handler: Handler = (exchange, next) => {
    more.before?.(exchange);
    return proxy.handle(exchange, next);
  };
  const server = await serveExchanges(handler, more.silence);
  const close = async (): Promise<void> => {
    proxy.close();
    registry.destroy();
    await server.close();
  };
  return { ...server, registry, proxy, close, [Symbol.asyncDispose]: close };
}

export interface Origin {
  readonly url: string;
  readonly port: number;
  readonly server: http.Server;
  readonly sockets: ReadonlySet<net.Socket>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** An upstream made of a Node handler; `port` 0 takes any. */
export async function origin(
  handler: http.RequestListener,
  listen: { port?: number } = {},
): Promise<Origin> {
  const server = http.createServer(handler);
  const sockets = new Set<net.Socket>();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(listen.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  const port = portOf(server);
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    if (!server.listening) return;
    await new Promise((done) => server.close(done));
  };
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    server,
    sockets,
    close,
    [Symbol.asyncDispose]: close,
  };
}

export interface RawOrigin {
  readonly url: string;
  readonly port: number;
  /** Everything received so far, all connections in order of arrival. */
  received(): string;
  connections(): number;
  /** Connections that are open now. */
  open(): number;
  [Symbol.asyncDispose](): Promise<void>;
}

/** An upstream of bytes: `onRequest` runs for each complete message head that a connection brings. */
export async function rawOrigin(
  onRequest: (socket: net.Socket, text: string, connection: number) => void,
): Promise<RawOrigin> {
  let received = '';
  let connections = 0;
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    connections += 1;
    const connection = connections;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
    let text = '';
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
      text += chunk.toString('latin1');
      onRequest(socket, text, connection);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const port = portOf(server);
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    received: () => received,
    connections: () => connections,
    open: () => sockets.size,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Waits until `condition` holds, asked again with each turn of the event loop. */
export async function until(
  condition: () => boolean,
  what: string,
  limitMs = 120_000,
): Promise<void> {
  const deadline = Date.now() + limitMs;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await new Promise((turn) => setTimeout(turn, 2));
  }
}
