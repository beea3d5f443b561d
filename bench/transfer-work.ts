import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type BenchContext, percentile } from './context.ts';
import type { BenchGateway } from './gateways.ts';
import { eachGateway } from './gateway-work.ts';
import { makeRequests } from './load/generators.ts';
import { cpuOf } from './processes.ts';

const UPLOAD_MB = 100;
const DELAYED_MB = 10;
/** Of a round trip through the relay. */
const ROUND_TRIP_MS = 50;

/** `transfer`: uploads of 100 MB, what another client notices of them, and 10 MB over a long way. */
export async function transfer(context: BenchContext): Promise<void> {
  const directory = context.directory();
  const file = (megabytes: number): string => {
    const path = join(directory, `${megabytes}.bin`);
    writeFileSync(path, Buffer.alloc(megabytes * 1024 * 1024, 'x'));
    return path;
  };
  const [large, small] = [file(UPLOAD_MB), file(DELAYED_MB)];
  const measure = async (gateway: BenchGateway, how: string, option: string): Promise<void> => {
    await upload(gateway, gateway.port, option, large);
    const before = cpuOf(gateway.pid);
    const rounds = context.amount(5);
    for (let i = 0; i < rounds; i += 1) await upload(gateway, gateway.port, option, large);
    const spent = (cpuOf(gateway.pid) - before) / 1000;
    context.note(`upload, ${how}`, gateway.name, 'ms of CPU per MB', spent / (rounds * UPLOAD_MB));
    const [other] = await Promise.all([
      makeRequests({
        port: gateway.port,
        connections: 1,
        request: `GET / HTTP/1.1\r\nHost: localhost:${gateway.port}\r\n\r\n`,
        durationMs: context.amount(2000),
        caFile: gateway.caFile,
      }),
      upload(gateway, gateway.port, option, large),
    ]);
    const p99 = percentile(other.delaysUs, 0.99) / 1000;
    context.note(`upload, ${how}: p99 of another client`, gateway.name, 'ms', p99);
    const relay = await delayingRelay(gateway.port);
    const start = performance.now();
    await upload(gateway, relay.port, option, small);
    const seconds = (performance.now() - start) / 1000;
    context.note(`upload of 10 MB over 50 ms, ${how}`, gateway.name, 's', seconds);
    relay.close();
  };
  await eachGateway(context, { tls: false, cores: 1 }, (gateway) =>
    measure(gateway, 'HTTP/1.1', '--http1.1'),
  );
  await eachGateway(context, { tls: true, cores: 1 }, async (gateway) => {
    await measure(gateway, 'TLS', '--http1.1');
    await measure(gateway, 'HTTP/2', '--http2');
  });
}

/** By whatever port the gateway is reached, it is asked by its own name. */
async function upload(
  { port, caFile }: BenchGateway,
  through: number,
  option: string,
  file: string,
): Promise<void> {
  const url = `${caFile === null ? 'http' : 'https'}://localhost:${port}/upload`;
  const way = ['--connect-to', `localhost:${port}:127.0.0.1:${through}`, option];
  const trust = caFile === null ? [] : ['--cacert', caFile];
  const options = ['-sSf', '-o', '/dev/null', '-H', 'Expect:', ...trust, ...way];
  await promisify(execFile)('curl', [...options, '-T', file, url]);
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
