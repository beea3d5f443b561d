import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { stat } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { messageOf } from '../../../src/kernel/error.ts';
import { LeasePool } from '../../../src/kernel/lease.ts';
import { parseUrl } from '../../../src/kernel/parse.ts';
import { Scope } from '../../../src/kernel/scope.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { CircuitBreaker } from '../../../src/kernel/circuit-breaker.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { TimerWheel, type WheelTimer } from '../../../src/kernel/timer-wheel.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('scope', () => {
  it('closes in last-in, first-out order, and closes everything even if one part throws', async () => {
    const closed: number[] = [];
    const scope = new Scope();
    scope.defer(() => void closed.push(1));
    scope.defer(async () => {
      closed.push(2);
      throw new Error('two');
    });
    scope.use({ close: () => void closed.push(3) });
    await assert.rejects(scope.close(), (error) => {
      assert.ok(error instanceof AggregateError);
      assert.equal(error.errors.length, 1);
      return true;
    });
    assert.deepEqual(closed, [3, 2, 1]);
  });

  it('immediately closes anything that is added after its end', async () => {
    const scope = new Scope();
    await scope.close();
    let closed = false;
    scope.defer(() => {
      closed = true;
    });
    await scope.close();
    assert.ok(closed);
  });
});

describe('lease pool', () => {
  it('opens once for all holders and closes with the last release', async () => {
    const log: string[] = [];
    const pool = new LeasePool<string>((value) => void log.push(`close ${value}`));
    const open = (): string => {
      log.push('open');
      return 'a';
    };
    const [one, two] = await Promise.all([pool.acquire('k', open), pool.acquire('k', open)]);
    await one.release();
    await one.release();
    assert.deepEqual(log, ['open']);
    await two.release();
    assert.deepEqual(log, ['open', 'close a']);
    await (await pool.acquire('k', open)).release();
    assert.deepEqual(log, ['open', 'close a', 'open', 'close a']);
  });

  it('opens a resource that may not overlap only when the one before it is closed', async () => {
    const log: string[] = [];
    const close = async (value: string): Promise<void> => {
      await nextTurn();
      log.push(`close ${value}`);
      if (value === 'a') throw new Error('not in order');
    };
    const pool = new LeasePool<string>(close, { overlap: false });
    const opening = (value: string) => () => {
      log.push(`open ${value}`);
      return value;
    };
    const one = await pool.acquire('k', opening('a'));
    const [closed, two, three] = await Promise.allSettled([
      one.release(),
      pool.acquire('k', opening('b')),
      pool.acquire('k', opening('c')),
    ]);
    assert.equal(closed.status, 'rejected', 'the last release rejects as closing does');
    assert.deepEqual(log, ['open a', 'close a', 'open b']);
    for (const lease of [two, three]) {
      assert.equal(lease.status, 'fulfilled');
      assert.equal(lease.value.value, 'b');
      await lease.value.release();
    }
    assert.deepEqual(log, ['open a', 'close a', 'open b', 'close b']);
  });

  it('does not cache a failed opening', async () => {
    const pool = new LeasePool<string>(() => {});
    const failing = (): string => {
      throw new Error('no');
    };
    const both = [pool.acquire('k', failing), pool.acquire('k', failing)];
    for (const one of both) await assert.rejects(one, /no/);
    assert.equal(pool.has('k'), false);
    assert.equal((await pool.acquire('k', () => 'yes')).value, 'yes');
  });
});

describe('secret', () => {
  it('is never printed, except for placeholders, which disclose nothing', () => {
    const secret = new Secret('hunter2');
    for (const text of [
      String(secret),
      JSON.stringify({ secret }),
      inspect({ secret }, { depth: 9 }),
    ]) {
      assert.equal(text.includes('hunter2'), false);
      assert.ok(text.includes('[redacted]'));
    }
    assert.equal(secret.reveal(), 'hunter2');
    assert.equal(String(new Secret('{env.KEY}')), '{env.KEY}');
    assert.equal(String(new Secret('{env.KEY} hunter2')), '[redacted]');
  });
});

describe('timer wheel', () => {
  it('runs each task once, never early and at most one tick late, even after full turns of the wheel', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 200_000 }), { maxLength: 30 }),
        fc.array(fc.integer({ min: 1, max: 40_000 }), { minLength: 1, maxLength: 20 }),
        (delays, steps) => {
          const clock = new TestClock();
          const wheel = new TimerWheel(clock);
          const start = clock.monotonic();
          const ran = new Map<number, number>();
          for (const [index, delay] of delays.entries()) {
            const expire = (): void => {
              assert.equal(ran.has(index), false);
              ran.set(index, clock.monotonic() - start);
            };
            wheel.arm({ dueTick: 0, expire }, delay);
          }
          for (const step of steps) clock.advance(step);
          const elapsed = clock.monotonic() - start;
          for (const [index, delay] of delays.entries()) {
            const at = ran.get(index);
            if (at === undefined)
              assert.ok(delay + 100 > elapsed, `${delay} of ${elapsed} not run`);
            else assert.ok(at >= delay && at <= delay + 100, `${delay} ran at ${at}`);
          }
        },
      ),
      { seed: 1, numRuns: 200 },
    );
  });

  it('does not run a cancelled task, even if a task of the same tick cancels it', () => {
    const clock = new TestClock();
    const wheel = new TimerWheel(clock);
    let ran = 0;
    const second: WheelTimer = {
      dueTick: 0,
      expire: () => {
        ran += 1;
      },
    };
    wheel.arm({ dueTick: 0, expire: () => wheel.cancel(second) }, 60);
    wheel.arm(second, 100);
    clock.advance(1000);
    assert.equal(ran, 0);
  });

  it('moves a timer that is set again', () => {
    const clock = new TestClock();
    const wheel = new TimerWheel(clock);
    const ran: number[] = [];
    const start = clock.monotonic();
    const timer: WheelTimer = {
      dueTick: 0,
      expire: () => void ran.push(clock.monotonic() - start),
    };
    wheel.arm(timer, 100);
    wheel.arm(timer, 500);
    clock.advance(400);
    assert.deepEqual(ran, []);
    clock.advance(1000);
    assert.equal(ran.length, 1);
  });

  it('is in time for a timer that is alone and sets itself again for the very next tick', () => {
    const clock = new TestClock();
    const wheel = new TimerWheel(clock);
    const start = clock.monotonic();
    const ran: number[] = [];
    const timer: WheelTimer = {
      dueTick: 0,
      expire: () => {
        ran.push(clock.monotonic() - start);
        if (ran.length < 4) wheel.arm(timer, 50);
      },
    };
    wheel.arm(timer, 100);
    clock.advance(1_000);
    assert.deepEqual(ran, [100, 150, 200, 250]);
  });

  it('lets at most 250 timers expire in one turn', () => {
    const clock = new TestClock();
    const turns: number[] = [];
    let inTurn = 0;
    const counting: Clock = {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      after: (delay, task) =>
        clock.after(delay, () => {
          inTurn = 0;
          task();
          turns.push(inTurn);
        }),
    };
    const wheel = new TimerWheel(counting);
    for (let i = 0; i < 10_000; i += 1) {
      wheel.arm(
        {
          dueTick: 0,
          expire: () => {
            inTurn += 1;
          },
        },
        1000,
      );
    }
    clock.advance(2000);
    assert.equal(
      turns.reduce((sum, count) => sum + count, 0),
      10_000,
    );
    assert.ok(Math.max(...turns) <= 250);
  });
});

describe('a circuit breaker', () => {
  it('waits a second for an answer, and asks again five seconds after a failure', async () => {
    const clock = new TestClock();
    const breaker = new CircuitBreaker(clock);
    assert.equal(await breaker.limit(Promise.resolve('answer')), 'answer');
    const late = breaker.limit(new Promise(() => {}));
    clock.advance(999);
    assert.equal(breaker.isOpen, false);
    clock.advance(1);
    await assert.rejects(late, { code: 'transport-failed' });
    clock.advance(4999);
    assert.equal(breaker.isOpen, true);
    clock.advance(1);
    assert.equal(breaker.isOpen, false);
    await assert.rejects(breaker.limit(Promise.reject(new Error('no'))), { message: 'no' });
    assert.equal(breaker.isOpen, true);
    assert.equal(clock.waiting, 0);
  });

  it('takes an answer that arrived in time while this process was busy', async () => {
    const alive = setInterval(() => {}, 1000);
    const breaker = new CircuitBreaker(systemClock);
    const answer = breaker.limit(stat(import.meta.dirname));
    const end = performance.now() + 1500;
    while (performance.now() < end);
    assert.ok((await answer).isDirectory());
    assert.equal(breaker.isOpen, false);
    clearInterval(alive);
  });
});

describe('parsing a URL', () => {
  it('still distinguishes valid from invalid hosts after ten thousand that are not ASCII', () => {
    for (let i = 0; i < 10_000; i += 1) {
      assert.ok(parseUrl('https://é.example.com/') !== null);
    }
    assert.equal(parseUrl('http://[::1'), null);
  });
});

describe('the message of a thrown value', () => {
  it('contains those of all attempts if a name has several addresses, and none can be connected to', async () => {
    const socket = net.connect({
      host: 'two.example',
      port: 1,
      autoSelectFamily: true,
      lookup: (_host, _options, found) =>
        found(null, [
          { address: '127.0.0.1', family: 4 },
          { address: '127.0.0.2', family: 4 },
        ]),
    });
    const [error] = await once(socket, 'close').catch((thrown: unknown) => [thrown]);
    assert.match(messageOf(error), /^connect .* 127\.0\.0\.1:1; connect .* 127\.0\.0\.2:1$/);
  });
});

describe('the clock that is never set', () => {
  it('shows the same in all processes of a machine', () => {
    const before = systemClock.monotonic();
    const other = execFileSync(process.execPath, ['-p', 'Number(process.hrtime.bigint()) / 1e6']);
    const after = systemClock.monotonic();
    const shown = Number(other);
    assert.ok(before <= shown && shown <= after, `${before}, ${shown}, ${after}`);
  });
});
