import { execFile } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { setTimeout as after } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type BenchContext, percentile } from './context.ts';
import { type BenchGateway, type Front, GATEWAYS, startApp, startHubgate } from './gateways.ts';
import { http2Requests, ownRequests } from './load/clients.ts';
import type { RequestsReport } from './load/orders.ts';
import { cpuOf, installed, residentOf } from './processes.ts';

const CONNECTIONS = 64;
export const LARGE_MB = 200;
/** A compiler that works while the program runs needs this long. */
const WARM_UP_MS = 10_000;
const WARM_UP_DOWNLOADS = 6;
/** What a program has taken to start, and gives back by itself when nothing is asked of it, is gone by then. */
const IDLE_MS = 15_000;

/** `proxy`: a response of 1 KiB, one core each, with discovery on. */
export async function proxy(context: BenchContext): Promise<void> {
  const durationMs = context.amount(8000);
  await eachGateway(context, { tls: false, cores: 1 }, (gateway) =>
    requests(context, gateway, 'proxied 1 KiB', durationMs),
  );
  await eachGateway(context, { tls: true, cores: 1 }, async (gateway) => {
    await requests(context, gateway, 'proxied 1 KiB, TLS', durationMs);
    await http2(context, gateway, durationMs);
  });
}

/** `throughput`: as each program runs out of the box, and hubgate with a worker for each core. */
export async function throughput(context: BenchContext): Promise<void> {
  const durationMs = context.amount(8000);
  for (const tls of [false, true]) {
    const work = `requests out of the box${tls ? ', TLS' : ''}`;
    const measure = async (gateway: BenchGateway, what: string): Promise<void> => {
      await load(gateway, WARM_UP_MS);
      const { answers, delaysUs } = await load(gateway, durationMs);
      context.note(what, gateway.name, '/s', answers / (durationMs / 1000));
      context.note(`${what}: p99`, gateway.name, 'ms', percentile(delaysUs, 0.99) / 1000);
      context.note(`${what}: memory`, gateway.name, 'MB', residentOf(gateway.pid) / 1024);
    };
    await eachGateway(context, { tls, cores: null }, (gateway) => measure(gateway, work));
    const cores = availableParallelism();
    const every = `${work}, workers ${cores}`;
    await eachGateway(context, { tls, cores }, (gateway) => measure(gateway, every), [
      startHubgate,
    ]);
  }
}

async function requests(
  context: BenchContext,
  gateway: BenchGateway,
  work: string,
  durationMs: number,
  path = '/',
): Promise<void> {
  await after(IDLE_MS);
  const idle = residentOf(gateway.pid);
  await load(gateway, WARM_UP_MS, path);
  const before = cpuOf(gateway.pid);
  const { answers, delaysUs } = await load(gateway, durationMs, path);
  const spent = cpuOf(gateway.pid) - before;
  context.note(work, gateway.name, 'µs of CPU', spent / answers);
  context.note(`${work}: p99`, gateway.name, 'ms', percentile(delaysUs, 0.99) / 1000);
  context.note(`${work}: memory before`, gateway.name, 'MB', idle / 1024);
  context.note(`${work}: memory after`, gateway.name, 'MB', residentOf(gateway.pid) / 1024);
}

function load(gateway: BenchGateway, durationMs: number, path = '/'): Promise<RequestsReport> {
  return ownRequests(gateway, CONNECTIONS, durationMs, path);
}

/** HTTP/2 by h2load, 8 connections with 16 streams each. */
async function http2(
  context: BenchContext,
  gateway: BenchGateway,
  durationMs: number,
  work = 'proxied 1 KiB, HTTP/2',
  path = '/',
): Promise<void> {
  if (installed('h2load') === null) {
    context.skip('HTTP/2', 'h2load (nghttp2-client) is not installed');
    return;
  }
  const count = durationMs * 5;
  await http2Requests(gateway, count, path);
  const before = cpuOf(gateway.pid);
  await http2Requests(gateway, count, path);
  context.note(work, gateway.name, 'µs of CPU', (cpuOf(gateway.pid) - before) / count);
}

/** `download`: 200 MB in one response. */
export async function download(context: BenchContext): Promise<void> {
  const measure = async (gateway: BenchGateway, work: string, http2 = false): Promise<void> => {
    await fetchLarge(gateway, http2, WARM_UP_DOWNLOADS);
    const before = cpuOf(gateway.pid);
    const rounds = context.amount(10);
    await fetchLarge(gateway, http2, rounds);
    const spent = (cpuOf(gateway.pid) - before) / 1000;
    context.note(work, gateway.name, 'ms of CPU per MB', spent / (rounds * LARGE_MB));
  };
  await eachGateway(context, { tls: false, cores: 1 }, (gateway) => measure(gateway, 'download'));
  await eachGateway(context, { tls: true, cores: 1 }, async (gateway) => {
    await measure(gateway, 'download, TLS');
    await measure(gateway, 'download, HTTP/2', true);
  });
}

/** So many downloads, one after the other, by curl. */
export async function fetchLarge(
  { caFile, port }: BenchGateway,
  http2: boolean,
  times: number,
): Promise<void> {
  const url = `${caFile === null ? 'http' : 'https'}://localhost:${port}/large`;
  const trust = caFile === null ? [] : ['--cacert', caFile];
  const options = [...trust, http2 ? '--http2' : '--http1.1'];
  for (let i = 0; i < times; i += 1) {
    await promisify(execFile)('curl', ['-sSf', '-o', '/dev/null', ...options, url]);
  }
}

/** Measures each gateway in turn, in front of one app. */
async function eachGateway(
  context: BenchContext,
  front: Omit<Front, 'appPort'>,
  measure: (gateway: BenchGateway) => Promise<void>,
  starts = GATEWAYS,
): Promise<void> {
  const app = await startApp();
  try {
    for (const start of starts) {
      const gateway = await start(context, { ...front, appPort: app.port });
      if (gateway === null) continue;
      try {
        await measure(gateway);
      } finally {
        await gateway.stop();
      }
    }
  } finally {
    await app.stop();
  }
}
