import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  type ClientHttp2Session,
  connect,
  createSecureServer,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { describe, it, type TestContext } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { guardSession } from '../../../src/server/http2-guards.ts';
import { createCertificateFiles } from '../../support/certificate-files.ts';
import { TestClock } from '../../support/test-clock.ts';
import { portOf } from '../http/exchange-server.ts';

const LOOK_MS = 5_000;
const IDLE_MS = 60_000;

describe('HTTP/2 over TLS: a write that never ends', () => {
  it('ends the session after two checks find the same write stuck', async (test) => {
    const { session, socket, clock } = await openStream(test);
    holdBack(socket);
    clock.advance(LOOK_MS);
    assert.equal(session.destroyed, false);
    const failure = failureOf(session);
    clock.advance(LOOK_MS);
    const error = await failure;
    assert.equal(error.message, 'The client has left: a write never ends');
  });

  it('does not count as stuck if bytes were sent between two checks', async (test) => {
    const { session, socket, clock, client } = await openStream(test);
    holdBack(socket);
    for (let look = 0; look < 5; look += 1) {
      clock.advance(LOOK_MS);
      await new Promise<void>((resolve) => client.ping(() => resolve()));
    }
    assert.equal(session.destroyed, false);
  });

  it('ends a session without streams too, which could otherwise never close', async (test) => {
    const { session, socket, clock, stream } = await openStream(test);
    stream.close();
    await once(stream, 'close');
    holdBack(socket);
    clock.advance(LOOK_MS);
    const failure = failureOf(session);
    clock.advance(LOOK_MS);
    assert.equal((await failure).message, 'The client has left: a write never ends');
  });

  it('an idle session that does not close is ended', async (test) => {
    const { session, clock, stream } = await openStream(test);
    stream.close();
    await once(stream, 'close');
    await new Promise((resolve) => setImmediate(resolve));
    // Its client does not take the end.
    session.close = () => Object.defineProperty(session, 'closed', { value: true });
    clock.advance(IDLE_MS);
    const failure = failureOf(session);
    clock.advance(6 * LOOK_MS);
    assert.match((await failure).message, /does not read the end/);
  });

  it('a connection whose writes complete is left alone', async (test) => {
    const { session, clock, client } = await openStream(test);
    await new Promise<void>((resolve) => client.ping(() => resolve()));
    await new Promise((resolve) => setImmediate(resolve));
    for (let look = 0; look < 2; look += 1) clock.advance(LOOK_MS);
    await new Promise<void>((resolve) => client.ping(() => resolve()));
    assert.equal(session.destroyed, false);
  });
});

describe('HTTP/2: a stream that has closed', () => {
  it('has told everyone who waited for its end, and refers to no listener any more', async (test) => {
    const { stream } = await openStream(test);
    const told: string[] = [];
    stream.on('close', () => told.push('on')).once('close', () => told.push('once'));
    stream.on('drain', () => {}).on('aborted', () => {});
    stream.close();
    await new Promise((resolve) => stream.once('close', resolve));
    assert.deepEqual(told, ['on', 'once']);
    const left = stream.eventNames().filter((name) => stream.listenerCount(name) > 0);
    assert.deepEqual(left, ['error']);
    assert.doesNotThrow(() => stream.emit('error', new Error('late')));
  });
});

interface Opened {
  readonly session: ServerHttp2Session;
  readonly socket: TLSSocket;
  readonly client: ClientHttp2Session;
  /** On the server's side. */
  readonly stream: ServerHttp2Stream;
  readonly clock: TestClock;
}

/** A guarded session over TLS with one stream that stays open. */
async function openStream(test: TestContext): Promise<Opened> {
  const server = createSecureServer(createCertificateFiles().site);
  const clock = new TestClock();
  let socket: TLSSocket | null = null;
  server.prependListener('secureConnection', (secured) => (socket = secured));
  server.on('session', (begun) => guardSession(begun, { idleMs: IDLE_MS, socket, clock }));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect(`https://127.0.0.1:${portOf(server)}`, { rejectUnauthorized: false });
  client.on('error', () => {});
  test.after(() => {
    client.destroy();
    server.close();
  });
  const stream = client.request({ ':path': '/' });
  stream.on('error', () => {});
  const [served]: ServerHttp2Stream[] = await once(server, 'stream');
  assert.ok(served !== undefined);
  served.on('error', () => {});
  served.on('aborted', () => served.close());
  const { session } = served;
  assert.ok(socket !== null && session !== undefined && 'goaway' in session);
  return { session: session as ServerHttp2Session, socket, client, stream: served, clock };
}

/** Makes TLS report a byte that it holds back, as it does when Node never ends its write. */
function holdBack(socket: TLSSocket): void {
  const handle: unknown = Reflect.get(socket, '_handle');
  assert.ok(typeof handle === 'object' && handle !== null);
  Object.defineProperty(handle, 'writeQueueSize', { configurable: true, value: 1 });
}

async function failureOf(session: ServerHttp2Session): Promise<Error> {
  const [error] = await once(session, 'error');
  assert.ok(error instanceof Error);
  return error;
}
