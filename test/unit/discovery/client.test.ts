import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import type { RequestListener, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { gzipSync } from 'node:zlib';
import { findHub } from '../../../src/client/discovery.ts';
import { readEvents, type Update } from '../../../src/client/events.ts';
import { subscribe, type SubscribeOptions } from '../../../src/client/subscribe.ts';
import { clientBundle } from './client-bundle.ts';
import { listen, type Site, startSite } from './site.ts';

const MAX_GZIPPED_BYTES = 2048;

/** A subscription whose updates are kept. */
class Recorder {
  readonly ids: string[] = [];
  readonly states: string[] = [];
  readonly statuses: string[] = [];
  #waiting: (() => void)[] = [];

  constructor(
    test: TestContext,
    url: string,
    matchers: Parameters<typeof subscribe>[1],
    options: Partial<SubscribeOptions> = {},
  ) {
    const end = subscribe(url, matchers, {
      state: async (response) => {
        this.states.push(await response.text());
        this.#wake();
      },
      update: ({ id }) => this.record(id),
      status: (status) => {
        this.statuses.push(status);
        this.#wake();
      },
      ...options,
    });
    test.after(end);
  }

  record(id: string): void {
    this.ids.push(id);
    this.#wake();
  }

  async until(condition: (recorder: Recorder) => boolean): Promise<void> {
    while (!condition(this)) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

const page: RequestListener = (_, response) => response.end('the state');

const publishTo = (site: Site, id: string) =>
  site.publish({ topic: 'https://example.com/a', data: `data of ${id}`, id });

describe('client: subscribe', () => {
  it(`is at most ${MAX_GZIPPED_BYTES} bytes minified and gzipped`, async () => {
    const bytes = gzipSync(await clientBundle(), { level: 9 }).length;
    assert.ok(bytes <= MAX_GZIPPED_BYTES, `${bytes} bytes`);
  });

  it('refuses options without the function update, and asks for nothing', (test) => {
    const { mock } = test.mock.method(globalThis, 'fetch', async () => new Response());
    for (const options of [undefined, {}, { update: 'x' }, () => {}]) {
      assert.throws(() => subscribe('/', '*', options as never), /the function update/);
    }
    assert.equal(mock.callCount(), 0);
  });

  it('adds no listener to its signal with each attempt, and leaves none on that of the page after its end', async (test) => {
    const signals = new Set<AbortSignal>();
    let attempts = 0;
    let finished = (): void => {};
    const waited = new Promise<void>((resolve) => (finished = resolve));
    const counts: number[] = [];
    test.mock.method(Math, 'random', () => -0.5);
    test.mock.method(globalThis, 'fetch', async (_url: string, init: RequestInit) => {
      if (init.signal) signals.add(init.signal);
      attempts += 1;
      for (const signal of signals) counts.push(getEventListeners(signal, 'abort').length);
      if (attempts === 5) finished();
      throw new Error('no network');
    });
    const { signal } = new AbortController();
    const end = subscribe('https://example.com/', '*', { update: () => {}, signal });
    test.after(end);
    await waited;
    assert.equal(counts[4], counts[1], String(counts));
    assert.equal(getEventListeners(signal, 'abort').length, 1);
    end();
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('yields the state, then every update since', async (test) => {
    const site = await startSite(test, page);
    await publishTo(site, 'before');
    const recorder = new Recorder(test, `${site.origin}/page`, 'https://example.com/a', {
      state: async (response) => {
        await publishTo(site, 'é while rendering');
        recorder.states.push(await response.text());
      },
    });
    await recorder.until(({ ids }) => ids.length === 1);
    await publishTo(site, 'live');
    await recorder.until(({ ids }) => ids.length === 2);
    assert.deepEqual(recorder.states, ['the state']);
    assert.deepEqual(recorder.ids, ['é while rendering', 'live']);
  });

  it('resumes after the last update when the stream ends, without gap or repetition', async (test) => {
    const site = await startSite(test, page, { hub: 'anonymous\n\t\twrite_timeout 300ms' });
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    const ids: string[] = [];
    const reconnected = () => recorder.statuses.filter((status) => status === 'open').length;
    // What is published before it has read the page belongs to the state, and is not repeated.
    await recorder.until(({ statuses }) => statuses.includes('open'));
    while (reconnected() < 3) {
      ids.push(`n-${ids.length}`);
      await publishTo(site, ids.at(-1) ?? '');
      // The history keeps 1,000 updates. A client that fell behind it would fetch the state again.
      await recorder.until((all) => all.ids.length >= ids.length - 100);
    }
    await recorder.until((all) => all.ids.length >= ids.length);
    assert.deepEqual(recorder.ids, ids);
    assert.equal(recorder.states.length, 1, 'the state is not fetched again');
    assert.deepEqual(recorder.statuses.slice(0, 3), ['open', 'connecting', 'open']);
  });

  it('fetches the state again when the history does not reach back to its cursor', async (test) => {
    let answers = 0;
    const site = await startSite(test, (_, response) => {
      answers += 1;
      // As after a page that has been open for longer than the history lasts.
      if (answers === 1) {
        response.setHeader('Link', '</.well-known/hub>; rel="hub"; last-event-id="long gone"');
      }
      response.end(`state ${answers}`);
    });
    await publishTo(site, 'old');
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    await recorder.until(({ statuses }) => statuses.includes('open'));
    await publishTo(site, 'new');
    await recorder.until(({ ids }) => ids.length > 0);
    assert.deepEqual(recorder.states, ['state 1', 'state 2']);
    assert.deepEqual(recorder.ids, ['new'], 'what the second state shows is not repeated');
  });

  it('retries while the resource fails, and returns no error page as state', async (test) => {
    let answers = 0;
    const site = await startSite(test, (_, response) => {
      answers += 1;
      response.statusCode = answers === 1 ? 500 : 200;
      response.end(`answer ${answers}`);
    });
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    await recorder.until(({ states }) => states.length > 0);
    assert.deepEqual(recorder.states, ['answer 2']);
    assert.equal(recorder.statuses[0], 'connecting');
  });

  it('cancels the body of a response that it cannot use', async (test) => {
    let answers = 0;
    let closed = 0;
    const site = await startSite(test, (_, response) => {
      answers += 1;
      if (answers > 1) return void response.end('the state');
      response.once('close', () => (closed += 1));
      response.writeHead(500).write('an error page without an end');
    });
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    await recorder.until(({ states }) => states.length > 0);
    assert.equal(closed, 1);
  });

  it('fetches a state again whose transfer breaks off, and passes the function only a whole one', async (test) => {
    let answers = 0;
    const port = await listen(test, (request, response) => {
      if (request.url !== '/') {
        response.setHeader('Content-Type', 'text/event-stream').write(':\n');
        return;
      }
      answers += 1;
      response.writeHead(200, { Link: '</hub>; rel=hub', 'Content-Length': 9 });
      if (answers === 1) response.write('the', () => response.destroy());
      else response.end('the state');
    });
    const recorder = new Recorder(test, `http://localhost:${port}/`, '*');
    await recorder.until(({ statuses }) => statuses.includes('open'));
    assert.deepEqual(recorder.states, ['the state']);
    assert.deepEqual(recorder.statuses, ['connecting', 'open']);
  });

  it('takes no page for a stream, such as that of a login to which it is redirected', async (test) => {
    let answers = 0;
    const port = await listen(test, (request, response) => {
      response.setHeader('Link', '</hub>; rel=hub');
      if (request.url === '/') response.end();
      else if (request.url === '/login') response.setHeader('Content-Type', 'text/html').end();
      else if (++answers === 1) response.writeHead(302, { Location: '/login' }).end();
      else response.setHeader('Content-Type', 'text/event-stream; charset=utf-8').end();
    });
    const recorder = new Recorder(test, `http://localhost:${port}/`, '*');
    await recorder.until(({ statuses }) => statuses.length === 2);
    assert.deepEqual(recorder.statuses, ['connecting', 'open']);
  });

  it('reports an error of a function, async or not, and goes on', async (test) => {
    const site = await startSite(test, page);
    const reported: unknown[] = [];
    const { queueMicrotask: queue } = globalThis;
    test.mock.method(globalThis, 'queueMicrotask', (task: () => void) => {
      queue(() => {
        try {
          task();
        } catch (error) {
          reported.push(error);
        }
      });
    });
    const fail = (error: string): never => {
      throw error;
    };
    const cases: Record<string, { state: () => unknown; update: () => unknown }> = {
      throws: { state: () => fail('state'), update: () => fail('update') },
      rejects: { state: async () => fail('state'), update: async () => fail('update') },
      returns: { state: () => undefined, update: () => undefined },
    };
    for (const [how, { state, update }] of Object.entries(cases)) {
      const end = new AbortController();
      const client = new Recorder(test, `${site.origin}/page`, '*', {
        signal: end.signal,
        // Pages in JavaScript also pass functions that are not async.
        state: state as () => Promise<void>,
        update: ({ id }) => {
          client.record(id);
          return update();
        },
      });
      await client.until(() => client.statuses.length > 0);
      assert.deepEqual(client.statuses, ['open'], how);
      await publishTo(site, `urn:${how}`);
      await client.until(() => client.ids.length > 0);
      end.abort();
    }
    assert.deepEqual(reported, ['state', 'update', 'state', 'update']);
  });

  it('backs off while the cursor of the resource is missing from the history', async (test) => {
    let answers = 0;
    const site = await startSite(test, (_, response) => {
      answers += 1;
      response.setHeader('Link', '</.well-known/hub>; rel="hub"; last-event-id="long gone"');
      response.end();
    });
    await publishTo(site, 'old');
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    await recorder.until(({ statuses }) => statuses.length > 0);
    assert.deepEqual(recorder.statuses, ['connecting']);
    assert.equal(answers, 2, 'once more at once, then only after a wait');
  });

  it('stops when it is refused even with a renewed cookie, and reports that', async (test) => {
    let answers = 0;
    const site = await startSite(
      test,
      (_, response) => {
        answers += 1;
        response.end();
      },
      { hub: '' },
    );
    const recorder = new Recorder(test, `${site.origin}/`, '*');
    await recorder.until(({ statuses }) => statuses.length > 0);
    assert.deepEqual(recorder.statuses, ['refused']);
    assert.equal(answers, 2, 'the state, and once for a new cookie');
  });

  it('fetches a relative resource again from where it was, although a router has changed the address since', async (test) => {
    let answers = 0;
    const paths: (string | undefined)[] = [];
    const site = await startSite(test, ({ url }, response) => {
      paths.push(url);
      answers += 1;
      // As after a page that has been open for longer than the history lasts.
      if (answers === 1) {
        response.setHeader('Link', '</.well-known/hub>; rel="hub"; last-event-id="long gone"');
      }
      response.end('state');
    });
    await publishTo(site, 'old');
    const document = { baseURI: `${site.origin}/books/` };
    Object.assign(globalThis, { document });
    test.after(() => Reflect.deleteProperty(globalThis, 'document'));
    const recorder = new Recorder(test, 'state', '*');
    document.baseURI = `${site.origin}/books/7/reviews/`;
    await recorder.until(({ statuses }) => statuses.includes('open'));
    assert.deepEqual(paths, ['/books/state', '/books/state']);
  });

  it('resolves a relative pattern against the page', async (test) => {
    const site = await startSite(test, page);
    const matcher = { urlpattern: '/users/:name/news' };
    const recorder = new Recorder(test, `${site.origin}/`, matcher);
    await recorder.until(({ statuses }) => statuses.includes('open'));
    await site.publish({ topic: `${site.origin}/users/alice/news`, id: 'hers' });
    await recorder.until(({ ids }) => ids.length > 0);
    assert.deepEqual(recorder.ids, ['hers']);
  });

  it('sends a token in the Authorization header, requested for each connection', async (test) => {
    const site = await startSite(test, page, { hub: 'write_timeout 300ms' });
    let asked = 0;
    const recorder = new Recorder(test, `${site.origin}/`, '*', {
      token: () => {
        asked += 1;
        return site.token();
      },
    });
    await recorder.until(({ statuses }) => statuses.includes('open'));
    await site.publish({ topic: 'https://example.com/a', private: 'on', id: 'private' });
    await recorder.until(({ ids }) => ids.includes('private'));
    await recorder.until(() => asked >= 2);
  });

  it('waits for another token after a refusal, whether the function for it throws or rejects', async (test) => {
    const { setTimeout: after } = globalThis;
    // The long waits between two questions for a token are short here.
    test.mock.method(globalThis, 'setTimeout', (task: () => void, ms?: number) =>
      after(task, ms !== undefined && ms > 10_000 ? 5 : ms),
    );
    const port = await listen(test, (request, response) => {
      response.setHeader('Link', '</h>; rel=hub');
      if (request.url === '/') response.end();
      else if (request.headers.authorization === 'Bearer new') {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(':\n');
      } else response.writeHead(401).end();
    });
    let asked = 0;
    const recorder = new Recorder(test, `http://localhost:${port}/`, '*', {
      token: () => {
        asked += 1;
        if (asked === 3) throw new Error('no session yet');
        if (asked === 4) return Promise.reject(new Error('no session yet'));
        return asked < 6 ? 'old' : 'new';
      },
    });
    await recorder.until(({ statuses }) => statuses.includes('open'));
    assert.deepEqual(recorder.statuses, ['refused', 'connecting', 'open']);
  });

  it('fetches the resource for its cookie before each new connection, if configured', async (test) => {
    let answers = 0;
    const site = await startSite(
      test,
      (_, response) => {
        answers += 1;
        response.end();
      },
      { hub: 'anonymous\n\t\twrite_timeout 300ms' },
    );
    const recorder = new Recorder(test, `${site.origin}/`, '*', { renew: true });
    await recorder.until(({ statuses }) => statuses.filter((one) => one === 'open').length === 3);
    assert.deepEqual([answers, recorder.states.length], [3, 1]);
  });

  it('requests topics, patterns, and a hub by another relation', async (test) => {
    const asked: string[] = [];
    const port = await listen(test, (request, response) => {
      asked.push(request.url ?? '');
      if (request.url !== '/') {
        response.writeHead(200, {
          'content-type': 'text/event-stream',
          'Mercure-Last-Event-ID': 'a b',
        });
        response.write('id: 1\ndata: x\n\n');
        return;
      }
      response.setHeader('Link', [
        '<https://x/>; rel=self; title="<,;>"',
        '</h?a=1>; last-event-id="a b"; rel="mercure"',
      ]);
      response.end();
    });
    const recorder = new Recorder(
      test,
      `http://localhost:${port}/`,
      ['a topic', { urlpattern: '/books/:id' }],
      { relation: 'mercure' },
    );
    await recorder.until(({ ids }) => ids.length === 1);
    const pattern = encodeURIComponent(`http://localhost:${port}/books/:id`);
    assert.deepEqual(asked, [
      '/',
      `/h?a=1&match=a+topic&match_urlpattern=${pattern}&last_event_id=a+b`,
    ]);
  });

  it('stops when asked to, by the function or the signal', async (test) => {
    const left: Promise<void>[] = [];
    const port = await listen(test, (request, response: ServerResponse) => {
      response.setHeader('Link', '</h>; rel=hub');
      if (request.url === '/') response.end();
      else {
        left.push(new Promise((resolve) => response.on('close', resolve)));
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(':\n');
      }
    });
    const url = `http://localhost:${port}/`;
    const abort = new AbortController();
    const open = (options: Partial<SubscribeOptions>) =>
      new Promise<() => void>((resolve) => {
        const end = subscribe(url, '*', {
          update: () => {},
          status: () => resolve(end),
          ...options,
        });
      });
    (await open({}))();
    await open({ signal: abort.signal });
    abort.abort();
    while (left.length < 2) await new Promise((resolve) => setImmediate(resolve));
    await Promise.all(left);
  });
});

describe('client: the event stream (WHATWG HTML §9.2.6)', () => {
  const read = async (...chunks: (string | Uint8Array)[]) => {
    const updates: Update[] = [];
    const retries: number[] = [];
    const body = ReadableStream.from(chunks.map((chunk) => Buffer.from(chunk)));
    await readEvents(body, {
      update: (update) => updates.push(update),
      retry: (milliseconds) => retries.push(milliseconds),
    });
    return { updates, retries };
  };

  it('reads fields, several lines of data, and every kind of line break', async () => {
    const { updates, retries } = await read(
      ': comment\nid: 1\nevent: added\ndata: a\ndata:b\ndata:  c\n\n',
      'data\r\n\r\nid\rdata: x\r\rretry: 70\nretry: 7x\nevent: none\n\n',
      'unknown: field\nid: a\0b\ndata: y\n\ndata: never ended',
    );
    assert.deepEqual(updates, [
      { id: '1', type: 'added', data: 'a\nb\n c' },
      { id: '1', type: 'message', data: '' },
      { id: '', type: 'message', data: 'x' },
      { id: '', type: 'message', data: 'y' },
    ]);
    assert.deepEqual(retries, [70]);
  });

  it('ignores a retry time that doubling leaves at 0, or that no timer can hold', async () => {
    const { retries } = await read(
      ...['0', '00', '1', '999999999', '1000000000', '0070'].map((text) => `retry: ${text}\n`),
    );
    assert.deepEqual(retries, [1, 999_999_999, 70]);
  });

  it('searches a long line once, not again for each part of it', async (test) => {
    let searched = 0;
    const split = String.prototype.split;
    const count = function (this: string, ...parts: Parameters<typeof split>): string[] {
      searched += this.length;
      return split.apply(this, parts);
    };
    test.mock.method(String.prototype, 'split', count);
    const [parts, size] = [500, 100];
    const { updates } = await read('data:', ...Array(parts).fill('x'.repeat(size)), '\n\n');
    assert.equal(updates[0]?.data.length, parts * size);
    assert.ok(searched > 0 && searched < 3 * parts * size, `${searched}`);
  });

  it('parses the same however the bytes are split', async () => {
    const text = 'id: ü\r\ndata: 日本\r\n\r\ndata: 2\r\n\r\n';
    const whole = await read(text);
    assert.equal(whole.updates.length, 2);
    const bytes = [...Buffer.from(text)].map((byte) => Uint8Array.of(byte));
    assert.deepEqual((await read(...bytes)).updates, whole.updates);
  });
});

describe('client: the Link header (RFC 8288)', () => {
  it('finds the hub among other links', () => {
    const base = 'https://example.com/books/1';
    const found = (link: string | null) => findHub(link, 'hub', base);
    assert.deepEqual(found('</h>; rel="hub"; last-event-id="a \\"b\\" \\\\"'), {
      url: 'https://example.com/h',
      cursor: 'a "b" \\',
    });
    assert.deepEqual(found('<x>; title="a, <y>; rel=hub", <../h>; rel="self HUB"'), {
      url: 'https://example.com/h',
      cursor: null,
    });
    assert.deepEqual(found('<https://hub.example/h>;rel=hub;last-event-id=\xc3\xa9'), {
      url: 'https://hub.example/h',
      cursor: 'é',
    });
    assert.equal(found('<a>; rel=self; last-event-id="x"'), null);
    assert.equal(found('<a>; rel=next; rel=hub'), null, 'of several relations the first counts');
    assert.equal(found(null), null);
  });
});
