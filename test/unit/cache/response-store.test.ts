import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { type CacheCounts, ResponseStore } from '../../../src/cache/response-store.ts';
import type { StoredResponse } from '../../../src/cache/stored-response.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';

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

/** A small page with the fields of an app, in memory of its own. */
function page(number: number): StoredResponse {
  const path = `/pages/${number}`;
  return {
    key: `GET http://example.com${path}`,
    vary: [],
    variant: '',
    status: 200,
    headers: HeaderList.of({
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Length': '600',
      ETag: `"${number}"`,
      'Last-Modified': 'Mon, 23 Nov 2026 08:00:00 GMT',
      'Cache-Control': 'public, max-age=3600',
    }),
    hidden: new HeaderList(),
    source: 'upstream',
    body: Buffer.allocUnsafeSlow(600),
    names: [`//example.com${path}`, path],
    freshness: { lifetimeMs: 3_600_000, isExplicit: true, whileRevalidateMs: 0, ifErrorMs: 0 },
    revalidatesAlways: false,
    isForEveryone: true,
    responseMs: 0,
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
