import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ResponseCaches } from '../../../src/cache/response-caches.ts';
import {
  type ResponseStore,
  sizeOf,
  type StoredResponse,
} from '../../../src/cache/response-store.ts';
import { shortened, variantKey } from '../../../src/cache/cache-key.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Budget, Scheduler } from '../../../src/kernel/scheduler.ts';

function stored(key: string, more: Partial<StoredResponse> = {}): StoredResponse {
  return {
    key,
    vary: [],
    variant: '',
    status: 200,
    headers: new HeaderList(),
    replacedPreset: [],
    hidden: new HeaderList(),
    source: 'upstream',
    body: Buffer.alloc(1_000),
    names: [key],
    freshness: { lifetimeMs: 1, isExplicit: true, whileRevalidateMs: 0, ifErrorMs: 0 },
    revalidatesAlways: false,
    isForEveryone: true,
    received: { nowMs: 0, monotonicMs: 0 },
    initialAgeMs: 0,
    ...more,
  };
}

const NOTHING = new HeaderList();

function open(maxBytes = 1_000_000): { caches: ResponseCaches; store: ResponseStore } {
  const caches = new ResponseCaches(new Scheduler());
  return { caches, store: caches.acquire('a', maxBytes).value };
}

describe('the store of a cache', () => {
  it('drops the least recently used responses, a few in each slice', () => {
    const size = sizeOf(stored('/0000'));
    const { store } = open(100 * size);
    for (let i = 0; i < 100; i += 1) store.put(stored(`/${String(i).padStart(4, '0')}`));
    store.find('/0000', NOTHING);
    for (let i = 100; i < 110; i += 1) store.put(stored(`/${String(i).padStart(4, '0')}`));
    assert.equal(store.run(new Budget(1_000)), true);
    store.run(new Budget(1_000_000));
    assert.deepEqual([store.entries, store.bytes], [100, 100 * size]);
    assert.equal(typeof store.find('/0000', NOTHING), 'object');
    assert.equal(store.find('/0001', NOTHING), null);
    assert.equal(store.counts.evicted, 10);
  });

  it('finds a variant by values that are written differently, but not by similar ones', () => {
    const key = (name: string, value: string): string =>
      variantKey([name.toLowerCase()], HeaderList.of({ [name]: value }));
    for (const [name, one, other] of [
      ['X-List', 'a,\tb', 'a , b'],
      ['Accept-Language', 'de, EN', 'DE,en'],
      ['Accept-Encoding', 'gzip, br', 'br, gzip'],
    ] as const) {
      assert.equal(key(name, one), key(name, other), name);
    }
    for (const [name, one, other] of [
      ['X-List', 'a', 'a,'],
      ['X-List', 'a,b', 'a,,b'],
      ['X-List', 'a', 'a"'],
      ['X-List', '"a, b"', '"a,b"'],
      ['X-List', 'a,b', 'a,\u00a0b'],
      ['X-List', 'a', 'A'],
      ['Accept-Language', 'de, en', 'en, de'],
      ['Accept-Encoding', 'gzip;q=1, br', 'br, gzip;q=1'],
    ] as const) {
      assert.notEqual(key(name, one), key(name, other), `${name}: ${one}`);
    }
  });

  it('keeps a limited number of variants of a URL, and finds the matching one', () => {
    const { store } = open();
    const ask = (language: string): HeaderList => HeaderList.of({ 'Accept-Language': language });
    const vary = ['accept-language'];
    for (let i = 0; i < 40; i += 1) {
      store.put(stored('/a', { vary, variant: variantKey(vary, ask(`l${i}`)) }));
    }
    assert.equal(store.entries, 32);
    assert.equal(store.find('/a', ask('l0')), 'no-variant');
    assert.equal(typeof store.find('/a', ask('L39')), 'object');
  });

  it('keeps no response that is larger than the store', () => {
    const { store } = open(500);
    store.put(stored('/a'));
    assert.deepEqual([store.entries, store.bytes], [0, 0]);
  });
});

describe('purging', () => {
  it('need not reach a store that nobody leases, because it is empty and stays so', () => {
    const caches = new ResponseCaches(new Scheduler());
    const lease = caches.acquire('a', 1_000_000);
    const store = lease.value;
    store.put(stored('/a'));
    lease.release();
    assert.equal(store.find('/a', NOTHING), null);
    store.put(stored('/a'));
    assert.equal(store.find('/a', NOTHING), null);
    assert.equal(store.bytes, 0);
  });

  it('remembers long names in little memory, and finds them', () => {
    const { caches } = open();
    const moment = caches.began();
    const long = `//example.com/${'x'.repeat(10_000)}`;
    caches.purge([`https:${long}`], 'update');
    assert.equal(caches.wasPurgedSince(moment, [long]), true);
    assert.equal(caches.wasPurgedSince(moment, [`${long}x`]), false);
    assert.ok(shortened(long).length < 300);
  });

  it('drops responses by URL (whatever its scheme), by tag and by pattern', async () => {
    const { caches, store } = open();
    const put = (): void => {
      store.put(stored('1', { names: ['//example.com/a', 'tag'] }));
      store.put(stored('2', { names: ['//example.com/b', 'tag'] }));
      store.put(stored('3', { names: ['//example.com/b/c'] }));
    };
    put();
    assert.equal(caches.purge(['https://example.com/a'], 'update'), 1);
    put();
    assert.equal(caches.purge(['HTTP://EXAMPLE.COM/a', 'none'], 'update'), 1);
    put();
    assert.equal(caches.purge(['tag'], 'update'), 2);
    put();
    assert.equal(await caches.order({ kind: 'pattern', pattern: 'https://example.com/b*' }), 2);
    assert.equal(await caches.order({ kind: 'all' }), 1);
    assert.deepEqual([store.entries, store.bytes], [0, 0]);
  });

  it('by a pattern takes several turns, for which requests wait', async () => {
    const { caches, store } = open(10_000_000);
    for (let i = 0; i < 1_000; i += 1) store.put(stored(`//example.com/${i}`));
    const purging = caches.order({ kind: 'pattern', pattern: 'https://example.com/*' });
    const behind = caches.caughtUp();
    assert.ok(behind !== null);
    assert.ok(store.entries > 0, 'it goes on');
    await behind;
    assert.equal(store.entries, 0);
    assert.equal(await purging, 1_000);
    assert.equal(caches.caughtUp(), null);
  });

  it('is remembered while a request is in progress, up to a limit', () => {
    const { caches } = open();
    const moment = caches.began();
    caches.purge(['a'], 'update');
    assert.equal(caches.wasPurgedSince(moment, ['a']), true);
    assert.equal(caches.wasPurgedSince(moment, ['b']), false);
    assert.equal(caches.wasPurgedSince(caches.moment, ['a']), false);
    for (let i = 0; i < 10_001; i += 1) caches.purge([`x${i}`], 'update');
    // Nobody knows any more what was purged.
    assert.equal(caches.wasPurgedSince(moment, ['b']), true);
    caches.ended();
    assert.equal(caches.wasPurgedSince(caches.began(), ['b']), false);
  });
});
