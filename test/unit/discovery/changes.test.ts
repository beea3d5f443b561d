import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import type { Stream } from '../../support/http.ts';
import { type Site, startSite } from './site.ts';

/** What the events of a stream say, in order. */
function dataOf(stream: Stream): string[] {
  return [...stream.text.matchAll(/^data: ?(.*)$/gm)].map(([, data = '']) => data);
}

async function siteWith(test: TestContext, changes: string, app: RequestListener): Promise<Site> {
  return startSite(test, app, { site: `discovery {\n\t\tchanges ${changes}\n\t}` });
}

const answering =
  (status: number, fields: Record<string, string> = {}, body = ''): RequestListener =>
  (request, response) => {
    request.resume();
    response.writeHead(status, fields).end(body);
  };

/** Everything that is published by these requests, each after the one before. */
async function announced(
  test: TestContext,
  changes: string,
  app: RequestListener,
  requests: readonly (readonly [method: string, path: string])[],
): Promise<{ readonly data: string[]; readonly ids: string[]; readonly site: Site }> {
  const site = await siteWith(test, changes, app);
  const stream = await site.stream('match=*');
  for (const [method, path] of requests) await site.get(path, { method });
  await site.publish({ topic: 'https://example.com/last', data: 'last', id: 'urn:last' });
  await stream.untilId('urn:last');
  return { data: dataOf(stream).slice(0, -1), ids: stream.ids.slice(0, -1), site };
}

const NOW = 'public {\n\t\t\twindow 0s\n\t\t\tsync\n\t\t}';

describe('changes (RFC 9111 §4.4)', () => {
  it('announces the target of an unsafe method that did not fail', async (test) => {
    const { data } = await announced(test, NOW, answering(200), [
      ['POST', '/books/1?from=form'],
      ['PUT', '/books/2'],
      ['PATCH', '/books/3'],
      ['DELETE', '/books/4'],
    ]);
    assert.deepEqual(
      data.map((text) => JSON.parse(text)),
      [
        { url: '/books/1', method: 'POST' },
        { url: '/books/2', method: 'PUT' },
        { url: '/books/3', method: 'PATCH' },
        { url: '/books/4', method: 'DELETE' },
      ],
    );
  });

  it('contains a mark for the query of a URL that the response names, but nothing of the request’s own query', async (test) => {
    const app: RequestListener = (request, response) => {
      request.resume();
      response.writeHead(303, { Location: '/page?title=A' }).end();
    };
    const { data, site } = await announced(test, NOW, app, [['POST', '/save?pin=1234']]);
    const { url, queries } = JSON.parse(data[0] ?? '');
    assert.equal(url, '/save');
    assert.deepEqual(Object.keys(queries), [`${site.origin}/save`, `${site.origin}/page`]);
    assert.deepEqual(queries[`${site.origin}/save`], ['']);
    assert.match(queries[`${site.origin}/page`][0], /^[0-9a-f]{2}$/);
  });

  it('contains nothing of the request’s own query if discovery names the page of each response', async (test) => {
    const named: RequestListener = (request, response) => {
      request.resume();
      const link = '</page?title=A>; rel="canonical"';
      response.writeHead(200, request.url === '/named?pin=1234' ? { Link: link } : {}).end();
    };
    const { data, site } = await announced(test, `${NOW}\n\t\tself`, named, [
      ['POST', '/save?pin=1234'],
      ['POST', '/named?pin=1234'],
    ]);
    assert.deepEqual(JSON.parse(data[0] ?? ''), { url: '/save', method: 'POST' });
    const { queries } = JSON.parse(data[1] ?? '');
    assert.deepEqual(Object.keys(queries), [`${site.origin}/named`, `${site.origin}/page`]);
    assert.deepEqual(queries[`${site.origin}/named`], ['']);
  });

  it('announces no URL longer than 1,024 characters, which would be matched against every pattern', async (test) => {
    const { data } = await announced(test, NOW, answering(200), [
      ['POST', `/${'a'.repeat(1024)}`],
      ['POST', '/books/1'],
    ]);
    assert.deepEqual(
      data.map((text) => JSON.parse(text).url),
      ['/books/1'],
    );
  });

  it('announces nothing for safe methods, failures and responses of the gateway itself', async (test) => {
    const app: RequestListener = (request, response) => {
      request.resume();
      response.writeHead(request.url === '/404' ? 404 : request.url === '/500' ? 500 : 200).end();
    };
    const { data } = await announced(test, NOW, app, [
      ['GET', '/a'],
      ['HEAD', '/a'],
      ['OPTIONS', '/a'],
      ['POST', '/404'],
      ['POST', '/500'],
      ['POST', '/.well-known/hub'],
      ['DELETE', '/.well-known/hub/subscriptions'],
    ]);
    assert.deepEqual(data, []);
  });

  it('announces nothing for the page of an error, whatever its status', async (test) => {
    const app: RequestListener = (request, response) => {
      if (request.url === '/oops') response.end('sorry');
      else if (request.url === '/moved') response.writeHead(303, { Location: '/a' }).end();
      else request.socket.destroy();
    };
    const errors = (page: string): string => `${NOW}
	}
	handle_errors {
		rewrite * ${page}
		reverse_proxy localhost:{app}`;
    for (const page of ['/oops', '/moved']) {
      const { data, site } = await announced(test, errors(page), app, [['POST', '/posts/1']]);
      assert.deepEqual(data, [], page);
      const status = page === '/oops' ? 200 : 303;
      assert.equal((await site.get('/posts/1', { method: 'POST' })).status, status);
    }
  });

  it('names Location and Content-Location of the same origin, resolved, and no others', async (test) => {
    const app: RequestListener = (request, response) => {
      request.resume();
      const elsewhere = request.url === '/elsewhere';
      response
        .writeHead(303, {
          Location: elsewhere ? 'https://evil.example/x' : 'new?x=1#top',
          'Content-Location': elsewhere ? '//evil.example/y' : '/list',
        })
        .end();
    };
    const site = await siteWith(test, NOW, app);
    const topics = ['/shop/books', '/shop/new', '/list'];
    const streams = await Promise.all(
      topics.map((path) => site.stream(`match=${encodeURIComponent(site.origin + path)}`)),
    );
    const others = ['https://evil.example/*', '*://*/elsewhere', '*://*/*?:query'];
    const patterns = others.map((one) => `match_urlpattern=${encodeURIComponent(one)}`).join('&');
    const wrong = await site.stream(`${patterns}&match=urn:end`);
    await site.get('/shop/books?page=2', { method: 'POST' });
    await site.get('/elsewhere', { method: 'POST' });
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    for (const stream of streams) await stream.until(({ ids }) => ids.length === 1);
    assert.deepEqual(await wrong.untilId('urn:end'), ['urn:end']);
  });

  it('counts a redirect only if it shows what the request has done', async (test) => {
    const app: RequestListener = (request, response) => {
      request.resume();
      const { searchParams } = new URL(request.url ?? '/', 'http://app');
      const location = searchParams.get('to');
      const fields = location === null ? {} : { Location: location };
      response.writeHead(Number(searchParams.get('status')), fields).end();
    };
    const CASES: readonly (readonly [number, string | null, boolean])[] = [
      [303, '/books/7', true],
      [302, '/books/7', true],
      [301, '/', true],
      [303, '/blogin', true],
      [303, null, false],
      [307, '/books/7', false],
      [308, '/books/7', false],
      [304, null, false],
      [303, 'https://idp.example/authorize', false],
      ...[
        '/login',
        '/login?next=/books',
        '/users/sign_in',
        '/accounts/login/',
        '/wp-login.php',
        '/Log-In',
        '/signin/challenge',
        '/sessions/new',
        '/sso',
      ].map((to) => [302, to, false] as const),
    ];
    const requests = CASES.map(([status, to], at) => {
      const query = new URLSearchParams({ status: `${status}`, ...(to === null ? {} : { to }) });
      return ['POST', `/${at}?${query.toString()}`] as const;
    });
    const { data } = await announced(test, NOW, app, requests);
    assert.deepEqual(
      data.map((text) => JSON.parse(text).url),
      CASES.flatMap(([, , counts], at) => (counts ? [`/${at}`] : [])),
    );
  });

  it('reveals no query: not in the data, the topics, the history or the log', async (test) => {
    const app: RequestListener = (request, response) => {
      request.resume();
      response.writeHead(303, { Location: '/done?token=s3cret', 'Hub-Publish': '"/a?key=s3cret"' });
      response.end();
    };
    const also = 'public {\n\t\t\talso {uri} /written?page=1\n\t\t\twindow 0s\n\t\t\tsync\n\t\t}';
    const site = await siteWith(test, also, app);
    const [all, written] = await Promise.all([
      site.stream('match=*&last_event_id=earliest'),
      site.stream(`match=${encodeURIComponent(`${site.origin}/written?page=1`)}`),
    ]);
    await site.get('/reset-password?token=s3cret', { method: 'POST' });
    await written.until(({ ids }) => ids.length === 1);
    await all.until(({ ids }) => ids.length === 2);
    assert.ok(!all.text.includes('s3cret'), all.text);
    const secrets = ['/done?token=s3cret', '/reset-password?token=s3cret'];
    const matches = secrets.map((path) => `match=${encodeURIComponent(site.origin + path)}`);
    const none = await site.stream(`${matches.join('&')}&match=urn:end&last_event_id=earliest`);
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    assert.deepEqual(await none.untilId('urn:end'), ['urn:end']);
    assert.ok(!JSON.stringify(site.log).includes('s3cret'));
  });

  it('names the topics and collections of the Hubfile, with placeholders', async (test) => {
    const also = `public {
			topic {request.uri.without_query}
			also /collections/{path.0} https://other.example/{path.1} //evil.example/{path.1}
			window 0s
			sync
		}`;
    const site = await siteWith(test, also, answering(201, { Location: '/unnamed' }));
    const named = ['/books/7', '/collections/books'].map((path) => site.origin + path);
    const query = [...named, 'https://other.example/7'];
    const streams = await Promise.all(
      query.map((topic) => site.stream(`match=${encodeURIComponent(topic)}`)),
    );
    const others = await site.stream(
      `match_urlpattern=https://evil.example/*&match=${encodeURIComponent(`${site.origin}/unnamed`)}&match=urn:end`,
    );
    await site.get('/books/7', { method: 'PUT' });
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    for (const stream of streams) await stream.until(({ ids }) => ids.length === 1);
    assert.deepEqual(await others.untilId('urn:end'), ['urn:end']);
  });

  it('names pages by the host that the client has contacted, whatever Host the app gets', async (test) => {
    for (const hub of ['anonymous', 'anonymous\n\t\tpublic_urls http://localhost:{port}']) {
      const site = await startSite(test, answering(303, { Location: '/books/7' }), {
        hub,
        site: `discovery {\n\t\tchanges ${NOW}\n\t}\n\trequest_header Host app.internal`,
      });
      const topics = ['/books', '/books/7'].map((path) => encodeURIComponent(site.origin + path));
      const streams = await Promise.all(
        topics.map((topic) => site.stream(`match=${topic}&match=urn:end`)),
      );
      await site.get('/books', { method: 'POST' });
      // A token for the hub under that name is accepted, too.
      await site.publish({ topic: 'urn:end', id: 'urn:end' });
      for (const stream of streams) assert.equal((await stream.untilId('urn:end')).length, 2, hub);
    }
  });

  it('contains no details with data none', async (test) => {
    const none = 'public {\n\t\t\tdata none\n\t\t\tsync\n\t\t}';
    const { data } = await announced(test, none, answering(204), [['DELETE', '/a']]);
    assert.deepEqual(data, ['']);
  });

  it('contains the response body of the app with data body, if that is JSON of at most 64 KiB', async (test) => {
    const bodies: Record<string, readonly [Record<string, string>, string | Buffer]> = {
      '/json': [{ 'Content-Type': 'application/json' }, '{"id":1}'],
      '/gzip': [
        { 'Content-Type': 'application/vnd.a+json; charset=utf-8', 'Content-Encoding': 'gzip' },
        gzipSync('{"id":2}'),
      ],
      '/deflate': [
        { 'Content-Type': 'application/json', 'Content-Encoding': 'deflate' },
        deflateSync('{"id":3}'),
      ],
      '/raw-deflate': [
        { 'Content-Type': 'application/json', 'Content-Encoding': 'deflate' },
        deflateRawSync('{"id":4}'),
      ],
      '/broken': [{ 'Content-Type': 'application/json' }, '{"id":'],
      '/html': [{ 'Content-Type': 'text/html' }, '{"id":3}'],
      '/large': [{ 'Content-Type': 'application/json' }, `"${'x'.repeat(65_536)}"`],
      '/bomb': [
        { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' },
        gzipSync(`"${'x'.repeat(10_000_000)}"`),
      ],
    };
    const app: RequestListener = (request, response) => {
      request.resume();
      const [fields, body] = bodies[request.url ?? ''] ?? [{}, ''];
      response.writeHead(200, fields).end(body);
    };
    const site = await siteWith(test, 'public {\n\t\t\tdata body\n\t\t\twindow 0s\n\t\t}', app);
    const stream = await site.stream('match=*');
    for (const [index, path] of Object.keys(bodies).entries()) {
      await site.get(path, { method: 'POST' });
      await stream.until(({ ids }) => ids.length === index + 1);
    }
    const bodiesSent = [1, 2, 3, 4].map((id) => JSON.stringify({ id }));
    assert.deepEqual(dataOf(stream).slice(0, 4), bodiesSent);
    assert.deepEqual(
      dataOf(stream)
        .slice(4)
        .map((text) => JSON.parse(text).url),
      ['/broken', '/html', '/large', '/bomb'],
    );
  });

  it('combines a burst on one topic into one update: the first change at once, the last at the end', async (test) => {
    const site = await siteWith(test, 'public {\n\t\t\twindow 3s\n\t\t}', answering(200));
    const stream = await site.stream('match=*');
    const posts = Array.from({ length: 20 }, (_, index) =>
      site.get(`/busy?${index}`, { method: 'POST' }),
    );
    await Promise.all(posts);
    await stream.until(({ ids }) => ids.length >= 2);
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    const ids = await stream.untilId('urn:end');
    assert.equal(ids.length, 3, stream.text);
  });

  it('loses no change when the gateway stops before the window ends', async (test) => {
    const site = await siteWith(test, 'public {\n\t\t\twindow 1h\n\t\t}', answering(200));
    const stream = await site.stream('match=*');
    for (let count = 0; count < 3; count += 1) await site.get('/busy', { method: 'POST' });
    await stream.until(({ ids }) => ids.length === 1);
    await site.stop();
    await stream.until(({ ids }) => ids.length === 2);
  });

  it('is stored before the client gets its response with sync', async (test) => {
    const site = await siteWith(test, NOW, answering(200));
    const before = (await site.get('/', {})).headers.link;
    await site.get('/', { method: 'POST' });
    const after = (await site.get('/', {})).headers.link;
    assert.notEqual(before, after, 'the cursor has moved');
  });

  it('reaches only clients with a token when it is private', async (test) => {
    const site = await siteWith(test, 'private {\n\t\t\tsync\n\t\t}', answering(200));
    const guest = await site.stream('match=*');
    const reader = await site.stream('match=*', {
      headers: [['Authorization', `Bearer ${await site.token()}`]],
    });
    await site.get('/secret', { method: 'POST' });
    await reader.until(({ ids }) => ids.length === 1);
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    assert.deepEqual(await guest.untilId('urn:end'), ['urn:end']);
  });

  it('is never merged with an update for everyone when it is private', async (test) => {
    let created = 0;
    const app: RequestListener = (request, response) => {
      request.resume();
      created += 1;
      response.writeHead(303, { Location: `/books/${created}` }).end();
    };
    const site = await siteWith(test, 'private {\n\t\t\twindow 1m\n\t\t\tsync\n\t\t}', app);
    const reader = await site.stream('match=*', {
      headers: [['Authorization', `Bearer ${await site.token()}`]],
    });
    for (let i = 0; i < 3; i += 1) await site.get('/books', { method: 'POST' });
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    assert.equal((await reader.untilId('urn:end')).length, 4);
  });

  it('is private by default if the request carries credentials', async (test) => {
    const site = await siteWith(test, '{\n\t\t\twindow 0s\n\t\t\tsync\n\t\t}', answering(200));
    const guest = await site.stream('match=*');
    await site.get('/a', { method: 'POST', headers: [['Cookie', 'session=1']] });
    await site.get('/b', { method: 'POST', headers: [['Authorization', 'Basic eDp5']] });
    await site.get('/c', { method: 'POST' });
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    await guest.untilId('urn:end');
    assert.deepEqual(JSON.parse(dataOf(guest)[0] ?? ''), { url: '/c', method: 'POST' });
    assert.equal(guest.ids.length, 2);
  });

  it('is logged at debug level', async (test) => {
    const { site } = await announced(test, NOW, answering(200), [['POST', '/a']]);
    const line = site.log.find(({ message }) => message === 'Announced');
    assert.equal(line?.level, 'debug');
    assert.deepEqual(line?.fields['topics'], [`${site.origin}/a`]);
  });

  it('can be limited to a matcher, and names further topics for related resources', async (test) => {
    const changes = `@public public {
			window 0s
			sync
			also /posts/* /
			also @news /news /start
			also /all
		}
	}
	@public not path /private/*
	@news path /news/*
	vars {
		y z`;
    const site = await siteWith(test, changes, answering(200));
    const streams = await Promise.all(
      ['/', '/news', '/start', '/all', '/private/1'].map((path) =>
        site.stream(`match=${encodeURIComponent(site.origin + path)}`),
      ),
    );
    for (const path of ['/posts/7', '/news/1', '/private/1'])
      await site.get(path, { method: 'POST' });
    await site.publish({ topic: `${site.origin}/all`, data: 'last', id: 'urn:last' });
    await streams[3]?.untilId('urn:last');
    assert.deepEqual(
      streams.map((stream) =>
        dataOf(stream).map((text) => text.replace(/.*"url":"([^"]*).*/, '$1')),
      ),
      [['/posts/7'], ['/news/1'], ['/news/1'], ['/posts/7', '/news/1', 'last'], []],
    );
  });

  it('uses the canonical link of the response as a further name of the changed resource', async (test) => {
    const site = await siteWith(
      test,
      NOW,
      answering(200, {
        Link: '</other>; rel="canonical"; anchor="/x", </style.css>; rel=preload, </pages/A>; rel="Canonical"',
      }),
    );
    const stream = await site.stream(`match=${encodeURIComponent(`${site.origin}/pages/A`)}`);
    const other = await site.stream(
      ['/other', '/style.css']
        .map((path) => `match=${encodeURIComponent(site.origin + path)}`)
        .join('&'),
    );
    await site.get('/edit', { method: 'POST' });
    await stream.until(({ ids }) => ids.length === 1);
    assert.equal(other.ids.length, 0);
  });

  it('announces a URL that matches an alias by its topic alone, without the rest of its query', async (test) => {
    const options = `${NOW}
		alias /index.php/{page} /index.php?title={page}
		alias /post.php?post={id}
		alias /three /two
		alias /two /one`;
    const app: RequestListener = (request, response) => {
      request.resume();
      const to = request.url === '/post.php' ? { Location: '/post.php?post=7&token=s3cret' } : {};
      response.writeHead(request.url === '/post.php' ? 303 : 200, to).end();
    };
    const site = await siteWith(test, options, app);
    const topics = ['/index.php/A', '/index.php/B', '/index.php', '/post.php?post=7', '/post.php'];
    const further = ['/two', '/three'];
    const streams = await Promise.all(
      [...topics, ...further].map((path) =>
        site.stream(`match=${encodeURIComponent(site.origin + path)}`),
      ),
    );
    await site.get('/index.php?title=A&action=submit&token=s3cret', { method: 'POST' });
    await site.get('/post.php', { method: 'POST' });
    await site.get('/one', { method: 'POST' });
    const all = await site.stream('match=*&last_event_id=earliest');
    await all.until(({ ids }) => ids.length === 3);
    for (const at of [0, 3, 4, 5]) await streams[at]?.until(({ ids }) => ids.length === 1);
    assert.deepEqual(
      streams.map(({ ids }) => ids.length),
      [1, 0, 0, 1, 1, 1, 0],
    );
    assert.ok(!all.text.includes('s3cret'), all.text);
    assert.ok(!JSON.stringify(site.log).includes('s3cret'));
  });

  it('may be configured more than once: the first directive that matches a request applies', async (test) => {
    const changes = `@inside private {
			window 0s
			sync
		}
		changes @logged private {
			on DELETE
			window 0s
			sync
		}
		changes public {
			window 0s
			sync
			also /all
		}
	}
	@inside path /inside/*
	@logged path /logged/*
	vars {
		y z`;
    const site = await siteWith(test, changes, answering(200));
    const guest = await site.stream('match=*');
    const reader = await site.stream('match=*', {
      headers: [['Authorization', `Bearer ${await site.token()}`]],
    });
    for (const [method, path] of [
      ['POST', '/inside/1'],
      ['POST', '/logged/1'],
      ['DELETE', '/logged/2'],
      ['POST', '/news'],
    ] as const) {
      await site.get(path, { method });
    }
    await site.publish({ topic: 'urn:end', data: '{"url":"end"}', id: 'urn:end' });
    await guest.untilId('urn:end');
    await reader.untilId('urn:end');
    const urls = (stream: Stream): string[] => dataOf(stream).map((text) => JSON.parse(text).url);
    assert.deepEqual(urls(reader), ['/inside/1', '/logged/1', '/logged/2', '/news', 'end']);
    assert.deepEqual(urls(guest), ['/logged/1', '/news', 'end']);
  });
});
