import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ArrivingBody, BodyMemory } from '../../../src/coalescing/arriving-body.ts';
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
    const { outcome } = flight.ask(fakeExchange({}), app.answer);
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
    void flight.ask(fakeExchange({}), new App().answer);
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
      const { outcome, finished } = flight.ask(first.exchange, app.answer);
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

  it('offers a response until it is closed, and frees its memory afterwards', async () => {
    const shared = new Shared();
    const app = new App();
    const flight = shared.start();
    const { finished } = flight.ask(fakeExchange({}), app.answer);
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
  const events = { complete: () => {}, failed: () => {}, tooLarge: () => {} };

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
    assert.equal(memory.bytes, 0);
  });
});
