import assert from 'node:assert/strict';
import { it, type TestContext } from 'node:test';

/** Its types are those of browsers, which the tests do not have. */
const MODULE = new URL('../../../src/client/live/page-stream.ts', import.meta.url).href;

interface Stream {
  follow(page: URL): void;
  close(): void;
  closeSoon(): void;
}

type PageStream = new (settings: object, onOutdated: () => void) => Stream;

/** The globals of a page that is shown, until the test ends. */
function openPage(test: TestContext): URL {
  const page = new URL('https://example.com/');
  const document = { hidden: false, querySelector: () => null, querySelectorAll: () => [] };
  Object.assign(globalThis, { document, location: page });
  test.after(() =>
    ['document', 'location'].forEach((name) => Reflect.deleteProperty(globalThis, name)),
  );
  return page;
}

it('a live page takes no other page for its stream, such as that of a login, and waits longer each time', async (test) => {
  const page = openPage(test);
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

it('a page that is hidden for less than ten seconds keeps its stream', async (test) => {
  const page = openPage(test);
  const signals: (AbortSignal | null | undefined)[] = [];
  test.mock.timers.enable({ apis: ['setTimeout'] });
  test.mock.method(globalThis, 'fetch', (_url: URL, { signal }: RequestInit) => {
    signals.push(signal);
    return new Promise(() => {});
  });
  const { PageStream } = (await import(MODULE)) as { PageStream: PageStream };
  const stream = new PageStream({ hub: '/.well-known/hub' }, () => {});
  stream.follow(page);
  stream.closeSoon();
  test.mock.timers.tick(9_999);
  stream.follow(page);
  test.mock.timers.tick(10_000);
  assert.deepEqual(
    signals.map((signal) => signal?.aborted),
    [false],
  );
  stream.closeSoon();
  test.mock.timers.tick(10_000);
  assert.equal(signals[0]?.aborted, true);
});
