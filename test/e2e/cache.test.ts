import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway, type TestLibraryGateway } from '../support/gateway.ts';
import { type Answer, type RawRequest, send } from '../support/http.ts';
import { silentLogger } from '../support/installed-package.ts';
import { TestClock } from '../support/test-clock.ts';
import { HUB, startSite } from '../unit/discovery/site.ts';

type Respond = (request: IncomingMessage, response: ServerResponse, count: number) => void;

interface Cached {
  readonly gateway: TestLibraryGateway;
  readonly clock: TestClock;
  /** Requests that the app has seen. */
  readonly seen: IncomingMessage[];
  ask(path: string, options?: RawRequest): Promise<Answer>;
  site(directives: string): string;
}

/** A gateway with a cache in front of an app. */
async function startCached(
  test: TestContext,
  respond: Respond,
  directives = 'cache',
): Promise<Cached> {
  const seen: IncomingMessage[] = [];
  const app = createServer((request, response) => {
    seen.push(request);
    respond(request, response, seen.length);
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => {
    app.closeAllConnections();
    app.close();
  });
  const { port: appPort } = app.address() as AddressInfo;
  const port = await freePort();
  const site = (lines: string): string =>
    `http://127.0.0.1:${port} {\n${lines}\nreverse_proxy 127.0.0.1:${appPort}\n}\n`;
  const clock = new TestClock(Date.parse('2026-01-01T00:00:00Z'));
  const gateway = await startLibraryGateway(test, site(directives), undefined, silentLogger, clock);
  const ask = (path: string, options?: RawRequest): Promise<Answer> =>
    send(`http://127.0.0.1:${port}${path}`, options);
  return { gateway, clock, seen, ask, site };
}

function fresh(response: ServerResponse, body: string, fields: Record<string, string> = {}): void {
  response.writeHead(200, { 'Cache-Control': 'public, max-age=60', Date: DATE, ...fields });
  response.end(body);
}

/** Asks again and again, at most a thousand times. */
async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let round = 0; round < 1_000; round += 1) if (await holds()) return;
  assert.fail('it never held');
}

/** A hash of bcrypt. */
const ANN = '$2a$04$WdfSlbENpCN6pu.YmQZdqOejWN9.8EVx9JJ/eSuLMjbQnTgEYwzpe';
const DATE = 'Thu, 01 Jan 2026 00:00:00 GMT';

describe('cache', () => {
  it('applies header directives to each response, as without a cache', async (test) => {
    const directives = [
      'header Content-Type text/html',
      'header X-Both gateway',
      'header X-Id {uuid}',
      '@cached path /app /text',
      'cache @cached {\nttl 1m\n}',
      'respond /text* <p>',
    ].join('\n');
    const { ask, seen } = await startCached(
      test,
      (_request, response) => fresh(response, 'app', { 'X-Both': 'app' }),
      directives,
    );
    for (const path of ['/app', '/text']) {
      const ids = new Set<unknown>();
      const plain = await ask(`${path}?uncached`, { headers: [['Cache-Control', 'no-store']] });
      for (let round = 0; round < 3; round += 1) {
        const { headers } = await ask(path);
        assert.equal(headers['content-type'], plain.headers['content-type'], path);
        assert.equal(headers['x-both'], plain.headers['x-both'], path);
        ids.add(headers['x-id']);
      }
      assert.equal(ids.size, 3, path);
      assert.equal((await ask(path)).headers['cache-status']?.includes('hit'), true, path);
    }
    assert.equal(seen.length, 2);
  });

  it('serves stored responses, says so, and asks the app again when they are stale', async (test) => {
    const { ask, clock } = await startCached(test, (_request, response, count) =>
      fresh(response, `answer ${count}`),
    );
    const first = await ask('/a');
    assert.deepEqual(
      [first.body, first.headers['cache-status'], first.headers.age],
      ['answer 1', 'hubgate; fwd=uri-miss; fwd-status=200; stored; ttl=60', undefined],
    );
    clock.advance(20_000);
    const second = await ask('/a');
    assert.deepEqual(
      [second.body, second.headers['cache-status'], second.headers.age],
      ['answer 1', 'hubgate; hit; ttl=40', '20'],
    );
    clock.advance(40_000);
    assert.equal((await ask('/a')).body, 'answer 2');
  });

  it('answers HEAD, conditional and range requests from stored responses', async (test) => {
    const { ask, seen } = await startCached(test, (_request, response) =>
      fresh(response, '0123456789', { ETag: '"v1"' }),
    );
    await ask('/a');
    const head = await ask('/a', { method: 'HEAD' });
    assert.deepEqual([head.status, head.headers['content-length'], head.body], [200, '10', '']);
    const unchanged = await ask('/a', { headers: [['If-None-Match', 'W/"v1"']] });
    assert.deepEqual([unchanged.status, unchanged.headers.etag, unchanged.body], [304, '"v1"', '']);
    const part = await ask('/a', { headers: [['Range', 'bytes=2-4']] });
    assert.deepEqual(
      [part.status, part.body, part.headers['content-range'], part.headers['content-length']],
      [206, '234', 'bytes 2-4/10', '3'],
    );
    const none = await ask('/a', { headers: [['Range', 'bytes=20-']] });
    assert.deepEqual([none.status, none.headers['content-range']], [416, 'bytes */10']);
    assert.deepEqual([none.headers['cache-control'], none.headers.etag], [undefined, undefined]);
    assert.equal(seen.length, 1);
  });

  it('answers a range request with all of a response that it stores encoded', async (test) => {
    const { ask } = await startCached(
      test,
      (_request, response) =>
        fresh(response, 'x'.repeat(5000), { ETag: '"v1"', 'Content-Type': 'text/plain' }),
      'cache\nencode gzip',
    );
    const gzip = ['Accept-Encoding', 'gzip'] as const;
    await ask('/a', { headers: [gzip] });
    const part = await ask('/a', { headers: [gzip, ['Range', 'bytes=0-9']] });
    assert.deepEqual([part.status, part.headers['content-encoding']], [200, 'gzip']);
    assert.match(String(part.headers['cache-status']), /hit/);
  });

  it('refreshes a stored response with a 304 of the app', async (test) => {
    const { ask, clock, seen } = await startCached(test, (request, response, count) => {
      if (request.headers['if-none-match'] === '"v1"') {
        response.writeHead(304, { 'Cache-Control': 'max-age=60', ETag: '"v1"', 'X-Count': count });
        response.end();
      } else fresh(response, 'hello', { ETag: '"v1"', 'X-Count': String(count) });
    });
    await ask('/a');
    clock.advance(61_000);
    const renewed = await ask('/a');
    assert.deepEqual(
      [renewed.status, renewed.body, renewed.headers['x-count']],
      [200, 'hello', '2'],
    );
    assert.match(String(renewed.headers['cache-status']), /fwd=stale; fwd-status=304; stored/);
    assert.equal((await ask('/a')).headers['x-count'], '2');
    assert.equal(seen.length, 2);
  });

  it('sends the fields of private and no-cache only to the client whose request the app has answered', async (test) => {
    const { ask, clock } = await startCached(test, (request, response, count) => {
      const fields = {
        'Cache-Control': 'public, max-age=60, private="X-Own", no-cache="x-new"',
        ETag: '"v1"',
        'X-Own': String(count),
        'X-New': String(count),
      };
      const isUnchanged = request.headers['if-none-match'] === '"v1"';
      response.writeHead(isUnchanged ? 304 : 200, fields).end(isUnchanged ? '' : 'hello');
    });
    for (const count of ['1', '2']) {
      const first = await ask('/a');
      assert.match(String(first.headers['cache-status']), /stored/);
      assert.equal(first.body, 'hello');
      assert.deepEqual([first.headers['x-own'], first.headers['x-new']], [count, count]);
      const hit = await ask('/a');
      assert.match(String(hit.headers['cache-status']), /hit/);
      assert.deepEqual(
        [hit.body, hit.headers['x-own'], hit.headers['x-new']],
        ['hello', undefined, undefined],
      );
      clock.advance(61_000);
    }
  });

  it('stores a response without a lifetime only for the time of ttl, and only for anonymous users', async (test) => {
    const { ask, seen } = await startCached(
      test,
      (_request, response, count) => response.end(`answer ${count}`),
      'cache /kept/* {\nttl 1m\n}\ncache',
    );
    await ask('/a');
    assert.match(String((await ask('/a')).headers['cache-status']), /detail=no-freshness/);
    assert.equal(seen.length, 2);
    await ask('/kept/a');
    assert.equal((await ask('/kept/a')).body, 'answer 3');
    const known = await ask('/kept/a', { headers: [['Cookie', 'session=1']] });
    assert.equal(known.body, 'answer 4');
    assert.match(String(known.headers['cache-status']), /detail=cookie/);
    assert.equal((await ask('/kept/a')).body, 'answer 3');
  });

  it('serves stale responses while it revalidates, and when the app fails', async (test) => {
    let isBroken = false;
    const { ask, clock, seen } = await startCached(
      test,
      (_request, response, count) => {
        if (isBroken) response.writeHead(503).end('broken');
        else response.writeHead(200, { 'Cache-Control': 'max-age=10' }).end(`answer ${count}`);
      },
      'cache {\nstale 1m\n}',
    );
    await ask('/a');
    clock.advance(15_000);
    const stale = await ask('/a');
    assert.deepEqual(
      [stale.body, stale.headers['cache-status']],
      ['answer 1', 'hubgate; hit; ttl=-5'],
    );
    await until(async () => (await ask('/a')).body === 'answer 2');
    isBroken = true;
    clock.advance(15_000);
    const asked = seen.length;
    assert.equal((await ask('/a')).body, 'answer 2');
    await until(async () => {
      await ask('/a');
      return seen.length > asked;
    });
    assert.equal((await ask('/a')).body, 'answer 2');
    clock.advance(60_000);
    assert.deepEqual([(await ask('/a')).status], [503]);
  });

  it('invalidates what a request has changed', async (test) => {
    const { ask } = await startCached(test, (request, response, count) => {
      if (request.method === 'GET') fresh(response, `answer ${count}`);
      else response.writeHead(303, { Location: '/list' }).end();
    });
    await ask('/a');
    await ask('/list');
    await ask('/a', { method: 'POST', body: 'x' });
    assert.equal((await ask('/a')).body, 'answer 4');
    assert.equal((await ask('/list')).body, 'answer 5');
  });

  it('drops what an update names by a relative URL, also if it is not escaped', async (test) => {
    let count = 0;
    const site = await startSite(
      test,
      (_request, response) => {
        count += 1;
        response.setHeader('Cache-Control', 'public, max-age=60');
        response.end(`answer ${count}`);
      },
      { site: 'cache' },
    );
    assert.equal((await site.get('/caf%C3%A9')).body, 'answer 1');
    assert.equal((await site.get('/caf%C3%A9')).body, 'answer 1');
    await site.publish({ topic: '/café' });
    assert.equal((await site.get('/caf%C3%A9')).body, 'answer 2');
    await site.publish({ topic: '/caf%c3%a9' });
    assert.equal((await site.get('/caf%C3%A9')).body, 'answer 3');
  });

  it('invalidates the URL in Location, also if it is not escaped', async (test) => {
    const location = Buffer.from('/größe').toString('latin1');
    const { ask } = await startCached(test, ({ method }, response, count) => {
      if (method === 'POST') response.writeHead(303, { Location: location }).end();
      else fresh(response, `answer ${count}`);
    });
    assert.equal((await ask('/gr%C3%B6%C3%9Fe')).body, 'answer 1');
    const { headers } = await ask('/sizes', { method: 'POST' });
    assert.equal(headers.location, location);
    assert.equal((await ask('/gr%C3%B6%C3%9Fe')).body, 'answer 3');
  });

  it('keeps what a request has not changed because of an error, whatever the status of the error page', async (test) => {
    const { ask, site, gateway } = await startCached(test, (request, response, count) => {
      if (request.url === '/oops') response.end('sorry');
      else if (request.method === 'GET') fresh(response, `answer ${count}`);
      else request.socket.destroy();
    });
    const [, upstream = ''] = /reverse_proxy (\S+)/.exec(site('')) ?? [];
    const errors = `handle_errors {\nrewrite * /oops\nreverse_proxy ${upstream}\n}`;
    await gateway.reload(site(`cache\n${errors}`));
    assert.equal((await ask('/a')).body, 'answer 1');
    const failed = await ask('/a', { method: 'POST', body: 'x' });
    assert.deepEqual([failed.status, failed.body], [200, 'sorry']);
    assert.equal((await ask('/a')).body, 'answer 1');
  });

  it('drops what an update or a change names by the host that the client has contacted, whatever Host the app gets', async (test) => {
    let count = 0;
    const site = await startSite(
      test,
      (request, response) => {
        count += 1;
        response.setHeader('Cache-Control', 'public, max-age=60');
        response.end(`${request.headers.host} ${count}`);
      },
      {
        hubfile: `http://localhost:{port}, http://b.example:{port} {${HUB}
		anonymous
	}
	request_header Host app.internal
	cache
	reverse_proxy localhost:{app}
}
`,
      },
    );
    const { port } = new URL(site.origin);
    const other = { headers: [['Host', `b.example:${port}`]] } as const;
    assert.equal((await site.get('/a')).body, 'app.internal 1');
    assert.equal((await site.get('/a')).body, 'app.internal 1');
    await site.publish({ topic: `${site.origin}/a` });
    assert.equal((await site.get('/a')).body, 'app.internal 2');
    // What is stored for one host has the names of that host.
    assert.equal((await site.get('/a', other)).body, 'app.internal 3');
    await site.get('/a', { ...other, method: 'POST' });
    assert.equal((await site.get('/a', other)).body, 'app.internal 5');
    assert.equal((await site.get('/a')).body, 'app.internal 2');
  });

  it('removes headers that are meant for caches only', async (test) => {
    const { ask, seen } = await startCached(test, (_request, response) =>
      fresh(response, 'hello', {
        'Cache-Control': 'no-store',
        'CDN-Cache-Control': 'max-age=60',
        'Surrogate-Control': 'max-age=5',
        'Surrogate-Key': 'one two',
        'Cache-Tags': 'three',
        xkey: 'four',
      }),
    );
    for (let round = 0; round < 2; round += 1) {
      const { headers } = await ask('/a');
      const named = [
        'cdn-cache-control',
        'surrogate-control',
        'surrogate-key',
        'cache-tags',
        'xkey',
      ];
      assert.deepEqual(
        named.filter((name) => name in headers),
        [],
      );
      assert.equal(headers['cache-control'], 'no-store');
    }
    assert.equal(seen.length, 1);
  });

  it('does not let a client bypass an access rule inside it', async (test) => {
    const { ask } = await startCached(
      test,
      (_request, response, count) => fresh(response, `answer ${count}`),
      `cache {
	ttl 1m
}
handle /inside {
	@here remote_ip 127.0.0.1
	respond @here "for those who are here"
}
handle /limited {
	rate_limit {
		zone all {
			events 1
			window 1h
		}
	}
}`,
    );
    const inside = await ask('/inside');
    assert.deepEqual([inside.status, inside.body], [200, 'for those who are here']);
    assert.match(String(inside.headers['cache-status']), /detail=client/);
    assert.equal((await ask('/limited')).status, 200);
    assert.equal((await ask('/limited')).status, 429);
  });

  it('sends what encode makes of an empty content, also over HTTP/2', async (test) => {
    const app = http2.createServer();
    app.on('stream', (stream) => {
      const head = { ':status': 302, 'content-type': 'text/plain', location: '/' };
      stream.respond(head, { endStream: true });
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const port = await freePort();
    const lines = ['tls internal', 'encode {\ngzip\nminimum_length 1\n}', 'cache {\nttl 1m\n}'];
    const upstream = `reverse_proxy h2c://127.0.0.1:${(app.address() as AddressInfo).port}`;
    const site = `https://localhost:${port} {\n${[...lines, upstream].join('\n')}\n}\n`;
    await startLibraryGateway(test, site);
    const session = http2.connect(`https://localhost:${port}`, { rejectUnauthorized: false });
    test.after(() => session.destroy());
    for (let round = 0; round < 2; round += 1) {
      const stream = session.request({ ':path': '/', 'accept-encoding': 'gzip' });
      const [head]: Record<string, unknown>[] = await once(stream, 'response');
      assert.equal(head?.['content-encoding'], 'gzip');
      assert.equal(gunzipSync(await buffer(stream)).length, 0);
    }
  });

  it('stores one response per content coding, compressed once', async (test) => {
    const body = 'A page that is long enough. '.repeat(100);
    const { ask, seen } = await startCached(
      test,
      (_request, response) => fresh(response, body, { 'Content-Type': 'text/html', ETag: '"v1"' }),
      'cache\nencode gzip',
    );
    const gzip = { headers: [['Accept-Encoding', 'gzip']] } as const;
    await ask('/a', gzip);
    const hit = await ask('/a', gzip);
    assert.deepEqual(
      [hit.headers['content-encoding'], hit.headers['cache-status']],
      ['gzip', 'hubgate; hit; ttl=60'],
    );
    assert.equal((await ask('/a')).body, body);
    assert.equal((await ask('/a')).headers['content-encoding'], undefined);
    assert.equal(seen.length, 2);
  });

  it('stores live pages with their script, and purges them when requests change them', async (test) => {
    let version = 1;
    const { ask, seen } = await startCached(
      test,
      (request, response) => {
        if (request.method === 'POST') {
          if (request.url !== '/b') version += 1;
          response.writeHead(204).end();
          return;
        }
        const type = { 'Content-Type': 'text/html', ETag: `"v${version}"` };
        fresh(response, `<html><body>page ${version}</body></html>`, type);
      },
      `hub {
	anonymous
	cookie_name hub
}
discovery {
	changes public
	live
}
cache
encode gzip`,
    );
    const first = await ask('/a');
    const hit = await ask('/a');
    assert.match(hit.body, /<script src="[^"]*live\.js.*page 1/s);
    assert.equal(hit.headers['cache-status'], 'hubgate; hit; ttl=60');
    assert.equal(hit.headers.etag, first.headers.etag);
    const unchanged = await ask('/a', { headers: [['If-None-Match', String(hit.headers.etag)]] });
    assert.deepEqual([unchanged.status, seen.length], [304, 1]);
    // The cursor is that of the request, not of the page as it was stored.
    assert.match(String(first.headers.link), /last-event-id="earliest"/);
    assert.equal((await ask('/b', { method: 'POST', body: 'x' })).status, 204);
    await until(async () => !String((await ask('/a')).headers.link).includes('earliest'));
    assert.match((await ask('/a')).body, /page 1/);
    assert.match((await ask('/a?x=1')).body, /page 1/);
    await ask('/a', { method: 'POST', body: 'x' });
    assert.match((await ask('/a')).body, /page 2/);
    // The update that the gateway makes of this names the page, whatever its query is.
    await until(async () => (await ask('/a?x=1')).body.includes('page 2'));
    const refetched = await ask('/a', { headers: [['Hub-Live', 'urn:any']] });
    assert.match(refetched.body, /page 2/);
  });

  it('serves error routes and its own refusals as without a cache', async (test) => {
    const { ask } = await startCached(
      test,
      (_request, response) => response.destroy(),
      'cache {\nttl 1m\n}\nhandle_errors {\nrespond "error {err.status_code}"\n}',
    );
    for (let round = 0; round < 2; round += 1) {
      const failed = await ask('/a');
      assert.deepEqual([failed.status, failed.body], [502, 'error 502']);
    }
    const nothing = await ask('/a', { headers: [['Cache-Control', 'only-if-cached']] });
    assert.deepEqual([nothing.status, nothing.body], [504, 'error 504']);
    assert.equal(nothing.headers['cache-status'], 'hubgate; detail=only-if-cached');
  });

  it('keeps the fields of an error that runs behind it, and says so', async (test) => {
    const dead = await freePort();
    const rules = `
      handle /admin/* {
        basic_auth {
          ann ${ANN}
        }
      }
      handle /refused {
        header X-Set one
        header +Set-Cookie own=1
        error 403
      }
      handle /down {
        header Strict-Transport-Security max-age=9
        reverse_proxy 127.0.0.1:${dead}
      }
      handle_errors 410 {
        header X-Errors yes
        respond "gone"
      }
      handle /gone {
        header X-Set one
        error 410
      }
    `;
    const answerAll: Respond = (_request, response) => fresh(response, 'app');
    const plain = await startCached(test, answerAll, rules);
    const cached = await startCached(test, answerAll, `cache\n${rules}`);
    const facts = ({ status, body, headers }: Answer): object => ({
      ...{ status, body, auth: headers['www-authenticate'], set: headers['x-set'] },
      ...{ hsts: headers['strict-transport-security'], errors: headers['x-errors'] },
      cookie: headers['set-cookie'],
    });
    for (const path of ['/admin/a', '/refused', '/down', '/gone']) {
      const [expected, own] = [await plain.ask(path), await cached.ask(path)];
      assert.deepEqual(facts(own), facts(expected), path);
      assert.equal(own.headers['cache-status'], 'hubgate; fwd=uri-miss', path);
    }
    // Clients that wait for the same error get its fields, but no cookies of the first one.
    const all = await Promise.all(Array.from({ length: 20 }, () => cached.ask('/down')));
    for (const { status, headers } of all) {
      assert.deepEqual([status, headers['strict-transport-security']], [502, 'max-age=9']);
    }
  });

  it('lets directives behind it close the connection', async (test) => {
    const cached = await startCached(
      test,
      (_request, response) => fresh(response, 'app'),
      'cache\nabort /closed',
    );
    for (const method of ['GET', 'HEAD', 'POST']) {
      await assert.rejects(cached.ask('/closed', { method }), method);
    }
    assert.equal((await cached.ask('/open')).body, 'app');
  });

  it('keeps stored responses across a reload that leaves what their requests pass unchanged', async (test) => {
    const { ask, gateway, site } = await startCached(
      test,
      (request, response, count) => fresh(response, `${request.url ?? ''} ${count}`),
      'handle /a {\ncache\n}\nhandle /b {\ncache\n}',
    );
    const both = async (): Promise<string[]> => [(await ask('/a')).body, (await ask('/b')).body];
    assert.deepEqual(await both(), ['/a 1', '/b 2']);
    await gateway.reload(
      `${site('handle /a {\ncache\n}\nhandle /b {\ncache\n}')}\nhttp://127.0.0.2:${await freePort()} {\nrespond ok\n}\n`,
    );
    assert.deepEqual(await both(), ['/a 1', '/b 2']);
    // A sibling that is new or different, also one that comes first.
    await gateway.reload(
      site(
        'handle /new {\n}\nhandle /a {\ncache\n}\nhandle /b {\nrequest_header X-New yes\ncache\n}',
      ),
    );
    assert.deepEqual(await both(), ['/a 1', '/b 3']);
    await gateway.reload(site('header X-New yes\nhandle /a {\ncache\n}'));
    assert.equal((await ask('/a')).body, '/a 4');
    await gateway.reload(site('header X-New yes\nhandle /a {\ncache {\nttl 1s\n}\n}'));
    assert.equal((await ask('/a')).body, '/a 5');
    // A second handle with the same matcher runs as well.
    await gateway.reload(
      site(
        'header X-New yes\nhandle /a {\ncache {\nttl 1s\n}\n}\nhandle /a {\nheader X-More yes\n}',
      ),
    );
    assert.equal((await ask('/a')).body, '/a 6');
  });
});
