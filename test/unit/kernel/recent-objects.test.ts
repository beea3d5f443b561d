import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { queryObjects } from 'node:v8';
import { answer } from '../../../src/http/answer.ts';
import { Http1Writer } from '../../../src/http/http1-writer.ts';
import { serveExchanges } from '../http/exchange-server.ts';
import { TYPESCRIPT } from '../../support/process.ts';

const MODULE = fileURLToPath(new URL('../../../src/kernel/v8-memory.ts', import.meta.url));

/** Prints which of four objects are left, at first and after each interval, and how many timers there are. */
const PROGRAM = `
const timers = new Set();
globalThis.setInterval = (run) => {
  const timer = { run, unref: () => timer };
  timers.add(timer);
  return timer;
};
globalThis.clearInterval = (timer) => timers.delete(timer);
const { RecentObjects } = await import(process.argv[1]);
const recent = new RecentObjects();
const refs = [];
const keep = () => {
  const object = {};
  refs.push(new WeakRef(object));
  recent.keep(object);
};
const print = async () => {
  // A WeakRef holds its object until the end of the turn.
  await new Promise((resolve) => setTimeout(resolve, 0));
  gc();
  console.log(refs.map((ref) => (ref.deref() === undefined ? '-' : 'x')).join(''), timers.size);
};
for (let i = 0; i < 4; i += 1) keep();
await print();
for (let i = 0; i < 2; i += 1) {
  for (const { run } of timers) run();
  await print();
}
keep();
await print();
`;

/** Sends one request over a connection of its own, and closes it. */
async function requestOnce(port: number): Promise<void> {
  const client = http2.connect(`http://127.0.0.1:${port}`);
  const request = client.request({ ':path': '/' });
  request.resume();
  await once(request, 'close');
  client.close();
  await once(client, 'close');
}

/** The class of Node's HTTP/2 connections of a server, which Node does not export. */
async function classOfSessions(): Promise<CallableFunction> {
  const server = http2.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const [session]: unknown[] = await once(server, 'session');
  assert.ok(typeof session === 'object' && session !== null);
  client.destroy();
  server.close();
  await once(server, 'close');
  return session.constructor;
}

describe('recent objects', () => {
  it('are the last two of a class, and are released when there was no new one for an interval', async () => {
    const flags = ['--expose-gc', ...TYPESCRIPT, '--input-type=module'];
    const run = [...flags, '--eval', PROGRAM, MODULE];
    const { stdout } = await promisify(execFile)(process.execPath, run);
    assert.deepEqual(stdout.trim().split('\n'), ['--xx 1', '--xx 1', '---- 0', '----x 1']);
  });

  it('are also the last two connections over HTTP/2, and no more of them', async (test) => {
    const sessions = await classOfSessions();
    const server = await serveExchanges((exchange) => answer(exchange, 200, {}, 'ok'));
    test.after(() => server.close());
    for (let i = 0; i < 5; i += 1) await requestOnce(server.http2);
    // The server may still be closing the last connection.
    const left = (): number => queryObjects(sessions, { format: 'count' });
    for (let i = 0; i < 100 && left() > 2; i += 1) await new Promise(setImmediate);
    assert.equal(left(), 2);
  });

  it('are also the last two messages over HTTP/1.1', () => {
    for (let i = 0; i < 5; i += 1) new Http1Writer().discard();
    assert.equal(queryObjects(Http1Writer, { format: 'count' }), 2);
  });
});
