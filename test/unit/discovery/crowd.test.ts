import assert from 'node:assert/strict';
import { Agent, request as httpRequest, type RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { createCrowd } from '../../../src/discovery/crowd.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import type { AnnouncedHub } from '../../../src/discovery/announced-hub.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { deferred, type Site, startSite } from './site.ts';

const PAGE = '<!doctype html><html><head></head><body>page</body></html>';

interface Answered {
  readonly status: number;
  readonly body: string;
}

const live = (test: TestContext, app: RequestListener, window = '1m'): Promise<Site> =>
  startSite(test, app, { site: `discovery {\n\t\tlive {\n\t\t\twindow ${window}\n\t\t}\n\t}` });

/** What a tab does when it hears of an update. */
function refetch(
  agent: Agent,
  { origin }: Site,
  headers: Record<string, string> = {},
  path = '/',
): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const fields = { 'Hub-Live': 'urn:uuid:1', Accept: 'text/html', ...headers };
    httpRequest(origin + path, { agent, headers: fields }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (body += chunk));
      response.once('error', reject);
      response.once('end', () => resolve({ status: response.statusCode ?? 0, body }));
    })
      .once('error', reject)
      .end();
  });
}

function tabs(test: TestContext): Agent {
  const agent = new Agent({ keepAlive: true, maxSockets: 100 });
  test.after(() => agent.destroy());
  return agent;
}

/** An app that counts, and says what it is told to. */
function counting(fields: Record<string, string | string[]>) {
  const counted = { requests: 0, live: 0 };
  const app: RequestListener = (request, response) => {
    counted.requests += 1;
    if ('hub-live' in request.headers) counted.live += 1;
    response.writeHead(200, { 'Content-Type': 'text/html', ...fields }).end(PAGE);
  };
  return { counted, app };
}

describe('a crowd that fetches a page because of one update', () => {
  it('is one request upstream for 1,000 tabs of a public page', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    const agent = tabs(test);
    const answers = await Promise.all(
      Array.from({ length: 1_000 }, (_, tab) =>
        refetch(agent, site, { 'User-Agent': `tab ${tab}` }),
      ),
    );
    assert.equal(new Set(answers.map(({ body }) => body)).size, 1);
    assert.ok(answers.every(({ status, body }) => status === 200 && body.includes('live.js')));
    assert.deepEqual(counted, { requests: 1, live: 0 });
  });

  it('waits for the one that is under way, and is a new request for the next update', async (test) => {
    const go = deferred();
    let requests = 0;
    const site = await live(test, (_request, response) => {
      requests += 1;
      const own = requests;
      void go.promise.then(() => response.setHeader('Content-Type', 'text/plain').end(`${own}`));
    });
    const agent = tabs(test);
    const first = [1, 2, 3].map(() => refetch(agent, site));
    const other = refetch(agent, site, { 'Hub-Live': 'urn:uuid:2' });
    go.resolve();
    assert.deepEqual(
      (await Promise.all(first)).map(({ body }) => body),
      ['1', '1', '1'],
    );
    await other;
    assert.equal(requests, 2);
  });

  for (const [title, fields, headers] of [
    ['with cookies, of which the app says nothing', {}, { Cookie: 'session=1' }],
    ['with Authorization', { 'Cache-Control': 'public' }, { Authorization: 'Basic eDp5' }],
    ['private', { 'Cache-Control': 'private' }, {}],
    ['no-store', { 'Cache-Control': 'no-store' }, {}],
    ['no-cache', { 'Cache-Control': 'no-cache' }, {}],
    ['stale at once', { 'Cache-Control': 'max-age=0' }, {}],
    ['expired', { Expires: 'Thu, 19 Nov 1981 08:52:00 GMT' }, {}],
    ['that set a cookie', { 'Set-Cookie': 'a=b' }, {}],
    ['that vary by everything', { Vary: '*' }, {}],
  ] as const) {
    it(`is one request for each where answers may not be shared (RFC 9111 §3): ${title}`, async (test) => {
      const { counted, app } = counting(fields);
      const site = await live(test, app);
      const agent = tabs(test);
      await Promise.all(Array.from({ length: 20 }, () => refetch(agent, site, headers)));
      assert.equal(counted.requests, 20);
    });
  }

  it('shares with cookies what the app calls public, but not by Vary (RFC 9111 §4.1)', async (test) => {
    const { counted, app } = counting({ 'Cache-Control': 'public, max-age=60', Vary: 'Cookie' });
    const site = await live(test, app);
    const agent = tabs(test);
    for (const session of ['1', '1', '2', '3']) {
      await refetch(agent, site, { Cookie: `session=${session}` });
    }
    assert.equal(counted.requests, 3);
  });

  it('tells apart by whatever a client says, so that nobody makes a page for others', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    const agent = tabs(test);
    await refetch(agent, site, { 'X-Forwarded-Host': 'evil.example' });
    await refetch(agent, site, { 'Accept-Language': 'de' });
    await refetch(agent, site, { 'Accept-Language': 'fr' });
    await refetch(agent, site, {}, '/?page=2');
    assert.equal(counted.requests, 4);
  });

  it('gets what was asked for after it came, where it does not know what it has missed', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app, '100ms');
    const agent = tabs(test);
    const unknowing = (): Promise<Answered> => refetch(agent, site, { 'Hub-Live': '' });
    await Promise.all(Array.from({ length: 20 }, unknowing));
    assert.equal(counted.requests, 1);
    await unknowing();
    assert.equal(counted.requests, 2, 'an answer of before is not given');
  });

  it('is not what no update has caused', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    for (let i = 0; i < 3; i += 1) await site.get('/');
    assert.equal(counted.requests, 3);
  });

  it('spreads private pages by how many follow them, at 200 a second and at most 30 s', async () => {
    const waits: number[] = [];
    const clock = {
      ...systemClock,
      after: (delayMs: number, task: () => void) => {
        waits.push(delayMs);
        queueMicrotask(task);
        return () => {};
      },
    };
    const spreadFor = async (readers: number): Promise<number> => {
      waits.length = 0;
      // Only what crowds ask of a hub.
      const hub = { interest: () => readers } as unknown as AnnouncedHub;
      let count = 0;
      const random = (): number => (count += 1) / 1000;
      const crowd = createCrowd({ hub, concerns: () => true, windowMs: 1000, clock, random });
      let passed = 0;
      for (let tab = 0; tab < 999; tab += 1) {
        const headers = HeaderList.of({ 'Hub-Live': 'x', Authorization: 'Basic eDp5' });
        await crowd(fakeExchange({ headers }), async () => void (passed += 1));
      }
      assert.equal(passed, 999);
      return Math.max(0, ...waits);
    };
    assert.equal(await spreadFor(1), 0);
    assert.equal(Math.round(await spreadFor(2)), 5);
    assert.equal(Math.round(await spreadFor(1_001)), 4_995);
    assert.equal(Math.round(await spreadFor(1_000_000)), 29_970);
  });
});
