import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { ChangesConfig } from '../../../src/config/config.ts';
import {
  type AnnouncedHub,
  type AnnouncedUpdate,
  UnstoredChanges,
} from '../../../src/discovery/announced-hub.ts';
import { createChanges } from '../../../src/discovery/changes.ts';
import { createPublishedAnswers } from '../../../src/discovery/published-answers.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import type { Clock } from '../../../src/kernel/clock.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { send } from '../../support/http.ts';
import { serveExchanges } from '../http/exchange-server.ts';

interface Slow {
  post(path: string): Promise<{ readonly status: number }>;
  /** Resolves once this number of updates are on their way to the history. */
  announced(count: number): Promise<void>;
  /** The history has stored an update. */
  store(index: number): void;
  /** Ends every wait of this length. */
  pass(ms: number): void;
}

const WINDOW_MS = 250;

/** Responses of an app in front of a hub that stores nothing before the test says so. */
async function slow(
  test: TestContext,
  windowMs: number,
  mode: ChangesConfig['mode'] = 'async',
): Promise<Slow> {
  const stores: (() => void)[] = [];
  const timers = new Map<() => void, number>();
  const watchers = new Set<() => void>();
  const clock: Clock = {
    ...systemClock,
    after(ms, task) {
      timers.set(task, ms);
      return () => void timers.delete(task);
    },
  };
  const announce = (_update: AnnouncedUpdate): Promise<'stored'> =>
    new Promise((resolve) => {
      stores.push(() => resolve('stored'));
      for (const look of watchers) look();
    });
  const hub = {
    path: '/hub',
    unstored: new UnstoredChanges(clock),
    announcements: { merged: 0, refused: 0 },
  } as unknown as AnnouncedHub;
  const config = {
    ...{ methods: ['POST'], topics: ['{request.uri.without_query}'], also: [], alsoFor: [] },
    ...{ visibility: 'public', data: 'change', mode, windowMs },
  } as unknown as ChangesConfig;
  const changes = createChanges({
    ...{ config, hub, announce, clock, alsoFor: [] },
    concerns: ({ target }) => !target.startsWith('/says'),
    topicOf: (url) => ({ topic: url.origin + url.pathname, mark: '' }),
    expand: (template) => template,
  });
  const published = createPublishedAnswers({ hub, announce, clock, concerns: () => true });
  const server = await serveExchanges((exchange) => {
    published(exchange);
    changes.hook(exchange);
    const [path = '', status = ''] = exchange.target.split('?');
    const said: Record<string, string> = path === '/says' ? { 'hub-publish': '"/b"' } : {};
    const headers = HeaderList.of({ location: '/a', ...said });
    exchange.begin({ status: Number(status), headers, source: 'upstream' }).end();
  });
  test.after(() => server.close());
  return {
    post: (path) => send(`http://localhost:${server.http1}${path}`, { method: 'POST' }),
    announced: (count) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (stores.length >= count) resolve();
        };
        watchers.add(look);
        look();
      }),
    store: (index) => stores[index]?.(),
    pass(ms) {
      for (const [task, delay] of timers) {
        if (delay === ms) task();
      }
    },
  };
}

/** Whether a response arrives before those of several requests that come after it. */
async function isHeld(its: Slow, response: Promise<unknown>, status = 200): Promise<boolean> {
  let isHere = false;
  void response.then(() => {
    isHere = true;
  });
  for (let count = 0; count < 5; count += 1) await its.post(`/other${count}?${status}`);
  return !isHere;
}

describe('a redirect after a form', () => {
  for (const path of ['/form?303', '/form?302', '/says?303']) {
    it(`begins when its update is stored, so the next page does not hear of it: ${path}`, async (test) => {
      const its = await slow(test, 0);
      const response = its.post(path);
      await its.announced(1);
      assert.ok(await isHeld(its, response));
      its.store(0);
      await response;
    });
  }

  it('waits for the end of the burst if its change is merged with others', async (test) => {
    const its = await slow(test, WINDOW_MS);
    await its.post('/form?200');
    const responses = [its.post('/form?200'), its.post('/form?303')] as const;
    // The same topic: only the redirect is interested in when it is stored.
    await responses[0];
    assert.ok(await isHeld(its, responses[1]));
    its.pass(WINDOW_MS);
    await its.announced(7);
    assert.ok(await isHeld(its, responses[1]));
    its.store(6);
    await responses[1];
  });

  it('waits for a second at most, because no response depends on the hub', async (test) => {
    const its = await slow(test, 0);
    const response = its.post('/form?303');
    await its.announced(1);
    its.pass(1000);
    await response;
  });
});

describe('a response with sync', () => {
  for (const status of [200, 303]) {
    it(`waits for the end of the burst if its change is merged, and for the history without a limit: ${status}`, async (test) => {
      const its = await slow(test, WINDOW_MS, 'sync');
      const first = its.post('/form?200');
      await its.announced(1);
      its.store(0);
      await first;
      const second = its.post(`/form?${status}`);
      assert.ok(await isHeld(its, second, 404));
      its.pass(WINDOW_MS);
      await its.announced(2);
      its.pass(1000);
      assert.ok(await isHeld(its, second, 404));
      its.store(1);
      await second;
    });
  }
});
