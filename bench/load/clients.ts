// Programs that make requests to a gateway: wrk, h2load, and our own.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { BenchGateway } from '../gateways.ts';
import { percentile } from '../context.ts';
import { installed } from '../processes.ts';
import { makeRequests } from './generators.ts';
import type { RequestsReport } from './orders.ts';

const MS_OF_UNIT: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1000 };

/** By our own generator. */
export async function ownRequests(
  gateway: BenchGateway,
  connections: number,
  durationMs: number,
  path = '/',
): Promise<RequestsReport> {
  const { name, port, caFile } = gateway;
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost:${port}\r\nAccept: text/html\r\n\r\n`;
  const report = await makeRequests({ port, connections, request, durationMs, caFile });
  if (report.failures > 0) throw new Error(`${name}: ${report.failures} failures`);
  return report;
}

/** By wrk with one thread, bound to some cores if asked; by our own generator where it is not installed. */
export async function wrkRequests(
  gateway: BenchGateway,
  connections: number,
  durationMs: number,
  cpus?: string,
  path = '/',
): Promise<{ readonly answers: number; readonly perSecond: number; readonly p99Ms: number }> {
  const wrk = installed('wrk');
  if (wrk === null) {
    const { answers, delaysUs } = await ownRequests(gateway, connections, durationMs, path);
    const perSecond = answers / (durationMs / 1000);
    return { answers, perSecond, p99Ms: percentile(delaysUs, 0.99) / 1000 };
  }
  const url = `${gateway.caFile === null ? 'http' : 'https'}://localhost:${gateway.port}${path}`;
  const seconds = String(Math.max(1, Math.round(durationMs / 1000)));
  const load = [
    wrk,
    '-t',
    '1',
    '-c',
    String(connections),
    '-d',
    seconds,
    '--latency',
    '--timeout',
    '30s',
    url,
  ];
  const [program, ...args] = cpus === undefined ? load : ['taskset', '-c', cpus, ...load];
  const { stdout } = await promisify(execFile)(program ?? wrk, args);
  const answers = Number(/(\d+) requests in/.exec(stdout)?.[1]);
  const [, p99 = '', unit = ''] = /99%\s+([\d.]+)(us|ms|s)/.exec(stdout) ?? [];
  const failed = /Non-2xx|Socket errors/.test(stdout);
  if (failed || !(answers > 0)) throw new Error(`${gateway.name}: ${stdout}`);
  const perSecond = Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1]);
  return { answers, perSecond, p99Ms: Number(p99) * (MS_OF_UNIT[unit] ?? Number.NaN) };
}

/** By h2load, 8 connections with 16 streams each. */
export async function http2Requests(
  { name, port }: BenchGateway,
  count: number,
  path = '/',
): Promise<void> {
  const h2load = installed('h2load');
  if (h2load === null) throw new Error('h2load (nghttp2-client) is not installed');
  const load = ['-c', '8', '-m', '16', '-n', String(count), `https://localhost:${port}${path}`];
  const { stdout } = await promisify(execFile)(h2load, load);
  if (!stdout.includes(`${count} succeeded`)) throw new Error(`${name}: ${stdout.slice(-1000)}`);
}
