import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { type Answer, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import {
  COOKIE,
  cookies,
  fields,
  ISSUER,
  type Site,
  startSite,
  SUBSCRIBER_KEY,
} from '../unit/discovery/site.ts';
import { isMissed } from '../support/program.ts';

const NGINX = '/usr/sbin/nginx';

/** A shared cache that keeps whatever it may, even what sets cookies. */
async function startCache(test: TestContext, upstream: string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-nginx-'));
  const port = await freePort();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${directory}/${name};`)
    .join('\n');
  const file = join(directory, 'nginx.conf');
  await writeFile(
    file,
    `daemon off;
master_process off;
pid ${directory}/pid;
error_log stderr warn;
events {}
http {
	access_log off;
	${temporary}
	proxy_cache_path ${directory}/cache keys_zone=shared:1m;
	server {
		listen localhost:${port};
		location / {
			proxy_pass ${upstream};
			proxy_http_version 1.1;
			proxy_set_header Host $http_host;
			proxy_cache shared;
			proxy_cache_valid any 10m;
			proxy_cache_revalidate on;
			proxy_ignore_headers Set-Cookie;
			add_header X-Cache $upstream_cache_status always;
		}
	}
}
`,
  );
  const child = spawn(NGINX, ['-p', directory, '-c', file, '-e', 'stderr'], { stdio: 'inherit' });
  test.after(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, 'exit');
    await rm(directory, { recursive: true, force: true });
  });
  const origin = `http://localhost:${port}`;
  for (;;) {
    if (child.exitCode !== null) throw new Error('nginx did not start');
    const answer = await send(`${origin}/ready`).catch(() => null);
    if (answer !== null) return origin;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Without nginx the tests are skipped aloud, and in CI fail. */
function hasNginx(test: TestContext): boolean {
  if (existsSync(NGINX)) return true;
  isMissed(test, 'nginx is not installed (apt-get install nginx)');
  return false;
}

/** Sends the fields of the query, and a token to whoever has a session. */
const app: RequestListener = (request, response) => {
  void (async () => {
    const url = new URL(request.url ?? '/', 'http://app');
    for (const [name, value] of url.searchParams) response.setHeader(name, value);
    const user = /session=(\w+)/.exec(request.headers.cookie ?? '')?.[1];
    if (url.pathname === '/minted') {
      response.setHeader('Vary', 'Cookie');
      if (user !== undefined) response.setHeader('X-User-Id', user);
    } else if (user !== undefined) {
      const token = await signToken(SUBSCRIBER_KEY, { iss: ISSUER, sub: user });
      response.setHeader('Hub-Access-Token', token);
    }
    response.setHeader('ETag', '"1"');
    if (request.headers['if-none-match'] === '"1"') response.statusCode = 304;
    response.end(response.statusCode === 304 ? undefined : 'the same page for everybody');
  })();
};

const as = (user: string | null) =>
  user === null ? {} : { headers: [['Cookie', `session=${user}`]] as const };

const cacheOf = (answer: Answer): string => String(answer.headers['x-cache']);

const mint = `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe https://example.com/users/{http.response.header.X-User-Id}
		}
	}`;

describe('discovery behind a shared cache (RFC 9111): user B never sees user A’s token', () => {
  const start = async (test: TestContext, site = ''): Promise<{ cache: string; site: Site }> => {
    const started = await startSite(test, app, { site });
    return { site: started, cache: await startCache(test, started.origin) };
  };

  const policies = [
    {},
    { 'Cache-Control': 'public, max-age=600, s-maxage=600' },
    { 'Cache-Control': 'max-age=600' },
    { 'X-Accel-Expires': '600' },
    { Expires: 'Thu, 01 Jan 2099 00:00:00 GMT' },
  ];

  it('whatever caching headers the app sends, while responses without a token are cached', async (test) => {
    if (!hasNginx(test)) return;
    const { cache } = await start(test);
    for (const [index, policy] of policies.entries()) {
      const query = new URLSearchParams(policy).toString();
      const page = `${cache}/page${index}?${query}`;
      const first = await send(page, as('alice'));
      assert.ok(cookies(first).get(COOKIE)?.get('value'), query);
      const other = await send(page, as('bob'));
      assert.equal(cacheOf(other), 'MISS', query);
      assert.notEqual(
        cookies(other).get(COOKIE)?.get('value'),
        cookies(first).get(COOKIE)?.get('value'),
      );
      const anonymous = await send(page);
      assert.deepEqual(fields(anonymous, 'set-cookie'), [], query);
      const again = await send(page);
      assert.equal(cacheOf(again), 'HIT', `the test can fail: this cache keeps ${query}`);
      assert.equal(again.body, 'the same page for everybody');
      assert.deepEqual(fields(again, 'set-cookie'), []);
    }
  });

  it('when the cache revalidates a shared response for A (§4.3.4)', async (test) => {
    if (!hasNginx(test)) return;
    const { cache } = await start(test);
    const page = `${cache}/page?Cache-Control=public,max-age%3D1`;
    assert.equal(cacheOf(await send(page)), 'MISS');
    let answer = await send(page, as('alice'));
    const deadline = Date.now() + 10_000;
    while (cacheOf(answer) !== 'REVALIDATED') {
      assert.ok(Date.now() < deadline, `never revalidated: ${cacheOf(answer)}`);
      answer = await send(page, as('alice'));
    }
    assert.deepEqual(fields(answer, 'set-cookie'), []);
    const bob = await send(page);
    assert.equal(cacheOf(bob), 'HIT');
    assert.deepEqual(fields(bob, 'set-cookie'), []);
  });

  it('with token mint, when the cache separates users with Vary', async (test) => {
    if (!hasNginx(test)) return;
    const { cache } = await start(test, mint);
    const page = `${cache}/minted?Cache-Control=public,max-age%3D600`;
    const anonymous = await send(page);
    assert.deepEqual(fields(anonymous, 'set-cookie'), []);
    assert.equal(cacheOf(await send(page)), 'HIT');
    const alice = await send(page, as('alice'));
    assert.ok(
      cookies(alice).get(COOKIE)?.get('value'),
      'what is cached for the anonymous is not for her',
    );
    const bob = await send(page, as('bob'));
    assert.ok(cookies(bob).get(COOKIE)?.get('value'));
    assert.notEqual(
      cookies(bob).get(COOKIE)?.get('value'),
      cookies(alice).get(COOKIE)?.get('value'),
    );
    assert.equal(cacheOf(await send(page)), 'HIT', 'and the anonymous keep their copy');
  });
});
