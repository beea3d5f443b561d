import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ArrivingBody, BodyMemory, sendWhole } from '../../../src/coalescing/arriving-body.ts';
import {
  type Flight,
  type FlightOrder,
  type Outcome,
  RequestCoalescer,
} from '../../../src/coalescing/request-coalescer.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { TestClock } from '../../support/test-clock.ts';
import { TurnedScheduler } from '../../support/turned-scheduler.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

/** A coalescer of which every response is shared. */
class Shared {
  readonly clock = new TestClock();
  readonly scheduler = new TurnedScheduler();
  readonly memory = new BodyMemory();
  readonly coalescer = new RequestCoalescer<string>({
    memory: this.memory,
    scheduler: this.scheduler,
    clock: this.clock,
    maxBody: 1_000_000,
    maxWaitMs: 5_000,
  });

  start(decide: FlightOrder<string>['decide'] = share): Flight<string> {
    return this.coalescer.start('k', {
      moment: 0,
      headers: new HeaderList(),
      isBackground: false,
      decide,
    });
  }

  join(flight: Flight<string>, exchange = fakeExchange({})): Promise<Outcome<string>> {
    return this.coalescer.join(flight, exchange);
  }
}

const share: FlightOrder<string>['decide'] = () => ({
  kind: 'share',
  answer: 'answer',
  complete: () => {},
});

/** An app that responds when the test wants it to. */
class App {
  #go: () => void = () => {};
  fetch: Exchange | null = null;

  readonly answer = async (fetch?: Exchange): Promise<void> => {
    this.fetch = fetch ?? null;
    await new Promise<void>((go) => {
      this.#go = go;
      fetch?.onAbandoned(go);
    });
    if (fetch === undefined || fetch.abandoned) throw new Error('abandoned');
    fetch.begin({ status: 200, headers: new HeaderList(), source: 'upstream' }).end('page');
  };

  respond(): void {
    this.#go();
  }
}

/** A client that can leave. */
function client(): { exchange: Exchange; leave: () => void } {
  const listeners = new Set<() => void>();
  const onAbandoned = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  const leave = (): void => {
    for (const listener of [...listeners]) listener();
  };
  return { exchange: fakeExchange({ onAbandoned }), leave };
}

describe('request coalescing', () => {
  it('resumes no more than ten requests per turn of the event loop', async () => {
    const shared = new Shared();
    const app = new App();
    const flight = shared.start();
    const { outcome } = flight.fetch(fakeExchange({}), app.answer);
    let released = 0;
    const joined = Array.from({ length: 1_000 }, async () => {
      const one = await shared.join(flight);
      released += 1;
      return one;
    });
    app.respond();
    assert.equal((await outcome).kind, 'answer');
    assert.equal(released, 0);
    let most = 0;
    let before = 0;
    await shared.scheduler.all(() => {
      most = Math.max(most, released - before);
      before = released;
    });
    assert.equal(released, 1_000);
    assert.ok(most <= 10, String(most));
    for (const one of await Promise.all(joined)) assert.equal(one.kind, 'answer');
  });

  it('makes no request wait longer than its limit', async () => {
    const shared = new Shared();
    const flight = shared.start();
    void flight.fetch(fakeExchange({}), new App().answer);
    const one = shared.join(flight);
    shared.clock.advance(5_000);
    assert.equal((await one).kind, 'passed');
  });

  it('goes on for the others if the first client leaves, and ends when all have left', async () => {
    for (const staying of [true, false]) {
      const shared = new Shared();
      const app = new App();
      const flight = shared.start();
      const first = client();
      const second = client();
      const { outcome, finished } = flight.fetch(first.exchange, app.answer);
      finished.catch(() => {});
      const joined = shared.join(flight, second.exchange);
      first.leave();
      assert.equal((await outcome).kind, 'left');
      assert.equal(app.fetch?.abandoned, false);
      if (staying) {
        app.respond();
        await finished;
        await shared.scheduler.all();
        assert.equal((await joined).kind, 'answer');
      } else {
        second.leave();
        assert.equal((await joined).kind, 'left');
        assert.equal(app.fetch?.abandoned, true);
        assert.equal(shared.coalescer.find('k'), undefined, 'the next one starts over');
      }
    }
  });

  it('ends when the first client has left and the others have waited as long as they may', async () => {
    const shared = new Shared();
    const app = new App();
    const flight = shared.start();
    const first = client();
    const { finished } = flight.fetch(first.exchange, app.answer);
    finished.catch(() => {});
    const second = shared.join(flight);
    shared.clock.advance(3_000);
    const third = shared.join(flight);
    first.leave();
    shared.clock.advance(2_000);
    assert.equal((await second).kind, 'passed');
    assert.equal(app.fetch?.abandoned, false, 'another one still waits');
    shared.clock.advance(3_000);
    assert.equal((await third).kind, 'passed');
    assert.equal(app.fetch?.abandoned, true);
    assert.equal(shared.coalescer.find('k'), undefined, 'the next one starts over');
  });

  it('offers a response until it is closed, and frees its memory afterwards', async () => {
    const shared = new Shared();
    const app = new App();
    const flight = shared.start();
    const { finished } = flight.fetch(fakeExchange({}), app.answer);
    app.respond();
    await finished;
    const outcome = await shared.join(flight);
    assert.ok(outcome.kind === 'answer' && outcome.body !== null);
    await outcome.body.settled;
    assert.equal(shared.memory.bytes, 4);
    flight.close();
    assert.equal(shared.memory.bytes, 0);
    assert.equal(shared.coalescer.find('k'), undefined);
  });

  it('counts a complete body once, until the last of its readers is done', async () => {
    const shared = new Shared();
    const app = new App();
    const flight = shared.start();
    const { outcome, finished } = flight.fetch(fakeExchange({}), app.answer);
    const joined = Array.from({ length: 25 }, () => shared.join(flight));
    app.respond();
    await finished;
    const first = await outcome;
    assert.ok(first.kind === 'answer' && first.body !== null);
    await first.body.settled;
    flight.close();
    assert.equal(shared.memory.bytes, 4, 'requests wait for it');
    await first.body.sendTo(new Client(), () => assert.fail());
    assert.equal(shared.memory.bytes, 4, 'requests still wait for it');
    const reading = joined.map(async (one) => {
      const come = await one;
      assert.ok(come.kind === 'answer' && come.body !== null);
      const client = new Client();
      assert.equal(await come.body.sendTo(client, () => assert.fail()), true);
      assert.equal(client.received.toString(), 'page');
      assert.ok(shared.memory.bytes <= 4, 'once');
    });
    assert.equal(await shared.scheduler.turn(), true);
    assert.equal(shared.memory.bytes, 4, 'some have read it, and others wait');
    await shared.scheduler.all();
    await Promise.all(reading);
    await turn();
    assert.equal(shared.memory.bytes, 0);
  });

  it('remembers for a while which responses are not shared', () => {
    const { coalescer, clock } = new Shared();
    coalescer.markUnshared('k', 1_000);
    assert.equal(coalescer.isUnshared('k'), true);
    coalescer.markShared('k');
    assert.equal(coalescer.isUnshared('k'), false);
    coalescer.markUnshared('k', 1_000);
    clock.advance(1_000);
    assert.equal(coalescer.isUnshared('k'), false);
  });
});

describe('the memory of bodies with several readers', () => {
  it('is taken from the oldest complete body when a newer one needs it', async () => {
    const memory = new BodyMemory(10);
    const clock = new TestClock();
    const [old, young] = [1, 2].map(() => new ArrivingBody(100, memory, clock, events));
    assert.ok(old !== undefined && young !== undefined);
    old.input.end(Buffer.alloc(6));
    young.input.write(Buffer.alloc(4));
    await old.settled;
    assert.equal(old.isWhole, true);
    young.input.write(Buffer.alloc(5));
    assert.equal(old.isWhole, false);
    assert.equal(memory.bytes, 9);
    young.input.write(Buffer.alloc(2));
    assert.equal(young.isWhole, false, 'one alone has the bound too');
    assert.equal(memory.bytes, 11, 'it is held until it is read');
    young.fail();
    assert.equal(memory.bytes, 0);
  });

  it('is not taken from a client that reads, however many bodies others ask for', async () => {
    const memory = new BodyMemory(1_000_000);
    const clock = new TestClock();
    const of = (): ArrivingBody => new ArrivingBody(1_000_000, memory, clock, events);
    const body = of();
    const client = new Client(true);
    const done = body.sendTo(client, () => assert.fail('it reads'));
    await send(body, 500_000);
    body.input.end();
    const unread = of();
    const isAborted = new Promise<boolean>((resolve) => {
      void unread.sendTo(new Client(true), () => resolve(true));
    });
    await send(unread, 400_000);
    unread.input.end();
    await unread.settled;
    for (let round = 0; round < 4; round += 1) {
      clock.advance(9_000);
      client.readOne();
      await turn();
      const newer = of();
      newer.input.write(Buffer.alloc(300_000));
      assert.equal(newer.isWhole, round === 3, `round ${round}`);
      newer.fail();
    }
    assert.equal(await isAborted, true, 'it has taken nothing for 36 seconds');
    client.readAll();
    assert.equal(await done, true);
    assert.equal(client.received.length, 500_000);
    assert.equal(memory.bytes, 500_000, 'until it is withdrawn');
    body.withdraw();
    assert.equal(memory.bytes, 0);
  });

  it('is not needed for a body that is complete before its reader begins', async () => {
    const memory = new BodyMemory(1_000_000);
    const clock = new TestClock();
    const [large, short] = [1, 2].map(() => new ArrivingBody(1_000_000, memory, clock, events));
    assert.ok(large !== undefined && short !== undefined);
    short.input.end('page');
    await short.settled;
    short.withdraw();
    const reading = large.sendTo(new Client(true), () => {});
    await send(large, 1_000_000);
    large.input.end();
    await large.settled;
    const client = new Client();
    assert.equal(await short.sendTo(client, () => assert.fail()), true);
    assert.equal(client.received.toString(), 'page');
    assert.equal(memory.bytes, 1_000_000);
    large.fail();
    assert.equal(await reading, false);
  });

  it('is not kept by what a client has not received when a complete body was written', async () => {
    const whole = Buffer.alloc(1_000_000, 'x');
    const written: Buffer[] = [];
    const client = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        written.push(chunk);
        // The last piece is never received.
        if (Buffer.concat(written).length < whole.length) done();
      },
    });
    assert.equal(await sendWhole(whole, client, new TestClock(), () => assert.fail()), true);
    assert.deepEqual(Buffer.concat(written), whole);
    assert.notEqual(written.at(-1)?.buffer, whole.buffer);
  });

  it('is counted for readers that are behind when a body turns out to be too large to hold', async () => {
    const { body, memory, reader } = arriving();
    const [fast, slow] = [reader(), reader('slow')];
    await send(body, 1_000_000);
    assert.equal(memory.bytes, 1_000_000);
    const last = send(body, 300_000);
    await turn();
    assert.equal(body.isWhole, false);
    assert.equal(fast.client.received.length, 1_050_000, 'the app waits');
    // The slow client has one piece.
    assert.equal(memory.bytes, 1_000_000);
    slow.client.readAll();
    await last;
    body.input.end();
    assert.deepEqual([await fast.done, await slow.done], [true, true]);
    assert.equal(slow.client.received.length, 1_300_000);
    assert.equal(memory.bytes, 0);
  });

  it('is taken from readers that are behind when a newer body needs it, and they are disconnected', async () => {
    const { body, memory, clock, reader } = arriving(1_900_000);
    const [fast, slow] = [reader(), reader('slow')];
    await send(body, 1_000_000);
    const last = send(body, 300_000);
    await turn();
    const newer = new ArrivingBody(2_000_000, memory, clock, events);
    newer.input.write(Buffer.alloc(1_000_000));
    assert.equal(newer.isWhole, true);
    assert.ok(memory.bytes <= 1_900_000, String(memory.bytes));
    await last;
    assert.equal(await slow.done, false);
    assert.equal(slow.isDisconnected(), true, 'it does not look complete');
    body.input.end();
    assert.equal(await fast.done, true);
    assert.equal(fast.client.received.length, 1_300_000);
    assert.equal(memory.bytes, 1_000_000, 'only the newer one');
  });

  it('delays no reader for those behind it, however many there are', async () => {
    const { body, clock, reader } = arriving();
    const fast = reader();
    const slow = reader('slow');
    await send(body, 300_000);
    const slower = reader('slow');
    slow.client.readOne();
    await send(body, 650_000);
    const last = send(body, 100_000);
    await turn();
    clock.advance(10_000);
    await turn();
    clock.advance(10_000);
    await last;
    assert.deepEqual([await slow.done, await slower.done], [false, false]);
    assert.ok(slow.isDisconnected() && slower.isDisconnected());
    body.input.end();
    assert.equal(await fast.done, true);
    assert.equal(fast.client.received.length, 1_050_000);
  });

  it('lets no reader hold the others up for ever by taking a little from time to time', async () => {
    const { body, clock, reader } = arriving();
    const [fast, slow] = [reader(), reader('slow')];
    const sent = send(body, 3_000_000);
    for (let round = 0; round < 22; round += 1) {
      await turn();
      clock.advance(500);
      slow.client.readOne();
    }
    await sent;
    assert.equal(await slow.done, false);
    assert.equal(slow.isDisconnected(), true, 'it does not look complete');
    body.input.end();
    assert.equal(await fast.done, true);
    assert.equal(fast.client.received.length, 3_000_000);
    assert.equal(clock.waiting, 0);
  });

  it('lets no client hold the others up with many readers, of which one leaves from time to time', async () => {
    const { body, clock, reader } = arriving();
    const fast = reader();
    const others = Array.from({ length: 9 }, () => reader('slow'));
    const sent = send(body, 3_000_000);
    await turn();
    let waitedMs = 0;
    for (const { client } of others) {
      if (others.every((one) => one.isDisconnected() || one.client.destroyed)) break;
      clock.advance(4_000);
      waitedMs += 4_000;
      client.destroy();
      await turn();
    }
    assert.ok(waitedMs <= 12_000, `${waitedMs} ms`);
    await sent;
    body.input.end();
    assert.equal(await fast.done, true);
  });

  it('waits for a reader that is slower than another one, as long as it takes enough', async () => {
    const { body, clock, reader } = arriving();
    const [fast, slow] = [reader(), reader('slow')];
    const sent = send(body, 3_000_000);
    for (let round = 0; round < 60; round += 1) {
      await turn();
      clock.advance(400);
      slow.client.readOne();
    }
    await sent;
    body.input.end();
    slow.client.readAll();
    assert.deepEqual([await fast.done, await slow.done], [true, true]);
    assert.equal(slow.client.received.length, 3_000_000);
  });

  it('counts nobody as waiting who has left, and no reader that is slow itself', async () => {
    const { body, clock, reader } = arriving();
    const [fast, slow, other] = [reader(), reader('slow'), reader('slow')];
    const sent = send(body, 1_400_000);
    await turn();
    clock.advance(5_000);
    fast.client.destroy();
    assert.equal(await fast.done, false);
    clock.advance(60_000);
    await turn();
    assert.ok(!slow.isDisconnected() && !other.isDisconnected());
    slow.client.readAll();
    other.client.readAll();
    await sent;
    body.input.end();
    assert.deepEqual([await slow.done, await other.done], [true, true]);
  });

  it('knows an app that is silent from one that is slow, or that waits for a reader', async () => {
    const clock = new TestClock();
    let isSilent = false;
    const silent = (): void => {
      isSilent = true;
    };
    const body = new ArrivingBody(1_000, new BodyMemory(), clock, { ...events, silent });
    const slow = new Client(true);
    const done = body.sendTo(slow, () => {});
    for (let round = 0; round < 10; round += 1) {
      body.input.write('x');
      clock.advance(29_999);
      assert.equal(isSilent, false, `it has sent something ${round}`);
    }
    const last = send(body, 300_000);
    await turn();
    clock.advance(100_000);
    assert.equal(isSilent, false, 'it waits');
    slow.readAll();
    await last;
    clock.advance(29_999);
    assert.equal(isSilent, false, 'it has just been able to continue');
    clock.advance(1);
    assert.equal(isSilent, true);
    body.input.end();
    assert.equal(await done, true);
    assert.equal(clock.waiting, 0);
  });

  it('has nobody begin a body of which the beginning is released', async () => {
    const { body, reader } = arriving();
    const fast = reader();
    await send(body, 1_100_000);
    await turn();
    const late = reader();
    assert.equal(await late.done, false);
    assert.equal(late.isDisconnected(), true);
    body.input.end();
    assert.equal(await fast.done, true);
  });
});

/** Bytes that the test's app sends at a time. */
const PIECE = 50_000;
const events = { complete: () => {}, failed: () => {}, tooLarge: () => {}, silent: () => {} };

/** A client that receives everything at once, or when the test wants it to. */
class Client extends Writable {
  readonly #isSlow: boolean;
  readonly #chunks: Buffer[] = [];
  #done: (() => void) | null = null;
  #isReading = false;

  constructor(isSlow = false) {
    super({ highWaterMark: 1 });
    this.#isSlow = isSlow;
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    if (this.#isSlow && !this.#isReading) this.#done = done;
    else done();
  }

  readOne(): void {
    const done = this.#done;
    this.#done = null;
    done?.();
  }

  readAll(): void {
    this.#isReading = true;
    this.#done?.();
  }
}

interface TestReader {
  readonly client: Client;
  readonly done: Promise<boolean>;
  readonly isDisconnected: () => boolean;
}

/** A body that is held up to a million bytes. */
function arriving(maxMemory = 10_000_000): {
  body: ArrivingBody;
  memory: BodyMemory;
  clock: TestClock;
  reader: (speed?: 'slow') => TestReader;
} {
  const memory = new BodyMemory(maxMemory);
  const clock = new TestClock();
  const body = new ArrivingBody(1_000_000, memory, clock, events);
  const reader = (speed?: 'slow'): TestReader => {
    const client = new Client(speed === 'slow');
    let isDisconnected = false;
    const done = body.sendTo(client, () => {
      isDisconnected = true;
    });
    return { client, done, isDisconnected: () => isDisconnected };
  };
  return { body, memory, clock, reader };
}

/** Resolves when the body has taken all of it. */
async function send({ input }: ArrivingBody, bytes: number): Promise<void> {
  for (let sent = 0; sent < bytes; sent += PIECE) {
    await new Promise<void>((resolve) => input.write(Buffer.alloc(PIECE), () => resolve()));
  }
}
