import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { Agent, request as httpRequest, type RequestListener } from 'node:http';
import http2 from 'node:http2';
import { describe, it, type TestContext } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { createTopicOf } from '../../../src/client/page-topics.ts';
import { createLiveRefetches, watchCookies } from '../../../src/discovery/live-refetches.ts';
import type { AnnouncedHub } from '../../../src/discovery/announced-hub.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import type { HeadTransform } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { deferred, HUB, ISSUER, listen, type Site, startSite, SUBSCRIBER_KEY } from './site.ts';

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

describe('refetches of pages because of one update', () => {
  it('are a single upstream request for 1,000 tabs of a public page', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    const agent = tabs(test);
    const answers = await Promise.all(Array.from({ length: 1_000 }, () => refetch(agent, site)));
    assert.equal(new Set(answers.map(({ body }) => body)).size, 1);
    assert.ok(answers.every(({ status, body }) => status === 200 && body.includes('live.js')));
    assert.deepEqual(counted, { requests: 1, live: 0 });
  });

  it('are a single request over HTTP/2 too, each encoded as requested, and can be aborted without harm', async (test) => {
    const { counted, app } = counting({});
    const site = await startSite(test, app, {
      hubfile: `https://localhost:{port} {${HUB}
		anonymous
	}
	tls internal
	encode gzip
	discovery {
		live {
			window 1m
		}
	}
	reverse_proxy localhost:{app}
}
`,
    });
    const session = http2.connect(site.origin.replace('http:', 'https:'), {
      rejectUnauthorized: false,
    });
    test.after(() => session.destroy());
    const ask = (leaves: boolean): Promise<string> =>
      new Promise((resolve) => {
        const stream = session.request({
          ':path': '/',
          'hub-live': 'urn:uuid:1',
          accept: 'text/html',
          'accept-encoding': 'gzip',
        });
        const chunks: Buffer[] = [];
        stream.on('error', () => {});
        stream.on('data', (chunk: Buffer) => chunks.push(chunk));
        stream.once('response', () => {
          if (leaves) stream.close(http2.constants.NGHTTP2_CANCEL);
        });
        stream.once('close', () => {
          resolve(leaves ? '' : gunzipSync(Buffer.concat(chunks)).toString('utf8'));
        });
      });
    const bodies = await Promise.all(Array.from({ length: 60 }, (_, at) => ask(at % 3 === 1)));
    const read = bodies.filter((body) => body !== '');
    assert.equal(read.length, 40);
    assert.ok(read.every((body) => body.includes('live.js') && body.endsWith('</html>')));
    assert.equal(counted.requests, 1);
  });

  it('wait for the request in progress, and are a new request for the next update', async (test) => {
    const go = deferred();
    const begun = deferred();
    let requests = 0;
    const site = await live(test, (_request, response) => {
      requests += 1;
      const own = requests;
      begun.resolve();
      void go.promise.then(() => response.setHeader('Content-Type', 'text/plain').end(`${own}`));
    });
    const agent = tabs(test);
    const first = [refetch(agent, site)];
    // Each request has its own connection, so nothing else decides which update the app hears of first.
    await begun.promise;
    first.push(refetch(agent, site), refetch(agent, site));
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
    it(`are one request per client if responses may not be shared (RFC 9111 §3): ${title}`, async (test) => {
      const { counted, app } = counting(fields);
      const site = await live(test, app);
      const agent = tabs(test);
      await Promise.all(Array.from({ length: 20 }, () => refetch(agent, site, headers)));
      assert.equal(counted.requests, 20);
    });
  }

  it('share responses that the app calls public despite cookies, unless Vary forbids it (RFC 9111 §4.1)', async (test) => {
    const { counted, app } = counting({ 'Cache-Control': 'public, max-age=60', Vary: 'Cookie' });
    const site = await live(test, app);
    const agent = tabs(test);
    for (const session of ['1', '1', '2', '3']) {
      await refetch(agent, site, { Cookie: `session=${session}` });
    }
    assert.equal(counted.requests, 3);
  });

  it('are kept apart by everything that a client sends, so that no client can influence a page for others', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    const agent = tabs(test);
    await refetch(agent, site, { 'X-Forwarded-Host': 'evil.example' });
    await refetch(agent, site, { 'Accept-Language': 'de' });
    await refetch(agent, site, { 'Accept-Language': 'fr' });
    await refetch(agent, site, {}, '/?page=2');
    for (const name of ['User-Agent', 'CF-Ray', 'CF-IPCountry', 'X-Real-IP', 'Priority', 'Via']) {
      await refetch(agent, site, { [name]: '<script>' });
    }
    await refetch(agent, site);
    await refetch(agent, site);
    assert.equal(counted.requests, 10);
  });

  it('get no shared response before they have passed the rules of the site', async (test) => {
    const { counted, app } = counting({});
    const site = await startSite(test, app, {
      site: `discovery {
		live {
			window 1m
		}
	}
	@outside not header X-Team blue
	route {
		respond @outside 403
		request_header -X-Team
	}`,
    });
    const agent = tabs(test);
    const insider = await refetch(agent, site, { 'X-Team': 'blue' });
    assert.equal(insider.status, 200);
    assert.equal((await refetch(agent, site)).status, 403);
    assert.equal((await refetch(agent, site, { 'X-Team': 'blue' })).body, insider.body);
    assert.equal(counted.requests, 1);
  });

  it('get the response of their own user if forward_auth names one', async (test) => {
    const port = await listen(test, (request, response) => {
      response.setHeader('X-User-Id', request.headers['x-secret'] ?? 'nobody').end();
    });
    const site = await startSite(
      test,
      (request, response) => {
        response.setHeader('Content-Type', 'text/plain');
        response.end(`of ${String(request.headers['x-user-id'])}`);
      },
      {
        site: `discovery {
		live {
			window 1m
		}
	}
	forward_auth localhost:${port} {
		uri /
		copy_headers X-User-Id
	}
	route {
		request_header -X-Secret
	}`,
      },
    );
    const agent = tabs(test);
    for (const user of ['alice', 'bob', 'alice']) {
      assert.equal((await refetch(agent, site, { 'X-Secret': user })).body, `of ${user}`);
    }
  });

  it('publish once what their response publishes, in its head or its trailers', async (test) => {
    const site = await live(test, (_request, response) => {
      response.writeHead(200, { 'Hub-Publish': 'topic="urn:head"', Trailer: 'Hub-Publish' });
      response.write('page');
      response.addTrailers({ 'Hub-Publish': 'topic="urn:trailer"' });
      response.end();
    });
    const stream = await site.stream('match=*');
    const agent = tabs(test);
    await Promise.all(Array.from({ length: 20 }, () => refetch(agent, site)));
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    assert.equal((await stream.untilId('urn:end')).length, 3);
  });

  it('never share a response that names a user or contains a token, even if the app calls it public', async (test) => {
    for (const field of ['X-User-Id', 'Hub-Access-Token']) {
      const seen: string[] = [];
      const app: RequestListener = (request, response) => {
        const user = /session=(\w+)/.exec(request.headers.cookie ?? '')?.[1] ?? '';
        seen.push(user);
        response.writeHead(200, { 'Cache-Control': 'public, max-age=60', [field]: user });
        response.end('page');
      };
      const site = await startSite(test, app, {
        site: `discovery {
		live {
			window 1m
		}
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe https://example.com/users/{http.response.header.X-User-Id}
		}
	}`,
      });
      const agent = tabs(test);
      for (const user of ['alice', 'bob']) {
        await refetch(agent, site, { Cookie: `session=${user}` });
      }
      assert.deepEqual(seen, ['alice', 'bob'], field);
    }
  });

  it('are still a single request if one of them is conditional and gets a 304', async (test) => {
    let requests = 0;
    const site = await live(test, (request, response) => {
      requests += 1;
      response.setHeader('ETag', '"1"').setHeader('Content-Type', 'text/plain');
      response.statusCode = request.headers['if-none-match'] === undefined ? 200 : 304;
      response.end(response.statusCode === 200 ? 'page' : undefined);
    });
    const agent = tabs(test);
    const conditional = { 'If-None-Match': '"1"' };
    assert.equal((await refetch(agent, site, conditional)).status, 304);
    const plain = await Promise.all(Array.from({ length: 20 }, () => refetch(agent, site)));
    assert.ok(plain.every(({ status, body }) => status === 200 && body === 'page'));
    assert.equal((await refetch(agent, site, conditional)).status, 304);
    assert.equal(requests, 2);
  });

  it('get the response to the first one even if its client leaves', async (test) => {
    const asked = deferred();
    const go = deferred();
    let requests = 0;
    const site = await live(test, (_request, response) => {
      requests += 1;
      const answer = () => response.setHeader('Content-Type', 'text/plain').end('page');
      if (requests > 1) answer();
      else void go.promise.then(answer);
      asked.resolve();
    });
    const agent = tabs(test);
    const headers = { 'Hub-Live': 'urn:uuid:1', Accept: 'text/html' };
    const leaving = httpRequest(site.origin, { agent, headers });
    const left = new Promise((resolve) => leaving.once('close', resolve));
    leaving.on('error', () => {});
    leaving.end();
    await asked.promise;
    const others = Array.from({ length: 20 }, () => refetch(agent, site));
    // One behind them has come in: so have they.
    await refetch(agent, site, { 'Hub-Live': 'urn:uuid:2' });
    leaving.destroy();
    await left;
    await refetch(agent, site, { 'Hub-Live': 'urn:uuid:3' });
    go.resolve();
    for (const { body } of await Promise.all(others)) assert.equal(body, 'page');
    assert.equal(requests, 3);
  });

  it('get a response requested after they arrived, if they do not know what they have missed', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app, '3s');
    const agent = tabs(test);
    const unknowing = (): Promise<Answered> => refetch(agent, site, { 'Hub-Live': '' });
    await Promise.all(Array.from({ length: 20 }, unknowing));
    assert.equal(counted.requests, 1);
    await unknowing();
    assert.equal(counted.requests, 2, 'an answer of before is not given');
  });

  it('do not include requests that no update has caused', async (test) => {
    const { counted, app } = counting({});
    const site = await live(test, app);
    for (let i = 0; i < 3; i += 1) await site.get('/');
    assert.equal(counted.requests, 3);
  });

  it('are spread out for private pages, depending on the number of followers, at 200 per second and over at most 30 s', async () => {
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
      const personalFields: string[] = [];
      const concerns = (): boolean => true;
      const topicOf = createTopicOf([], (url) => url);
      const options = { hub, concerns, windowMs: 1000, topicOf, clock, random, personalFields };
      const { sharing } = createLiveRefetches(options);
      let passed = 0;
      for (let tab = 0; tab < 999; tab += 1) {
        await sharing.spread(fakeExchange({}));
        passed += 1;
      }
      assert.equal(passed, 999);
      return Math.max(0, ...waits);
    };
    assert.equal(await spreadFor(1), 0);
    assert.equal(Math.round(await spreadFor(2)), 5);
    assert.equal(Math.round(await spreadFor(1_001)), 4_995);
    assert.equal(Math.round(await spreadFor(1_000_000)), 29_970);
  });

  it('are dropped if a cookie changes while their response waits for a token', async (test) => {
    const asked = deferred();
    let answerToken = (): void => {};
    const endpoint = await listen(test, (_request, response) => {
      answerToken = () => void response.writeHead(500).end();
      asked.resolve();
    });
    const app: RequestListener = (request, response) => {
      request.resume();
      // No token is handed out with an error, so this response does not wait for one.
      if (request.method === 'POST') response.statusCode = 422;
      const name = request.method === 'POST' ? 'changed-by-a-form' : 'as-it-was-before-that';
      response
        .setHeader('Set-Cookie', `s=${name}`)
        .setHeader('Content-Type', 'text/html')
        .end(PAGE);
    };
    const exchange = `endpoint http://localhost:${endpoint}/token\n\t\t\tclient_id a\n\t\t\tclient_secret b`;
    const site = await startSite(test, app, {
      site: `discovery {\n\t\tlive\n\t\ttoken exchange {\n\t\t\t${exchange}\n\t\t\tsubject_token {cookie.s}\n\t\t}\n\t}`,
    });
    const before = 's=as-it-was-before-that';
    const fetched = refetch(tabs(test), site, { Cookie: before });
    await asked.promise;
    const saved = await site.get('/save', { method: 'POST', headers: [['Cookie', before]] });
    assert.equal(saved.status, 422);
    answerToken();
    assert.equal((await fetched).status, 425);
  });

  describe('of a visitor whose cookies change', () => {
    const LONG = ['first', 'second', 'third', 'fourth'].map((one) => `${one}-and-long-enough`);
    const [V1 = '', V2 = '', V3 = '', V4 = ''] = LONG;
    const site = () => {
      const clock = new TestClock();
      const { take } = createLiveRefetches({
        ...{ hub: {} as unknown as AnnouncedHub, concerns: () => true, windowMs: 1000 },
        ...{ topicOf: createTopicOf([], (url) => url), clock, random: () => 0, personalFields: [] },
      });
      /** A request that is under way; the returned function answers it, and tells what the client gets. */
      const sends = (
        fields: Record<string, string>,
        {
          method = 'GET',
          target = '/page',
          clientAddress = '192.0.2.1',
          transforms = [] as HeadTransform[],
        } = {},
      ) => {
        const headers = HeaderList.of({ 'user-agent': 'a', ...fields });
        const onHead = (transform: HeadTransform): void => void transforms.push(transform);
        const request = { method, target, originalTarget: target, headers, onHead, clientAddress };
        take(fakeExchange(request));
        return (...cookies: string[]) => {
          const fields = HeaderList.of({ etag: '"1"' });
          for (const cookie of cookies) fields.append('Set-Cookie', cookie);
          const head = { status: 200, headers: fields, source: 'upstream' as const };
          for (const one of transforms) void one(head);
          return [head.status, ...head.headers.getAll('set-cookie')];
        };
      };
      const fetches = (cookie: string, fields: Record<string, string> = {}) =>
        sends({ 'hub-live': 'urn:1', ...(cookie === '' ? {} : { cookie }), ...fields });
      const posts = (cookie: string, more: Parameters<typeof sends>[1] = {}) =>
        sends(cookie === '' ? {} : { cookie }, { method: 'POST', ...more });
      return { clock, sends, fetches, posts };
    };

    it('are dropped with their cookies if a response has changed one meanwhile', () => {
      const { fetches, posts } = site();
      const [one, other, renewal] = [`a=1; s=${V1}`, `s=${V4}`, `s=${V1}`].map((it) => fetches(it));
      const renewed = site().sends({ cookie: `s=${V1}`, 'hub-renew': '' });
      assert.deepEqual(posts(`s=${V1}; a=1`)(`s=${V2}; Path=/`), [200, `s=${V2}; Path=/`]);
      assert.deepEqual(one?.(`s=${V3}`), [425]);
      assert.deepEqual(renewal?.(), [425], 'it shows what is over, for instance a logged-in user');
      assert.deepEqual(other?.(`s=${V3}`), [200, `s=${V3}`], 'of somebody else');
      assert.deepEqual(renewed(`s=${V3}`), [200, `s=${V3}`], 'nothing has changed');
    });

    it('are dropped also if they only renew the cookie of the stream', () => {
      const { sends, posts } = site();
      const renewal = sends({ cookie: `s=${V1}`, 'hub-renew': '' });
      posts(`s=${V1}`)(`s=; Max-Age=0`);
      assert.deepEqual(renewal(`s=${V3}`), [425]);
    });

    it('pass with the new value, and with an old one that was not on its way', () => {
      const { clock, fetches, posts } = site();
      posts(`s=${V1}`)(`s=${V2}`);
      assert.deepEqual(fetches(`s=${V1}`)(), [425], 'it crossed the response');
      clock.advance(1);
      assert.deepEqual(fetches(`s=${V2}`)(`s=${V3}`), [200, `s=${V3}`]);
      assert.deepEqual(fetches(`s=${V3}`)(), [200]);
      clock.advance(10_000);
      assert.deepEqual(fetches(`s=${V1}`)(), [200], 'the browser does not take the cookie');
    });

    it('do not drop each other, but all of them if their common successor changes', () => {
      const { clock, fetches, posts } = site();
      const [late, later, latest] = [1, 2, 3].map(() => fetches(`s=${V1}`));
      assert.deepEqual(late?.(`s=${V2}`), [200, `s=${V2}`]);
      assert.deepEqual(later?.(`s=${V3}`), [200, `s=${V3}`]);
      clock.advance(1);
      posts(`s=${V3}`)(`s=${V4}`);
      assert.deepEqual(latest?.(`s=${V2}`), [425]);
    });

    it('are dropped if a login has set the first cookie of its name, or a logout has deleted one of another path', () => {
      const { clock, fetches, posts } = site();
      const [early, ofOthers, ofPath] = [
        fetches(''),
        fetches('', { 'user-agent': 'b' }),
        fetches(`p=${V1}`),
      ];
      clock.advance(1);
      posts('')(`s=${V1}; Path=/`, 'p=; Max-Age=0; Path=/app');
      assert.deepEqual(early?.(`s=${V3}`), [425]);
      assert.deepEqual(ofPath?.(`p=${V3}; Path=/app`), [425]);
      assert.deepEqual(ofOthers?.(`s=${V3}`), [200, `s=${V3}`]);
      clock.advance(1);
      assert.deepEqual(fetches('')(`t=${V3}`), [200, `t=${V3}`], 'one that came later');
    });

    it('are shown without their cookies where cookies change all the time', () => {
      const { clock, fetches, posts } = site();
      for (const expected of [[425], [425], [200], [200]]) {
        const one = fetches(`s=${V1}`);
        clock.advance(1);
        posts(`s=${V1}`)(`s=${V2}`);
        assert.deepEqual(one(`s=${V3}`, `t=${V3}`), expected);
        clock.advance(1);
      }
      clock.advance(10_000);
      assert.deepEqual(fetches(`s=${V2}`)(`s=${V3}`), [200, `s=${V3}`]);
      const one = fetches(`s=${V3}`);
      posts(`s=${V3}`)(`s=${V4}`);
      assert.deepEqual(
        one(`s=${V2}`),
        [425],
        'asked for again, because the last one was not outdated',
      );
    });

    it('pass beside deletions of cookies that nobody has, and of old ones beside a new one', () => {
      const { clock, fetches, posts } = site();
      for (let round = 0; round < 5; round += 1) {
        posts(`s=${V1}`)(`s=${V1}`, 'flash=; Max-Age=0');
        clock.advance(1);
        assert.equal(fetches(`s=${V1}`)('flash=; Max-Age=0')[0], 200);
      }
      posts(`s=${V1}`)(`s=${V2}; Domain=example.com`, 's=; Max-Age=0');
      clock.advance(1);
      assert.equal(fetches(`s=${V2}`)()[0], 200);
    });

    it('of the same cookie with two paths are judged by time only', () => {
      const { clock, fetches, posts } = site();
      posts(`s=${V1}; s=${V2}`)(`s=${V3}; Path=/app`);
      clock.advance(1);
      assert.equal(fetches(`s=${V3}; s=${V2}`)()[0], 200);
      const one = fetches(`s=${V3}; s=${V2}`);
      posts(`s=${V3}; s=${V2}`)(`s=${V4}; Path=/app`);
      assert.deepEqual(one(`s=${V1}; Path=/app`), [425]);
    });

    it('end at once if they are dropped, and do not read the rest of the page', async () => {
      const { clock, posts, sends } = site();
      const transforms: HeadTransform[] = [];
      sends({ 'hub-live': 'urn:1', cookie: `s=${V1}` }, { transforms });
      clock.advance(1);
      posts(`s=${V1}`)(`s=${V2}`);
      const head = { status: 200, headers: HeaderList.of({}), source: 'upstream' as const };
      const [wrap] = transforms.flatMap((one) => {
        const result = one(head);
        return typeof result === 'function' ? [result] : [];
      });
      const body = new PassThrough();
      const rest = wrap?.(body);
      assert.equal(body.writableEnded, true);
      const closed = once(rest ?? body, 'close');
      for (let written = 0; written < 20; written += 1) rest?.write(Buffer.alloc(16_384));
      await closed.catch(() => {});
      assert.equal(rest?.destroyed, true);
    });

    it('are dropped if another site of the gateway has changed a cookie, also after a reload', () => {
      const { clock, fetches } = site();
      const one = fetches(`s=${V1}`);
      clock.advance(1);
      const transforms: HeadTransform[] = [];
      const headers = HeaderList.of({ 'user-agent': 'a', cookie: `s=${V1}` });
      const onHead = (transform: HeadTransform): void => void transforms.push(transform);
      const exchange = fakeExchange({
        method: 'POST',
        headers,
        onHead,
        clientAddress: '192.0.2.1',
      });
      watchCookies(clock)(exchange);
      const fields = HeaderList.of({ 'set-cookie': 's=; Domain=example.com; Max-Age=0' });
      for (const change of transforms)
        void change({ status: 303, headers: fields, source: 'upstream' });
      assert.deepEqual(one(`s=${V3}`), [425]);
    });

    it('look at a bounded number of cookies', () => {
      const { clock, fetches, posts } = site();
      const many = (place: number): string =>
        Array.from({ length: 20_000 }, (_, at) => (at === place ? `s=${V1}` : `c${at}=1`)).join(
          '; ',
        );
      const [within, beyond] = [fetches(many(199)), fetches(many(200))];
      clock.advance(1);
      posts(`s=${V1}`)(`s=${V2}`);
      assert.deepEqual([within?.(), beyond?.()], [[425], [200]]);
    });

    it('take a short value for one of this visitor only', () => {
      const { fetches, posts } = site();
      const one = fetches('lang=en');
      posts('lang=en', { clientAddress: '192.0.2.2' })('lang=fr');
      assert.deepEqual(one('lang=en'), [200, 'lang=en']);
      const other = fetches('lang=en');
      posts('lang=en')('lang=fr');
      assert.deepEqual(other('lang=en'), [425]);
    });
  });

  describe('of a visitor who is redirected after a form', () => {
    /** A browser with a session, and what it asks. */
    const visitor = () => {
      const clock = new TestClock();
      const { take, sharing } = createLiveRefetches({
        ...{ hub: {} as unknown as AnnouncedHub, concerns: () => true, windowMs: 1000 },
        ...{ topicOf: createTopicOf([], (url) => url), clock, random: () => 0, personalFields: [] },
      });
      const asks = (method: string, target: string, fields: Record<string, string> = {}) => {
        const transforms: HeadTransform[] = [];
        const headers = HeaderList.of({ 'user-agent': 'a', cookie: 'session=1', ...fields });
        const onHead = (transform: HeadTransform): void => void transforms.push(transform);
        const exchange = fakeExchange({ method, target, originalTarget: target, headers, onHead });
        take(exchange);
        return {
          exchange,
          answers: (status: number, location?: string): void => {
            const fields = HeaderList.of(location === undefined ? {} : { location });
            for (const one of transforms) void one({ status, headers: fields, source: 'upstream' });
          },
        };
      };
      const fetchOf = (fields: Record<string, string> = {}) => {
        const state = { waits: true };
        const { exchange } = asks('GET', '/other', { 'hub-live': 'urn:uuid:1', ...fields });
        const wait = sharing.ownPages(exchange);
        if (wait === null) state.waits = false;
        void wait?.then(() => (state.waits = false));
        return state;
      };
      return { clock, asks, fetchOf };
    };
    const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

    it('wait until the next page is answered, wherever it is in the end', async () => {
      const { clock, asks, fetchOf } = visitor();
      asks('POST', '/save').answers(303, '/saved#top');
      const one = fetchOf();
      asks('GET', '/image').answers(200);
      const page = asks('GET', '/saved');
      await settled();
      assert.equal(one.waits, true);
      page.answers(302, 'http://localhost/items?page=1');
      await settled();
      assert.equal(one.waits, true);
      asks('GET', '/items?page=1').answers(200);
      await settled();
      assert.equal(one.waits, false);
      assert.equal(fetchOf().waits, false);
      assert.equal(clock.waiting, 1, 'only the limit of the fetch is left');
    });

    it('do not wait for pages of other visitors or sites, or for errors', () => {
      const { asks, fetchOf } = visitor();
      asks('POST', '/save').answers(422);
      asks('POST', '/save').answers(307, '/saved');
      asks('POST', '/save').answers(303, 'https://other.example/saved');
      assert.equal(fetchOf().waits, false);
      asks('POST', '/save').answers(303, '/saved');
      assert.equal(fetchOf({ 'user-agent': 'b' }).waits, false);
    });

    it('do not wait for ever for a page that nobody asks for, or that is not answered', async () => {
      const { clock, asks, fetchOf } = visitor();
      asks('POST', '/save').answers(303, '/saved');
      const one = fetchOf();
      clock.advance(2000);
      await settled();
      assert.equal(one.waits, false);
      asks('POST', '/save').answers(303, '/saved');
      const other = fetchOf();
      for (let count = 0; count < 4; count += 1) {
        clock.advance(1500);
        asks('GET', '/saved');
      }
      await settled();
      assert.equal(other.waits, false);
    });

    it('are awaited for a limited number of pages and visitors', () => {
      const { clock, asks, fetchOf } = visitor();
      // Each awaited page has one timer.
      for (let i = 0; i < 40; i += 1) asks('POST', '/save').answers(303, `/saved${i}`);
      assert.equal(clock.waiting, 32);
      const browser = 'x'.repeat(256);
      asks('POST', '/save', { 'user-agent': `${browser}y` }).answers(303, '/saved');
      assert.equal(fetchOf({ 'user-agent': `${browser}z` }).waits, true, 'names have a limit too');
      for (let i = 0; i < 10_100; i += 1) {
        asks('POST', '/save', { 'user-agent': String(i) }).answers(303, '/saved');
      }
      // One timer is that of the fetch.
      assert.equal(clock.waiting, 32 + 9_999 + 1);
    });
  });
});
