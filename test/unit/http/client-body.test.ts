import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { ClientBody } from '../../../src/http/client-body.ts';
import { HttpError } from '../../../src/http/errors.ts';
import type { BodyLease } from '../../../src/http/exchange.ts';
import { TestClock } from '../../support/test-clock.ts';

const LIMIT_MS = 60_000;

describe('body of a client that sends many small chunks at once', () => {
  it('is passed on in a few chunks, byte for byte the same', async () => {
    const { source, body } = start();
    const sent = Buffer.from(Array.from({ length: 40_000 }, (_, n) => n % 251));
    for (const byte of sent) source.push(Buffer.of(byte));
    source.push(null);
    const chunks: Buffer[] = [];
    for await (const chunk of body) chunks.push(chunk);
    assert.ok(chunks.length < 20, `${chunks.length} chunks`);
    assert.ok(Buffer.concat(chunks).equals(sent));
  });

  it('is passed on without a copy where a chunk has memory of its own, as records of TLS have', async () => {
    const { source, body } = start();
    const sent = [100, 16_378, 12_000, 50, 8 * 1024, 300].map((size, n) =>
      Buffer.allocUnsafeSlow(size).fill(n),
    );
    const taken: Buffer[] = [];
    body.on('data', (chunk: Buffer) => taken.push(chunk));
    await turn();
    for (const chunk of sent) source.write(chunk);
    source.end();
    await once(body, 'end');
    assert.deepEqual(Buffer.concat(taken), Buffer.concat(sent));
    for (const chunk of sent.filter(({ length }) => length >= 8 * 1024)) {
      assert.ok(taken.includes(chunk), `${chunk.length} bytes`);
    }
  });

  it('is passed on in a few chunks even if ticks run between them', async () => {
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

describe('the body of a client that falls silent (RFC 9110 §15.5.9)', () => {
  it('ends with 408 when nothing arrives within the time limit', async () => {
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

  it('restarts the time limit with every byte', async () => {
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

  it('does not count the time before it is read, nor the time while its reader is paused', async () => {
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

  it('notifies its reader when the client disconnects, and when its own stream fails', async () => {
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

  it('discards the rest when its reader is done, so that the connection stays usable', async () => {
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

describe('a body that is lent to a reader', () => {
  it('asks the client for nothing before its reader does, and reports that request only once', async () => {
    const source = new PassThrough();
    let asked = 0;
    const body = lend(source, { onWanted: () => (asked += 1) });
    source.write('a');
    await turn();
    assert.deepEqual([asked, body.consumed, source.listenerCount('data')], [0, false, 0]);
    body.resume();
    await once(body, 'data');
    source.end('b');
    await once(body, 'end');
    assert.deepEqual([asked, body.consumed], [1, true]);
  });

  it('waits for the next reader when one destroys it, whether or not data was requested', async () => {
    const source = new PassThrough();
    lend(source).destroy();
    const second = lend(source).resume();
    await turn();
    second.destroy(new Error('the upstream hung up'));
    source.write('all of it');
    await turn();
    assert.equal(second.consumed, false);
    assert.equal(source.destroyed, false);
    source.end();
    assert.equal(await text(lend(source)), 'all of it');
  });

  it('is empty for a reader that comes after all of it has been read', async () => {
    const source = new PassThrough();
    source.end('a');
    assert.equal(await text(lend(source)), 'a');
    assert.equal(await text(lend(source)), '');
  });

  it('does not count the time spent waiting for the client against its reader', async () => {
    const { source, body, clock } = lendFor(LIMIT_MS);
    for (let i = 0; i < 3; i += 1) {
      body.pause().read(0);
      source.write(Buffer.alloc(2 * BUFFER_BYTES));
      await turn();
      assert.equal(clock.waiting, 1, 'the reader is waited for');
      const came = once(body, 'data');
      body.resume();
      await came;
      await turn();
      clock.advance(10 * LIMIT_MS);
    }
    const ended = once(body, 'end');
    source.end();
    await ended;
    assert.equal(body.errored, null);
  });

  it('ends when its reader takes nothing for the time limit, which every byte restarts', async () => {
    const { source, body, clock } = lendFor(LIMIT_MS);
    for (let i = 0; i < 6; i += 1) source.write(Buffer.alloc(BUFFER_BYTES));
    body.on('error', () => {});
    for (let i = 0; i < 3; i += 1) {
      body.once('data', () => body.pause());
      body.resume();
      await once(body, 'data');
      await turn();
      clock.advance(LIMIT_MS - 1);
      assert.equal(body.destroyed, false);
    }
    clock.advance(1);
    assert.equal(body.errored?.message, 'not taken');
    assert.equal(source.destroyed, false);
  });

  it('leaves no timer running, however it ends', async () => {
    for (const end of ['end', 'destroy'] as const) {
      const { source, body, clock } = lendFor(LIMIT_MS, LIMIT_MS);
      body.pause();
      source.write(Buffer.alloc(2 * BUFFER_BYTES));
      body.read(0);
      await turn();
      assert.equal(clock.waiting, 2);
      if (end === 'end') await text(body.once('data', () => source.end()));
      else body.destroy();
      await turn();
      assert.equal(clock.waiting, 0, end);
    }
  });

  it('notifies no former reader that the client has disconnected, however many there were', async () => {
    const source = new PassThrough();
    for (let i = 0; i < 30; i += 1) {
      const body = lend(source);
      body.resume();
      await turn();
      body.destroy();
    }
    assert.equal(source.listenerCount('error'), 1);
    // What nobody listens for ends the process.
    source.destroy(new Error('read ECONNRESET'));
    await new Promise<void>((closed) => void source.once('close', closed));
  });
});

describe('a body that is lent to two readers at once', () => {
  it('continues for the second one when the first one leaves', async () => {
    const source = new PassThrough();
    const [first, second] = [lend(source).resume(), lend(source)];
    const whole = text(second);
    await turn();
    first.destroy();
    await turn();
    source.end('all of it');
    assert.equal(await whole, 'all of it');
  });

  it('fails for the second one if it begins after the first one has received bytes', async () => {
    const source = new PassThrough();
    const reads = { haveBegun: false, open: 0 };
    const loan = { onWanted: () => {}, stall: null };
    const [first, second] = [1, 2].map(() => new ClientBody(source, false, null, loan, reads));
    assert.ok(first !== undefined && second !== undefined);
    first.resume();
    source.write('a part');
    await once(first, 'data');
    await assert.rejects(text(second), { status: 502 });
    assert.equal(source.destroyed, false);
  });
});

const BUFFER_BYTES = 64 * 1024;

function lend(source: Readable, loan: Partial<BodyLease> = {}): ClientBody {
  return new ClientBody(source, false, null, { onWanted: () => {}, stall: null, ...loan });
}

/** Lent to a reader who may take nothing for `stallMs`. */
function lendFor(stallMs: number, silenceMs: number | null = null) {
  const [source, clock] = [new PassThrough(), new TestClock()];
  const stall = { limitMs: stallMs, clock, over: () => new Error('not taken') };
  const silence =
    silenceMs === null ? null : { limitMs: silenceMs, clock, over: () => new Error('silent') };
  return {
    source,
    clock,
    body: new ClientBody(source, false, silence, { onWanted: () => {}, stall }),
  };
}

function start(): {
  readonly source: PassThrough;
  readonly body: ClientBody;
  readonly clock: TestClock;
  readonly silent: () => number;
} {
  const [source, clock] = [new PassThrough(), new TestClock()];
  let silent = 0;
  const over = (): Error => {
    silent += 1;
    return new HttpError(408, 'silent');
  };
  const body = new ClientBody(source, false, { limitMs: LIMIT_MS, clock, over }, null);
  return { source, body, clock, silent: () => silent };
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
