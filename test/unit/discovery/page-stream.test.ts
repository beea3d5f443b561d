import assert from 'node:assert/strict';
import { it } from 'node:test';

/** Its types are those of browsers, which the tests do not have. */
const MODULE = new URL('../../../src/client/live/page-stream.ts', import.meta.url).href;

interface Stream {
  follow(page: URL): void;
  close(): void;
}

type PageStream = new (settings: object, onOutdated: () => void) => Stream;

it('a live page takes no other page for its stream, such as that of a login, and waits longer each time', async (test) => {
  const page = new URL('https://example.com/');
  const document = { querySelector: () => null, querySelectorAll: () => [] };
  Object.assign(globalThis, { document, location: page });
  test.after(() =>
    ['document', 'location'].forEach((name) => Reflect.deleteProperty(globalThis, name)),
  );
  const waits: (number | undefined)[] = [];
  const { setTimeout: after } = globalThis;
  test.mock.method(Math, 'random', () => 0.5);
  const ended = new Promise<void>((resolve) => {
    test.mock.method(globalThis, 'setTimeout', (task: () => void, ms?: number) => {
      if (waits.push(ms) === 3) {
        stream.close();
        after(resolve, 50);
      }
      return after(task, 0);
    });
  });
  test.mock.method(globalThis, 'fetch', async () => {
    return new Response('<p>Log in</p>', { headers: { 'Content-Type': 'text/html' } });
  });
  const { PageStream } = (await import(MODULE)) as { PageStream: PageStream };
  const stream = new PageStream({ hub: '/.well-known/hub' }, () =>
    assert.fail('nothing was received'),
  );
  stream.follow(page);
  await ended;
  assert.deepEqual(waits, [500, 1000, 2000]);
});
