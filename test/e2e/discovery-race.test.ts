import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { findHub } from '../../src/client/discovery.ts';
import { subscribe } from '../../src/client/subscribe.ts';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { clientBundle } from '../unit/discovery/client-bundle.ts';
import { type Site, startSite } from '../unit/discovery/site.ts';
import { rounds } from '../support/rounds.ts';

const LOADS = rounds(60, 200);
const RENDERING_MS = 300;
const INTERVAL_MS = 10;
/** Updates that each load waits for: they reach well beyond its rendering. */
const WANTED = 40;
const TOPIC = 'https://example.com/counter';

/** What one page load has seen. */
interface Load {
  /** The state that the page shows: the number that was current when its rendering began. */
  readonly state: number;
  /** From the `Link` header of the response that brought it. */
  readonly cursor: string | null;
  readonly ids: readonly string[];
}

/** An app that takes its time, while a number is published a hundred times a second. */
class Counter {
  current = 0;
  #stopped = false;
  #publishing: Promise<void> | undefined;

  readonly answer = (
    _request: IncomingMessage,
    response: ServerResponse,
    render: (state: number) => string,
  ): void => {
    const page = render(this.current);
    setTimeout(() => response.end(page), RENDERING_MS);
  };

  start(site: Site): void {
    this.#publishing = this.#publish(site);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#publishing;
  }

  async #publish(site: Site): Promise<void> {
    const began = Date.now();
    while (!this.#stopped) {
      const next = this.current + 1;
      // Real apps change first and publish then.
      this.current = next;
      await site.publish({ topic: TOPIC, id: `n-${next}`, data: String(next) });
      await sleep(Math.max(0, began + next * INTERVAL_MS - Date.now()));
    }
  }
}

function check({ state, cursor, ids }: Load): void {
  const numbers = ids.map((id) => Number(id.slice(2)));
  const [first = 0] = numbers;
  assert.deepEqual(
    numbers,
    Array.from({ length: numbers.length }, (_, index) => first + index),
    'no gap and no repetition',
  );
  assert.ok(numbers.length >= WANTED);
  assert.equal(first, cursor === 'earliest' ? 1 : Number(cursor?.slice(2)) + 1, 'from the cursor');
  assert.ok(first <= state + 1, `the page shows ${state}, the updates begin with ${first}`);
  assert.ok(
    (numbers.at(-1) ?? 0) > state + RENDERING_MS / INTERVAL_MS / 2,
    'the updates of the time of rendering are among them',
  );
}

/** Runs all loads, so many at a time. */
async function inParallel(width: number, load: () => Promise<Load>): Promise<Load[]> {
  const loads: Load[] = [];
  let begun = 0;
  const worker = async (): Promise<void> => {
    while (begun < LOADS) {
      begun += 1;
      loads.push(await load());
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  return loads;
}

describe('discovery: the race between rendering and subscribing', () => {
  it(`misses and duplicates nothing in ${LOADS} loads of a resource, in Node`, async (test) => {
    const { site, counter } = await start(test, (request, response) =>
      counter.answer(request, response, (state) => JSON.stringify({ state })),
    );
    const loads = await inParallel(25, () => loadInNode(site));
    await counter.stop();
    assert.equal(loads.length, LOADS);
    for (const load of loads) check(load);
  });

  it(`misses and duplicates nothing in ${LOADS} page loads, in Chromium`, async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const script = await clientBundle();
    const { site, counter } = await start(test, (request, response) => {
      if (request.url === '/client.js') {
        response.setHeader('Content-Type', 'text/javascript');
        response.setHeader('Cache-Control', 'max-age=600');
        response.end(script);
        return;
      }
      response.setHeader('Content-Type', 'text/html');
      counter.answer(request, response, renderPage);
    });
    const browser = await launchChromium(test, executable, null);
    const pages = await Promise.all(
      Array.from({ length: 8 }, async () => (await browser.newContext()).newPage()),
    );
    const loads = await inParallel(pages.length, async () => {
      const page = pages.pop() ?? assert.fail('more loads than pages');
      const response = await page.goto(`${site.origin}/`, { waitUntil: 'domcontentloaded' });
      const link = (await response?.headerValue('link')) ?? null;
      const load = await page.evaluate<{ state: number; ids: string[] }>('loaded');
      pages.push(page);
      return { ...load, cursor: findHub(link, 'hub', site.origin)?.cursor ?? null };
    });
    await counter.stop();
    assert.equal(loads.length, LOADS);
    for (const load of loads) check(load);
  });
});

async function start(
  test: TestContext,
  app: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ readonly site: Site; readonly counter: Counter }> {
  const counter = new Counter();
  const site = await startSite(test, app);
  test.after(() => counter.stop());
  counter.start(site);
  return { site, counter };
}

function loadInNode(site: Site): Promise<Load> {
  return new Promise((resolve) => {
    const ids: string[] = [];
    let state = 0;
    let cursor: string | null = null;
    const end = subscribe(`${site.origin}/`, TOPIC, {
      state: async (response) => {
        cursor = findHub(response.headers.get('link'), 'hub', site.origin)?.cursor ?? null;
        const body: unknown = await response.json();
        assert.ok(typeof body === 'object' && body !== null && 'state' in body);
        state = Number(body.state);
      },
      update: ({ id }) => {
        ids.push(id);
        if (ids.length < WANTED) return;
        end();
        resolve({ state, cursor, ids });
      },
    });
  });
}

function renderPage(state: number): string {
  return `<!doctype html>
<script type="module">
	import { subscribe } from '/client.js';
	const ids = [];
	const end = subscribe(document, '${TOPIC}', {
		update({ id }) {
			ids.push(id);
			if (ids.length < ${WANTED}) return;
			end();
			finish({ state: ${state}, ids });
		},
	});
</script>
<script>
	let finish;
	const loaded = new Promise((resolve) => { finish = resolve; });
</script>
`;
}
