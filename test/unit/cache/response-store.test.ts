import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  ageOf,
  type CacheCounts,
  ResponseStore,
  reuseOf,
  type StoredResponse,
} from '../../../src/cache/response-store.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { momentOf } from '../../../src/kernel/clock.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { TestClock } from '../../support/test-clock.ts';

setFlagsFromString('--expose-gc');
/** Memory outside of the heap is released in later turns of the event loop. */
async function collect(): Promise<void> {
  for (let i = 0; i < 5; i += 1) {
    runInNewContext('gc')();
    await turn();
  }
}

const MEBIBYTE = 1024 * 1024;
const MAX_BYTES = 32 * MEBIBYTE;
const URLS = 1_000_000;
/** Responses that arrive in one turn of the event loop. */
const AT_ONCE = 500;

describe('the memory of a cache', () => {
  it('stays within max_size while a million URLs are stored, as the cache counts it and as V8 does', async () => {
    const counts = noCounts();
    const store = new ResponseStore(MAX_BYTES, new Scheduler(), counts);
    await collect();
    const before = memoryInUse();
    let most = 0;
    for (let stored = 0; stored < URLS; stored += AT_ONCE) {
      for (let i = stored; i < stored + AT_ONCE; i += 1) store.put(page(i));
      most = Math.max(most, store.bytes);
      await turn();
    }
    for (let turns = 0; turns < 1000 && store.bytes > MAX_BYTES; turns += 1) await turn();
    // An eighth more for a moment: the eviction runs in slices.
    assert.ok(most <= 1.125 * MAX_BYTES, `${most} bytes were counted`);
    assert.ok(store.bytes <= MAX_BYTES);
    assert.ok(store.bytes > MAX_BYTES / 2, 'the cache is full');
    assert.equal(counts.evicted, URLS - store.entries);
    await collect();
    const used = memoryInUse() - before;
    // docs/cache.md: a few per cent more than the count.
    assert.ok(
      used <= 1.1 * MAX_BYTES,
      `${used} bytes are in use for ${store.bytes} that are counted`,
    );
    assert.equal(store.clear('admin') > 0, true);
    await collect();
    assert.ok(memoryInUse() - before < MAX_BYTES / 4, 'what is purged is released');
  });
});

describe('the age of a stored response', () => {
  const freshness = { lifetimeMs: 60_000, isExplicit: true, whileRevalidateMs: 0, ifErrorMs: 0 };

  it('grows by the time that passes, however the system clock is set', () => {
    const clock = new TestClock();
    const stored = { ...page(0), freshness, received: momentOf(clock), initialAgeMs: 1_000 };
    clock.setBy(-86_400_000);
    clock.advance(58_000);
    assert.equal(ageOf(stored, clock), 59_000);
    assert.equal(reuseOf(stored, clock), 'fresh');
    clock.advance(1_000);
    assert.equal(reuseOf(stored, clock), 'after-validation');
  });

  it('includes the time in which the machine slept', () => {
    const clock = new TestClock();
    const stored = { ...page(0), freshness, received: momentOf(clock) };
    clock.setBy(61_000);
    assert.equal(ageOf(stored, clock), 61_000);
    assert.equal(reuseOf(stored, clock), 'after-validation');
  });
});

describe('responses of a cache that clients still read', () => {
  it('count until their last reader is done, whether or not they are still stored', async () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const [first, second] = [reader(), reader()];
    const stored = page(1, MEBIBYTE);
    store.put(stored);
    const reading = [store.whileRead(stored, first.done), store.whileRead(stored, second.done)];
    const whileStored = store.bytes;
    assert.equal(store.purge(stored.names[0] ?? '', 'admin'), 1);
    assert.equal(store.entries, 0);
    assert.equal(store.bytes, MEBIBYTE, 'the body, once');
    assert.ok(store.bytes < whileStored);
    first.leave();
    await reading[0];
    assert.equal(store.bytes, MEBIBYTE);
    second.leave();
    await reading[1];
    assert.equal(store.bytes, 0);
  });

  it('count after everything was purged, and if reading fails', async () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const stored = page(1, MEBIBYTE);
    store.put(stored);
    const one = reader();
    const reading = store.whileRead(stored, one.done);
    store.clear('admin');
    assert.equal(store.bytes, MEBIBYTE);
    one.fail();
    await assert.rejects(reading);
    assert.equal(store.bytes, 0);
  });

  it('leave no space for new ones if they are purged again and again', async () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const readers = [];
    for (let round = 0; round < 100; round += 1) {
      const stored = page(1, MEBIBYTE);
      store.put(stored);
      const one = reader();
      if (store.has(stored.key)) readers.push({ one, reading: store.whileRead(stored, one.done) });
      store.purge(stored.names[0] ?? '', 'update');
      assert.ok(store.bytes <= 10 * MEBIBYTE, `${store.bytes} bytes in round ${round}`);
    }
    assert.equal(readers.length, 9, 'ten do not fit with their fields');
    for (const { one, reading } of readers) {
      one.leave();
      await reading;
    }
    assert.equal(store.bytes, 0);
    store.put(page(1, MEBIBYTE));
    assert.equal(store.entries, 1);
  });

  it('are not evicted, because that would release nothing', async () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const [read, unread] = [page(1, 4 * MEBIBYTE), page(2, 4 * MEBIBYTE)];
    store.put(read);
    store.put(unread);
    const one = reader();
    const reading = store.whileRead(read, one.done);
    store.put(page(3, 4 * MEBIBYTE));
    assert.equal(store.has(read.key), true);
    assert.equal(store.has(unread.key), false);
    store.put(page(4, 7 * MEBIBYTE));
    assert.equal(store.has(page(4).key), false, 'it does not fit beside what is read');
    assert.equal(store.entries, 2);
    one.leave();
    await reading;
    store.put(page(4, 7 * MEBIBYTE));
    assert.equal(store.has(page(4).key), true);
  });

  it('count with the fields for caches', () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const tags = HeaderList.of({ 'Cache-Tags': 'x'.repeat(100_000) });
    store.put({ ...page(1), hidden: tags });
    assert.ok(store.bytes > 100_000, String(store.bytes));
  });

  it('count once if their body is stored again after a confirmation', async () => {
    const store = new ResponseStore(10 * MEBIBYTE, new Scheduler(), noCounts());
    const stored = page(1, MEBIBYTE);
    store.put(stored);
    const before = store.bytes;
    const one = reader();
    const reading = store.whileRead(stored, one.done);
    store.put({ ...stored, received: { nowMs: 1, monotonicMs: 1 } });
    assert.equal(store.bytes, before);
    one.leave();
    await reading;
    assert.equal(store.bytes, before);
  });
});

/** Somebody who reads until the test says so. */
function reader(): { done: Promise<void>; leave: () => void; fail: () => void } {
  let leave = (): void => {};
  let fail = (): void => {};
  const done = new Promise<void>((resolve, reject) => {
    leave = resolve;
    fail = () => reject(new Error('the client left'));
  });
  return { done, leave, fail };
}

/** A page with the fields of an app, in memory of its own. */
function page(number: number, bytes = 600): StoredResponse {
  const path = `/pages/${number}`;
  return {
    key: `GET http://example.com${path}`,
    vary: [],
    variant: '',
    status: 200,
    headers: HeaderList.of({
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Length': String(bytes),
      ETag: `"${number}"`,
      'Last-Modified': 'Mon, 23 Nov 2026 08:00:00 GMT',
      'Cache-Control': 'public, max-age=3600',
    }),
    replacedPreset: [],
    hidden: new HeaderList(),
    source: 'upstream',
    body: Buffer.allocUnsafeSlow(bytes),
    names: [`//example.com${path}`, path],
    freshness: { lifetimeMs: 3_600_000, isExplicit: true, whileRevalidateMs: 0, ifErrorMs: 0 },
    revalidatesAlways: false,
    isForEveryone: true,
    received: { nowMs: 0, monotonicMs: 0 },
    initialAgeMs: 0,
  };
}

function memoryInUse(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function noCounts(): CacheCounts {
  return {
    ...{ hits: 0, misses: 0, stale: 0, collapsed: 0, bypassed: 0, evicted: 0 },
    purged: { update: 0, method: 0, admin: 0, missed: 0 },
  };
}
