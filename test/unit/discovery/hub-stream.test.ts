import assert from 'node:assert/strict';
import { it } from 'node:test';

/** Its types are those of browsers, which the tests do not have. */
const MODULE = new URL('../../../src/client/live/hub-stream.ts', import.meta.url).href;

it('a live page takes no other page for its stream, such as that of a login, and waits longer each time', async (test) => {
  const end = new AbortController();
  const waits: (number | undefined)[] = [];
  const { setTimeout: after } = globalThis;
  test.mock.method(Math, 'random', () => 0.5);
  test.mock.method(globalThis, 'setTimeout', (task: () => void, ms?: number) => {
    if (waits.push(ms) === 3) end.abort();
    return after(task, 0);
  });
  test.mock.method(globalThis, 'fetch', async () => {
    return new Response('<p>Log in</p>', { headers: { 'Content-Type': 'text/html' } });
  });
  const unexpected = (): never => assert.fail('nothing was received');
  const { followHub } = (await import(MODULE)) as { followHub(options: object): Promise<void> };
  await followHub({
    address: new URL('https://example.com/.well-known/hub'),
    topics: ['https://example.com/'],
    relation: 'hub',
    cursor: () => null,
    signal: end.signal,
    update: unexpected,
    outdated: unexpected,
    renew: unexpected,
  });
  assert.deepEqual(waits, [500, 1000, 2000]);
});
