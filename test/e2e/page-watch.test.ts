import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type RequestListener } from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway, type TestLibraryGateway } from '../support/gateway.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { TurnedClock } from '../support/turned-clock.ts';

/** How much later than its interval a look may come. */
const JITTER = 1.15;
/** So long that no interval passes by itself while a test runs. */
const HOUR = 3_600;

interface Page {
  status?: number;
  headers?: Record<string, string>;
  body?: string;
}

/** An app whose pages a test changes, and that records what the gateway itself asks for. */
interface App {
  readonly port: number;
  readonly pages: Record<string, Page>;
  readonly looks: { readonly path: string; readonly headers: IncomingHttpHeaders }[];
  readonly visits: string[];
  looksAt(path: string): number;
}

async function startApp(test: TestContext, isHttp2 = false): Promise<App> {
  const pages: Record<string, Page> = {};
  const looks: App['looks'] = [];
  const visits: string[] = [];
  const handle = (
    path: string,
    headers: IncomingHttpHeaders,
    respond: (status: number, headers: Record<string, string>, body: string) => void,
  ): void => {
    const page = pages[path] ?? { status: 404 };
    if (headers['user-agent'] === 'hubgate (watch)') looks.push({ path, headers });
    else visits.push(path);
    const tag = page.headers?.['ETag'];
    const isKnown = tag !== undefined && headers['if-none-match'] === tag;
    respond(isKnown ? 304 : (page.status ?? 200), page.headers ?? {}, page.body ?? path);
  };
  const listener: RequestListener = (request, response) => {
    request.resume();
    handle(request.url ?? '', request.headers, (status, headers, body) => {
      response.writeHead(status, { 'Content-Type': 'text/html', ...headers });
      response.end(status === 304 ? undefined : body);
    });
  };
  const server = isHttp2 ? http2.createServer() : createServer(listener);
  if (isHttp2) {
    server.on('stream', (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => {
      handle(String(headers[':path']), headers, (status, fields, body) => {
        stream.respond({ ':status': status, 'content-type': 'text/html', ...fields });
        stream.end(status === 304 ? undefined : body);
      });
    });
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.close();
    if ('closeAllConnections' in server) server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const looksAt = (path: string): number => looks.filter((one) => one.path === path).length;
  return { port, pages, looks, visits, looksAt };
}

interface Watched extends App {
  readonly origin: string;
  readonly clock: TurnedClock;
  readonly gateway: TestLibraryGateway;
  readonly hubfile: string;
  /** Follows pages, and resolves when the first looks at them are over. */
  follow(...paths: string[]): Promise<Stream>;
  /** Resolves when the gateway has looked so often, over all pages and outcomes. */
  looked(times: number): Promise<void>;
  count(outcome: string): Promise<number>;
  readonly intervalMs: number;
  /** Lets an interval pass, and resolves after this many looks. */
  interval(looks?: number): Promise<void>;
}

interface Given {
  /** Seconds. */
  readonly watch?: number;
  readonly changes?: string;
  readonly site?: string;
  readonly hub?: string;
  readonly app?: App;
  readonly clock?: TurnedClock;
  readonly proxy?: string;
}

async function startWatch(test: TestContext, given: Given = {}): Promise<Watched> {
  const app = given.app ?? (await startApp(test));
  const clock = given.clock ?? new TurnedClock();
  const origin = `http://localhost:${await freePort()}`;
  const watch = given.watch ?? HOUR;
  const intervalMs = watch * 1_000 * JITTER;
  const hubfile = `${origin} {
	hub {
		anonymous
		write_timeout 0s
		${given.hub ?? 'transport memory'}
	}
	discovery {
		changes public {
			watch ${watch}s
			window 0s
			${given.changes ?? ''}
		}
	}
	${given.site ?? ''}
	${given.proxy ?? 'reverse_proxy'} ${given.proxy === undefined ? `localhost:${app.port}` : ''}
}
`.replaceAll('{app}', String(app.port));
  const gateway = await startLibraryGateway(test, hubfile, undefined, undefined, clock);
  const count = async (outcome: string): Promise<number> => {
    const families = await gateway.gateway.families();
    const found = families.find(({ name }) => name === 'hub_watch_requests_total');
    const values = found?.values.filter(({ labels }) => ['', labels['outcome']].includes(outcome));
    return (values ?? []).reduce((sum, { value }) => sum + value, 0);
  };
  const looked = async (times: number): Promise<void> => {
    while ((await count('')) < times) await nextTurn();
    await nextTurn();
  };
  return {
    ...app,
    origin,
    clock,
    gateway,
    hubfile,
    intervalMs,
    looked,
    count,
    async follow(...paths) {
      const before = await count('');
      const query = paths.map((path) => `match=${encodeURIComponent(origin + path)}`).join('&');
      const stream = await openStream(test, `${origin}/.well-known/hub?${query}`);
      await looked(before + paths.length);
      return stream;
    },
    async interval(looks = 1) {
      const before = await count('');
      clock.turn(intervalMs);
      await looked(before + looks);
    },
  };
}

const dataOf = (stream: Stream): unknown[] =>
  [...stream.text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data));

describe('changes { watch }', () => {
  it('asks the app once per interval for 1,000 followers, with the validators of the last answer and nobody’s cookies', async (test) => {
    const site = await startWatch(test);
    site.pages['/books/1'] = { headers: { ETag: '"1"' } };
    const topic = encodeURIComponent(`${site.origin}/books/1`);
    const open = (): Promise<Stream> =>
      openStream(test, `${site.origin}/.well-known/hub?match=${topic}`, {
        headers: [
          ['Cookie', 'session=alice'],
          ['Origin', site.origin],
        ],
      });
    const streams = await Promise.all(Array.from({ length: 1_000 }, open));
    await site.looked(1);
    await site.interval();
    await site.interval();
    assert.equal(site.looks.length, 3);
    assert.deepEqual(
      site.looks.map(({ headers }) => headers['if-none-match']),
      [undefined, '"1"', '"1"'],
    );
    for (const { headers } of site.looks) {
      assert.deepEqual([headers.cookie, headers.authorization], [undefined, undefined]);
      assert.match(headers['cache-control'] ?? '', /no-cache/);
    }
    assert.ok(streams.every(({ text }) => !text.includes('data:')));
    site.pages['/books/1'] = { headers: { ETag: '"2"' } };
    await site.interval();
    await Promise.all(streams.map((one) => one.until(({ text }) => text.includes('data:'))));
    assert.deepEqual(dataOf(streams[999] ?? assert.fail()), [{ url: '/books/1', method: 'GET' }]);
    assert.match(streams[0]?.text ?? '', /^event: change$/m);
    assert.equal(site.looks.length, 4);
  });

  it('compares the body without an ETag, without the parts that ignore names', async (test) => {
    const site = await startWatch(test, {
      changes: 'ignore `nonce="[^"]*"` `<!-- .*? -->`\n\t\t\tignore `token=\\w+`',
    });
    const page = (text: string): Page => {
      const secret = Math.random().toString(36).slice(2);
      const body = `<script nonce="${secret}"></script>${'<p>x</p>'.repeat(5000)}<a token=${secret}><!-- ${secret} -->${text}`;
      return { body, headers: { ETag: `"${secret}"` } };
    };
    site.pages['/a'] = page('one');
    const stream = await site.follow('/a');
    site.pages['/a'] = page('one');
    await site.interval();
    assert.deepEqual([await site.count('unchanged'), await site.count('changed')], [1, 0]);
    site.pages['/a'] = page('two');
    await site.interval();
    await stream.until(() => dataOf(stream).length === 1);
    assert.equal(await site.count('changed'), 1);
  });

  it('stops when nobody follows, and announces what has changed in the meantime to those who come back', async (test) => {
    const site = await startWatch(test, { watch: 20 });
    site.pages['/a'] = { body: 'one' };
    const first = await site.follow('/a', '/control');
    await site.interval(2);
    first.close();
    const control = await site.follow('/control');
    await site.interval();
    await site.interval();
    assert.equal(site.looksAt('/a'), 2);
    site.pages['/a'] = { body: 'two' };
    const again = await site.follow('/a');
    await again.until(() => dataOf(again).length === 1);
    assert.deepEqual(dataOf(again), [{ url: '/a', method: 'GET' }]);
    assert.equal(control.text.includes('"/a"'), false);
  });

  it('leaves alone what is not public: no-store, private, 401, 403 and responses of the gateway', async (test) => {
    const site = await startWatch(test, { watch: 5, site: 'respond /gateway hello' });
    Object.assign(site.pages, {
      '/no-store': { headers: { 'Cache-Control': 'no-store' } },
      '/private': { headers: { 'Cache-Control': 'max-age=0, private' } },
      '/401': { status: 401 },
      '/403': { status: 403 },
      '/control': {},
    });
    await site.follow('/no-store', '/private', '/401', '/403', '/gateway', '/control');
    assert.equal(await site.count('unfit'), 5);
    for (let times = 0; times < 3; times += 1) await site.interval();
    const asked = ['/no-store', '/private', '/401', '/403', '/control'].map(site.looksAt);
    assert.deepEqual(asked.slice(0, 4), [1, 1, 1, 1]);
    assert.ok((asked[4] ?? 0) >= 4);
    // Ten minutes later it looks again.
    site.clock.turn(600_000);
    while ((await site.count('unfit')) < 10) await nextTurn();
    assert.equal(site.looksAt('/403'), 2);
  });

  it('announces 404, 410 and redirects as changes; a 5xx says nothing, and makes it wait longer', async (test) => {
    const site = await startWatch(test);
    site.pages['/a'] = { body: 'one' };
    const stream = await site.follow('/a');
    site.pages['/a'] = { status: 503 };
    await site.interval();
    assert.deepEqual([await site.count('failed'), await site.count('changed')], [1, 0]);
    site.pages['/a'] = { body: 'one' };
    site.clock.turn(site.intervalMs * 2);
    await site.looked(3);
    assert.equal(await site.count('unchanged'), 1);
    site.pages['/a'] = { status: 410 };
    await site.interval();
    site.pages['/a'] = { status: 302, headers: { Location: '/b' } };
    await site.interval();
    await stream.until(() => dataOf(stream).length === 2);
    assert.equal(await site.count('changed'), 2);
  });

  it('follows exact topics that are URLs of this site within the matcher, and no patterns', async (test) => {
    const app = await startApp(test);
    const site = await startWatch(test, { app });
    site.pages['/a'] = {};
    const pattern = encodeURIComponent(`${site.origin}/*`);
    const elsewhere = encodeURIComponent('http://elsewhere.example/a');
    const hub = encodeURIComponent(`${site.origin}/.well-known/hub/x`);
    await openStream(
      test,
      `${site.origin}/.well-known/hub?match_urlpattern=${pattern}&match=${elsewhere}&match=${hub}&match=urn:x`,
    );
    await site.follow('/a');
    await site.interval();
    assert.deepEqual([...new Set(site.looks.map(({ path }) => path))], ['/a']);
  });

  it('names a page with a query by its path and the mark of the query, never by the query', async (test) => {
    const site = await startWatch(test);
    site.pages['/list?page=2'] = { body: 'one' };
    site.pages['/list'] = { body: 'list' };
    const stream = await site.follow('/list', '/list?page=2');
    site.pages['/list?page=2'] = { body: 'two' };
    await site.interval(2);
    await stream.until(() => dataOf(stream).length === 1);
    const [{ url, queries }] = dataOf(stream) as [
      { url: string; queries: Record<string, string[]> },
    ];
    assert.equal(url, '/list');
    assert.match(queries[`${site.origin}/list`]?.[0] ?? '', /^[0-9a-f]{2}$/);
    assert.equal(stream.text.includes('page=2'), false);
  });

  it('knows after a reload what pages looked like before it', async (test) => {
    const site = await startWatch(test);
    site.pages['/a'] = { body: 'one' };
    const stream = await site.follow('/a');
    site.pages['/a'] = { body: 'two' };
    await site.gateway.reload(site.hubfile.replace('window 0s', 'window 1ms'));
    await site.looked(2);
    await stream.until(() => dataOf(stream).length === 1);
    await site.interval();
    assert.deepEqual([await site.count('changed'), await site.count('first')], [1, 1]);
  });

  it('ends with the option: after a reload without it nothing is asked for', async (test) => {
    const site = await startWatch(test);
    site.pages['/a'] = {};
    await site.follow('/a');
    await site.gateway.reload(site.hubfile.replace(/watch \d+s/, ''));
    site.clock.turn(site.intervalMs);
    assert.equal((await send(`${site.origin}/a`)).status, 200);
    site.clock.turn(site.intervalMs);
    assert.equal((await send(`${site.origin}/a`)).status, 200);
    assert.deepEqual([site.looksAt('/a'), site.visits.length], [1, 2]);
  });

  it('passes rewrites and error routes of the site, and an upstream over HTTP/2', async (test) => {
    const app = await startApp(test, true);
    const site = await startWatch(test, {
      app,
      site: 'rewrite /pretty/* /real{path}\n\thandle_errors {\n\t\trespond "sorry" 503\n\t}\n\terror /broken 500',
      proxy: 'reverse_proxy h2c://localhost:{app}',
    });
    site.pages['/real/pretty/a'] = { headers: { etag: '"1"' } };
    const stream = await site.follow('/pretty/a', '/broken');
    assert.deepEqual(
      site.looks.map(({ path }) => path),
      ['/real/pretty/a'],
    );
    assert.equal(await site.count('failed'), 1);
    site.pages['/real/pretty/a'] = { headers: { etag: '"2"' } };
    await site.interval();
    await stream.until(() => dataOf(stream).length === 1);
    assert.deepEqual(dataOf(stream), [{ url: '/pretty/a', method: 'GET' }]);
  });

  it('takes the page of an error for the error, whatever the status of that page', async (test) => {
    const site = await startWatch(test, {
      site: 'handle_errors {\n\t\trewrite * /sorry\n\t\treverse_proxy localhost:{app}\n\t}\n\terror /broken 502\n\terror /denied 403',
    });
    site.pages['/sorry'] = { body: 'sorry' };
    await site.follow('/broken', '/denied');
    assert.deepEqual(
      site.looks.map(({ path }) => path),
      ['/sorry', '/sorry'],
    );
    const counts = ['failed', 'unfit', 'first'] as const;
    assert.deepEqual(await Promise.all(counts.map((name) => site.count(name))), [1, 1, 0]);
  });

  it('asks the app in front of which a cache stands, and drops what is stored there', async (test) => {
    const site = await startWatch(test, { site: 'cache {\n\t\tttl 1d\n\t}' });
    site.pages['/a'] = { body: 'one' };
    const read = async (): Promise<string> => (await send(`${site.origin}/a`)).body;
    assert.deepEqual([await read(), await read(), site.visits.length], ['one', 'one', 1]);
    const stream = await site.follow('/a');
    site.pages['/a'] = { body: 'two' };
    assert.equal(await read(), 'one');
    await site.interval();
    await stream.until(() => dataOf(stream).length === 1);
    assert.deepEqual([await read(), site.looksAt('/a')], ['two', 2]);
  });

  it('is the work of one process among all that share a history, and of another one when that stops', async (test) => {
    const [app, clock] = [await startApp(test), new TurnedClock()];
    const directory = await temporaryDirectory(test);
    const hub = `transport lmdb {\n\t\t\tpath ${directory}\n\t\t\tshared\n\t\t}`;
    const node = (): Promise<Watched> => startWatch(test, { app, clock, hub, watch: 5 });
    const [one, other] = [await node(), await node()];
    app.pages['/a'] = { body: 'one' };
    // The topic is that of one site, which the other serves under its own name too.
    const topic = encodeURIComponent(`${one.origin}/a`);
    const follow = (at: Watched): Promise<Stream> =>
      openStream(test, `${at.origin}/.well-known/hub?match=${topic}`);
    await follow(one);
    await one.looked(1);
    await one.interval();
    const stream = await follow(other);
    await other.looked(1);
    for (let times = 0; times < 3; times += 1) await one.interval();
    assert.ok((await one.count('')) >= 5);
    assert.equal(await other.count(''), 1);
    app.pages['/a'] = { body: 'two' };
    await one.gateway.stop();
    while ((await other.count('changed')) === 0) {
      clock.turn(other.intervalMs);
      await send(`${other.origin}/visit`);
    }
    await stream.until(() => dataOf(stream).length === 1);
    const list = await send(`${other.origin}/.well-known/hub/subscriptions`);
    assert.equal(list.body.includes('work'), false);
  });
});
