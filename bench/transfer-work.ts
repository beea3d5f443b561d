import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { WebSocket } from 'ws';
import { freePort } from '../test/support/free-port.ts';
import { type BenchContext, percentile } from './context.ts';
import {
  type BenchGateway,
  certificate,
  startForTransfer,
  type TransferPorts,
} from './gateways.ts';
import { makeRequests } from './load/generators.ts';
import { cpuOf, installed, startServer } from './processes.ts';
import { TYPESCRIPT } from '../test/support/process.ts';

const KIB = 1024;
const LARGE_MB = 100;
const DELAYED_MB = 10;
const WEBSOCKET_MB = 20;
const GIT_MB = 50;
const PATCH_MB = 10;
const CALLS = 4000;
/** Of a round trip through the relay. */
const ROUND_TRIP_MS = 50;
/** A compiler that works while the program runs is done with a kind of traffic by then. */
const WARM_UPS = 3;
const ROUNDS = 5;
/** Work that takes more CPU than this is done once: rounds of it would take many minutes. */
const MAX_REPEATED_MS = 10_000;

const WAYS = [
  ['HTTP/1.1', 'plain', '--http1.1'],
  ['TLS', 'tls', '--http1.1'],
  ['HTTP/2', 'tls', '--http2'],
] as const;

type Gateway = BenchGateway & { readonly ports: TransferPorts };

interface Kind {
  readonly name: string;
  /** What the processor time is divided by. */
  readonly unit: string;
  readonly amount: number;
  /** The port without which a program is left out. */
  readonly port?: keyof TransferPorts;
  readonly run: (gateway: Gateway) => Promise<void>;
}

/**
 * `transfer`: bytes and calls in all directions, the programs in turns; what another client notices of
 * them; and uploads over a long way.
 */
export async function transfer(context: BenchContext): Promise<void> {
  const directory = context.directory();
  const large = join(directory, 'large.bin');
  writeFileSync(large, Buffer.alloc(LARGE_MB * KIB * KIB, 'x'));
  const small = join(directory, 'small.bin');
  writeFileSync(small, Buffer.alloc(DELAYED_MB * KIB * KIB, 'x'));
  const apps = {
    plain: await freePort(),
    tls: 0,
    grpc: await freePort(),
    fastcgi: await freePort(),
  };
  const program = fileURLToPath(new URL('./load/transfer-origin.ts', import.meta.url));
  const ports = [apps.plain, apps.grpc, apps.fastcgi].map(String);
  const args = [...TYPESCRIPT, program, ...ports, directory];
  const app = await startServer(process.execPath, args, apps.plain);
  const gateways = await startForTransfer(context, apps, directory);
  gateways.splice(1, 0, await startBare(context, apps, large));
  try {
    const call = join(directory, 'call.bin');
    writeFileSync(call, Buffer.from('\0\0\0\0\x05hello', 'latin1'));
    const kinds = [...byteKinds(large), ...patchKinds(small), ...gitKinds(directory)];
    for (const kind of [...kinds, ...callKinds(context, call)]) {
      await inTurns(context, kind, gateways);
    }
    for (const gateway of gateways) await besideAnother(context, gateway, large);
    for (const gateway of gateways) await overLongWay(context, gateway, small);
  } finally {
    for (const gateway of gateways) await gateway.stop();
    await app.stop();
  }
}

/** Node's own servers and pipes, which hubgate is built on. It has no FastCGI. */
async function startBare(
  context: BenchContext,
  apps: TransferPorts,
  large: string,
): Promise<Gateway> {
  const program = fileURLToPath(new URL('./load/bare-gateway.ts', import.meta.url));
  const { cert, key } = certificate(context);
  const [plain, tls, grpc] = [await freePort(), await freePort(), await freePort()];
  const ports = [plain, tls, grpc, apps.plain, apps.grpc].map(String);
  const args = [...TYPESCRIPT, program, ...ports, large, cert, key];
  const running = await startServer(process.execPath, args, plain);
  const own = { plain, tls, grpc, fastcgi: 0 };
  return { name: 'bare Node', port: plain, caFile: cert, ports: own, ...running };
}

function byteKinds(large: string): Kind[] {
  const whole = { unit: 'ms of CPU per MB', amount: LARGE_MB };
  const messages = (size: number): Kind => ({
    ...{ unit: 'ms of CPU per MB', amount: WEBSOCKET_MB },
    name: `WebSocket, echoed messages of ${size / KIB} KiB`,
    run: ({ ports }) => echo(ports.plain, size),
  });
  return [
    ...WAYS.map(([way, port, option]): Kind => {
      const run = (gateway: Gateway): Promise<void> => upload(gateway, port, large, [option]);
      return { ...whole, name: `upload, ${way}`, run };
    }),
    {
      ...whole,
      name: 'upload, HTTP/1.1, without a length',
      run: (gateway) =>
        upload(gateway, 'plain', large, ['--http1.1', '-H', 'Transfer-Encoding: chunked']),
    },
    {
      ...whole,
      name: 'upload, FastCGI',
      port: 'fastcgi',
      run: (gateway) => upload(gateway, 'fastcgi', large, ['--http1.1']),
    },
    ...WAYS.map(([way, port, option]): Kind => {
      const run = (gateway: Gateway): Promise<void> => curl(gateway, port, '/large.bin', [option]);
      return { ...whole, name: `file, ${way}`, run };
    }),
    ...[64 * KIB, 8 * KIB].map((size): Kind => {
      const run = (gateway: Gateway): Promise<void> =>
        curl(gateway, 'tls', `/chunks/${size}`, ['--http1.1']);
      return { ...whole, name: `answer in chunks of ${size / KIB} KiB, TLS`, run };
    }),
    messages(64 * KIB),
    messages(8 * KIB),
  ];
}

/** What `docker push` sends: parts of unknown length, one after the other over one connection. */
function patchKinds(part: string): Kind[] {
  const parts = Array.from({ length: LARGE_MB / PATCH_MB }, (_, i) => `/v2/blobs/uploads/${i}`);
  return WAYS.slice(1).map(([way, port, option]) => ({
    ...{ name: `PATCHes of ${PATCH_MB} MB, ${way}`, unit: 'ms of CPU per MB', amount: LARGE_MB },
    run: (gateway) => {
      const [first = '', ...others] = parts;
      const origin = `https://localhost:${gateway.ports[port]}`;
      const more = others.flatMap((path) => ['-o', '/dev/null', '-T', part, `${origin}${path}`]);
      const chunked = [
        '-X',
        'PATCH',
        ...(way === 'TLS' ? ['-H', 'Transfer-Encoding: chunked'] : []),
      ];
      return curl(gateway, port, first, [option, '-H', 'Expect:', ...chunked, ...more, '-T', part]);
    },
  }));
}

/** Of a repository whose content cannot be compressed. */
function gitKinds(directory: string): Kind[] {
  const [work, served] = [join(directory, 'work'), join(directory, 'served.git')];
  const git = async (...args: string[]): Promise<void> => {
    const identity = ['-c', 'user.name=bench', '-c', 'user.email=bench@localhost'];
    const limits = ['-c', 'http.postBuffer=65536', '-c', 'core.compression=0'];
    await promisify(execFile)('git', [...identity, ...limits, ...args]);
  };
  const prepared = (async () => {
    mkdirSync(work);
    writeFileSync(join(work, 'content.bin'), randomBytes(GIT_MB * KIB * KIB));
    await git('-C', work, 'init', '-q', '-b', 'main');
    await git('-C', work, 'add', '.');
    await git('-C', work, 'commit', '-q', '-m', 'content');
    await git('clone', '-q', '--bare', work, served);
  })();
  const whole = { unit: 'ms of CPU per MB', amount: GIT_MB };
  const urlOf = ({ ports }: Gateway, name: string): string =>
    `http://localhost:${ports.plain}/git/${name}`;
  return [
    {
      ...whole,
      name: 'git clone',
      run: async (gateway) => {
        await prepared;
        const target = join(directory, 'clone');
        rmSync(target, { recursive: true, force: true });
        await git('clone', '-q', '--bare', urlOf(gateway, 'served.git'), target);
      },
    },
    {
      ...whole,
      name: 'git push',
      run: async (gateway) => {
        await prepared;
        const target = join(directory, 'pushed.git');
        rmSync(target, { recursive: true, force: true });
        await git('init', '-q', '--bare', '-b', 'main', target);
        await git('-C', target, 'config', 'http.receivepack', 'true');
        await git('-C', work, 'push', '-q', urlOf(gateway, 'pushed.git'), 'main');
      },
    },
  ];
}

/** Unary calls by h2load, ten at a time over one connection. */
function callKinds(context: BenchContext, message: string): Kind[] {
  const h2load = installed('h2load');
  if (h2load === null) {
    context.skip('gRPC', 'h2load (nghttp2-client) is not installed');
    return [];
  }
  const fields = ['-H', 'content-type: application/grpc', '-H', 'te: trailers'];
  const run = async ({ name, ports }: Gateway): Promise<void> => {
    const load = ['-c', '1', '-m', '10', '-n', String(CALLS), '-d', message, ...fields];
    const url = `https://localhost:${ports.grpc}/bench.Bench/Call`;
    const { stdout } = await promisify(execFile)(h2load, [...load, url]);
    if (!stdout.includes(`${CALLS} succeeded`)) throw new Error(`${name}: ${stdout.slice(-1000)}`);
  };
  return [{ name: 'unary gRPC call', unit: 'ms of CPU', amount: CALLS, run }];
}

/** The median of what each program takes, one after the other in each round, and the spread. */
async function inTurns(context: BenchContext, kind: Kind, all: Gateway[]): Promise<void> {
  const { port } = kind;
  const gateways = all.filter(({ ports }) => port === undefined || ports[port] !== 0);
  const spent = new Map(gateways.map((gateway): [Gateway, number[]] => [gateway, []]));
  const rounds = context.amount(ROUNDS);
  const slow = new Set<Gateway>();
  for (let round = -WARM_UPS; round < rounds; round += 1) {
    for (const [gateway, figures] of spent) {
      if (slow.has(gateway)) continue;
      const before = cpuOf(gateway.pid);
      try {
        await kind.run(gateway);
      } catch (error) {
        spent.delete(gateway);
        console.error(`  ${kind.name}, ${gateway.name}: failed, and is left out: ${String(error)}`);
      }
      const ms = (cpuOf(gateway.pid) - before) / 1000;
      if (ms > MAX_REPEATED_MS) slow.add(gateway);
      if (round >= 0 || slow.has(gateway)) figures.push(ms / kind.amount);
    }
  }
  for (const [{ name }, figures] of spent) {
    figures.sort((one, other) => one - other);
    context.note(kind.name, name, kind.unit, percentile(figures, 0.5));
    console.error(`    ${name}: ${figures.map((one) => one.toFixed(3)).join(', ')}`);
  }
}

async function besideAnother(
  context: BenchContext,
  gateway: Gateway,
  large: string,
): Promise<void> {
  const { plain } = gateway.ports;
  for (const [way, port, option] of WAYS) {
    const [other] = await Promise.all([
      makeRequests({
        port: plain,
        connections: 1,
        request: `GET / HTTP/1.1\r\nHost: localhost:${plain}\r\n\r\n`,
        durationMs: context.amount(2000),
        caFile: null,
      }),
      upload(gateway, port, large, [option]),
    ]);
    const p99 = percentile(other.delaysUs, 0.99) / 1000;
    context.note(`upload, ${way}: p99 of another client`, gateway.name, 'ms', p99);
  }
}

async function overLongWay(context: BenchContext, gateway: Gateway, small: string): Promise<void> {
  for (const [way, port, option] of WAYS) {
    const relay = await delayingRelay(gateway.ports[port]);
    const start = performance.now();
    await upload(gateway, port, small, [option], relay.port);
    const seconds = (performance.now() - start) / 1000;
    context.note(`upload of ${DELAYED_MB} MB over 50 ms, ${way}`, gateway.name, 's', seconds);
    relay.close();
  }
}

function upload(
  gateway: Gateway,
  port: keyof TransferPorts,
  file: string,
  options: readonly string[],
  through = gateway.ports[port],
): Promise<void> {
  return curl(gateway, port, '/upload', [...options, '-H', 'Expect:', '-T', file], through);
}

/** By whatever port the gateway is reached, it is asked by its own name. */
async function curl(
  { caFile, ports }: Gateway,
  name: keyof TransferPorts,
  path: string,
  options: readonly string[],
  through = ports[name],
): Promise<void> {
  const port = ports[name];
  const url = `${name === 'tls' ? 'https' : 'http'}://localhost:${port}${path}`;
  const way = ['--connect-to', `localhost:${port}:127.0.0.1:${through}`];
  const trust = caFile === null ? [] : ['--cacert', caFile];
  await promisify(execFile)('curl', ['-sSf', '-o', '/dev/null', ...trust, ...way, ...options, url]);
}

/** Has messages echoed, some of which are always on their way. */
async function echo(port: number, size: number): Promise<void> {
  const socket = new WebSocket(`ws://localhost:${port}/`, { perMessageDeflate: false });
  await once(socket, 'open');
  const message = Buffer.alloc(size, 'w');
  const most = (1024 * KIB) / size;
  const count = (WEBSOCKET_MB * KIB * KIB) / size;
  let [sent, received] = [0, 0];
  const done = new Promise<void>((resolve) => {
    const fill = (): void => {
      for (; sent < count && sent - received < most; sent += 1) socket.send(message);
    };
    socket.on('message', () => {
      received += 1;
      if (received === count) resolve();
      else fill();
    });
    fill();
  });
  await done;
  socket.close();
  await once(socket, 'close');
}

/** Passes bytes on as they came, each half a round trip later. */
async function delayingRelay(target: number): Promise<{ port: number; close(): void }> {
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
    late(client, upstream);
    late(upstream, client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, close: () => server.close() };
}

function late(from: Socket, to: Socket): void {
  const soon = (task: () => void): void => void setTimeout(task, ROUND_TRIP_MS / 2);
  from.on('error', () => to.destroy());
  from.on('data', (chunk) => soon(() => to.write(chunk)));
  from.on('end', () => soon(() => to.end()));
}
