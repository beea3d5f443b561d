import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import { ClientBody } from '../../../src/server/client-body.ts';
import { HttpError } from '../../../src/http/errors.ts';
import { TestClock } from '../../support/test-clock.ts';

const LIMIT_MS = 60_000;

describe('body of a client that sends many small chunks at once', () => {
  it('is handed on in few, byte by byte the same', async () => {
    const { source, body } = start();
    const sent = Buffer.from(Array.from({ length: 40_000 }, (_, n) => n % 251));
    for (const byte of sent) source.push(Buffer.of(byte));
    source.push(null);
    const chunks: Buffer[] = [];
    for await (const chunk of body) chunks.push(chunk);
    assert.ok(chunks.length < 20, `${chunks.length} chunks`);
    assert.ok(Buffer.concat(chunks).equals(sent));
  });

  it('is handed on in few although ticks run between them', async () => {
    const { source, body } = start();
    let events = 0;
    body.on('data', () => (events += 1));
    await turn();
    for (let n = 0; n < 1000; n += 1) {
      source.push('a');
      await Promise.resolve();
    }
    source.push(null);
    await once(body, 'end');
    assert.ok(events <= 3, `${events} chunks`);
  });
});

describe('body of a client that falls silent (RFC 9110 §15.5.9)', () => {
  it('ends with 408 when nothing comes for the time that is allowed', async () => {
    const { source, body, clock, silent } = start();
    source.write('a');
    body.resume();
    await once(body, 'data');
    clock.advance(LIMIT_MS - 1);
    assert.equal(body.destroyed, false);
    clock.advance(1);
    const [error] = await once(body, 'error');
    assert.ok(error instanceof HttpError && error.status === 408);
    assert.equal(silent(), 1);
    assert.equal(source.destroyed, false, 'the answer can still be sent');
  });

  it('every byte begins the time anew', async () => {
    const { source, body, clock } = start();
    body.resume();
    for (let i = 0; i < 5; i += 1) {
      source.write('a');
      await once(body, 'data');
      clock.advance(LIMIT_MS - 1);
    }
    assert.equal(body.destroyed, false);
    source.end();
    await once(body, 'end');
  });

  it('does not count the time before somebody reads, nor while nobody takes more', async () => {
    const { source, body, clock } = start();
    clock.advance(10 * LIMIT_MS);
    for (let i = 0; i < 4; i += 1) source.write(Buffer.alloc(64 * 1024));
    body.on('data', () => body.pause());
    await once(body, 'data');
    await turn();
    clock.advance(10 * LIMIT_MS);
    assert.equal(body.destroyed, false);
    let length = 0;
    body.removeAllListeners('data').on('data', (chunk: Buffer) => (length += chunk.length));
    body.resume();
    source.end();
    await once(body, 'end');
    assert.equal(length, 3 * 64 * 1024);
    clock.advance(10 * LIMIT_MS);
    assert.equal(body.errored, null);
  });

  it('tells a reader when the client leaves, and when its own stream fails', async () => {
    for (const cause of [undefined, new Error('cause')]) {
      const { source, body } = start();
      body.resume();
      source.write('a');
      await once(body, 'data');
      source.destroy(cause);
      const [error] = await once(body, 'error');
      if (cause === undefined) assert.equal(error.code, 'client-left');
      else assert.equal(error, cause);
    }
  });

  it('lets the rest go by when its reader is content, so that the connection can go on', async () => {
    const { source, body, clock } = start();
    source.write('a');
    body.resume();
    await once(body, 'data');
    body.destroy();
    source.end(Buffer.alloc(1024 * 1024));
    await once(source, 'end');
    clock.advance(10 * LIMIT_MS);
  });
});

function start(): {
  readonly source: PassThrough;
  readonly body: ClientBody;
  readonly clock: TestClock;
  readonly silent: () => number;
} {
  const [source, clock] = [new PassThrough(), new TestClock()];
  let silent = 0;
  const body = new ClientBody(source, { limitMs: LIMIT_MS, clock }, () => (silent += 1));
  return { source, body, clock, silent: () => silent };
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
