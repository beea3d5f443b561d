// What a response depends on although a cache does not see it: fields that the gateway writes for the app, state that
// handlers have set in front of the cache, and fields that they have set and later ones take back.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { mkdir, writeFile } from 'node:fs/promises';
import { before, after, describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { startPhpFpm } from '../support/php-fpm.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

let failing = false;

/** Its pages show the field that they vary by, which is the first part of the path. */
function app({ headers, url = '' }: IncomingMessage, response: ServerResponse): void {
  const [, name = ''] = url.split('/');
  if (failing) {
    response.writeHead(500).end('failed');
    return;
  }
  if (name === 'auth') {
    response.writeHead(200, { 'X-Backend': String(headers['x-wanted']) }).end();
    return;
  }
  if (name === 'gate') {
    response.writeHead(headers.cookie === 'user=1' ? 200 : 403, { 'Cache-Control': 'no-store' });
    response.end('gate');
    return;
  }
  if (name === 'file-of') {
    const fields = { 'X-File': `/${String(headers['x-tenant'])}`, 'Cache-Control': 'private' };
    response.writeHead(200, fields).end();
    return;
  }
  if (name === 'whose') {
    response.writeHead(200, { 'Cache-Control': 'public, max-age=60' }).end(headers.host);
    return;
  }
  if (name === 'fails') {
    response.writeHead(500).end('failed');
    return;
  }
  if (name === 'always' && headers['if-none-match'] === '"a"') {
    response.writeHead(304).end();
    return;
  }
  if (name === 'always') {
    response.writeHead(200, { 'Cache-Control': 'no-cache, max-age=60', ETag: '"a"' }).end('always');
    return;
  }
  const fields = {
    'Cache-Control': 'public, max-age=60',
    'X-Backend': 'own',
    ...(name === '' ? {} : { Vary: name }),
  };
  response.writeHead(200, fields).end(`${name}: ${String(headers[name])}`);
}

describe('a response that depends on what the cache does not see', () => {
  let port = 0;
  const cleanUps: (() => unknown)[] = [];
  const owner = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
  let tenants: readonly number[] = [];

  async function serve(
    handler: (request: IncomingMessage, response: ServerResponse) => void,
  ): Promise<number> {
    const server = createServer(handler).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const own = (server.address() as AddressInfo).port;
    owner.after(() => server.close());
    return own;
  }

  /** Asks the site with that name. */
  async function ask(
    site: string,
    path: string,
    fields: Readonly<Record<string, string>> = {},
    localAddress = '127.0.0.1',
  ) {
    const headers = { Host: `${site}.localhost:${port}`, ...fields };
    const asked = request({ host: '127.0.0.1', port, path, headers, localAddress, agent: false });
    const [response] = (await once(asked.end(), 'response')) as [IncomingMessage];
    let body = '';
    for await (const chunk of response.setEncoding('utf8')) body += String(chunk);
    return { status: response.statusCode, headers: response.headers, body };
  }

  before(async () => {
    port = await freePort();
    const origin = await serve(app);
    tenants = await Promise.all(
      ['a', 'b'].map((name) =>
        serve((_request, response) => {
          response.writeHead(200, { 'Cache-Control': 'public, max-age=60' }).end(`tenant ${name}`);
        }),
      ),
    );
    const site = (name: string, directives: string): string =>
      `http://${name}.localhost:${port} {\n${directives}\n}\n`;
    const proxy = `reverse_proxy 127.0.0.1:${origin}`;
    await startGateway(
      owner,
      [
        site('plain', `cache\n${proxy}`),
        site('up', `cache\n${proxy} {\n header_up X-Tenant {header.X-Site}\n}`),
        site(
          'address',
          `cache\n${proxy} {\n header_up X-Real-IP {remote_host}\n header_up X-Tenant {header.X-Site}\n}`,
        ),
        site(
          'chain',
          `cache
route {
	request_header X-Address {client_ip}
	@inside header X-Address 127.0.0.1
	header @inside X-Who internal
	request_header X-Between {header.X-Site}
	header X-You {header.X-Between}
	${proxy} {
		header_up X-Tenant {header.X-Between}
	}
}`,
        ),
        site(
          'authup',
          `route {
	forward_auth 127.0.0.1:${origin} {
		uri /auth
	}
	cache
	${proxy} {
		header_up X-Tenant {rp.header.X-Backend}
	}
}`,
        ),
        site('static', `cache\n${proxy} {\n header_up X-Tenant acme\n}`),
        site('removed', `cache\n${proxy} {\n header_up -X-Tenant\n}`),
        site('request', `cache\nhandle {\n request_header X-Tenant {header.X-Site}\n ${proxy}\n}`),
        site(
          'auth',
          `route {
	forward_auth 127.0.0.1:${origin} {
		uri /auth
	}
	cache
	reverse_proxy {rp.header.X-Backend} {
		upstreams_allow 127.0.0.1:${tenants[0]} 127.0.0.1:${tenants[1]}
	}
}`,
        ),
        site(
          'errors',
          `handle_errors {\n rewrite * /page\n cache {\n  ttl 1m\n }\n respond "an error"\n}\nroute {\n @missing header X-Missing yes\n error @missing 404\n error 410\n}`,
        ),
        site(
          'preset',
          `header X-Frame-Options DENY
header Content-Type text/html
header Content-Security-Policy "frame-ancestors 'none'"
header X-Client {header.X-Client}
cache
handle /embed/* {
	header -X-Frame-Options
	header Content-Security-Policy "frame-ancestors *"
	uri strip_prefix /embed
	${proxy}
}
handle /later/* {
	header >X-Frame-Options SAMEORIGIN
	header ?Content-Security-Policy "default-src *"
	header ?X-New yes
	uri strip_prefix /later
	${proxy}
}
handle /deferred/* {
	header {
		X-Frame-Options SAMEORIGIN
		-X-Unknown
		match {
			status 200
		}
	}
	uri strip_prefix /deferred
	${proxy}
}
handle /once/* {
	header {
		X-Extra {header.X-Client}
		match {
			status 200
		}
	}
	uri strip_prefix /once
	${proxy}
}
handle /same/* {
	header X-Client fixed
	header Content-Type application/json
	uri strip_prefix /same
	${proxy}
}
handle /tier/* {
	header {
		X-Extra yes
		match header X-Client gold
	}
	uri strip_prefix /tier
	${proxy}
}
handle /personal/* {
	header >X-Client "^(.*)$" "client $1"
	uri strip_prefix /personal
	${proxy}
}
handle {
	${proxy}
}`,
        ),
        site(
          'some',
          `@mobile header User-Agent mobile
header @mobile X-Frame-Options DENY
cache
handle /default/* {
	header ?X-Frame-Options SAMEORIGIN
	uri strip_prefix /default
	${proxy}
}
handle {
	header -X-Frame-Options
	${proxy}
}`,
        ),
        site(
          'hosts',
          `cache
handle /whose/up {
	${proxy} {
		header_up Host {header.X-Tenant}.test
	}
}
handle /whose/request {
	request_header Host {header.X-Tenant}.test
	${proxy}
}`,
        ),
        site('stale', `cache {\n stale 1h\n}\n${proxy}`),
        site(
          'gate',
          `cache
route {
	${proxy} {
		rewrite /gate
		@good status 2xx
		handle_response @good {
			request_header X-Good yes
		}
	}
	${proxy}
}`,
        ),
        site(
          'replaced',
          `cache {
	ttl 1m
}
${proxy} {
	@file header X-File *
	handle_response @file {
		${proxy} {
			rewrite {rp.header.X-File}
		}
	}
	@failed status 500
	handle_response @failed {
		copy_response_headers
		respond "a fallback" 200
	}
	@other status 200
	handle_response @other {
		header X-Copied yes
		copy_response
	}
}`,
        ),
        site(
          'intercepted',
          `cache {
	ttl 1m
}
intercept {
	@failed status 500
	handle_response @failed {
		respond "a fallback" 200
	}
	@other status 200
	handle_response @other {
		header X-Intercepted yes
	}
}
${proxy}`,
        ),
      ].join(''),
    );
  });

  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });

  it('varies by the field of the client from which a field for the app is made', async () => {
    for (const site of ['up', 'request']) {
      const one = await ask(site, '/x-tenant/1', { 'X-Site': 'a' });
      const other = await ask(site, '/x-tenant/1', { 'X-Site': 'b' });
      const again = await ask(site, '/x-tenant/1', { 'X-Site': 'a' });
      assert.equal(one.body, 'x-tenant: a');
      assert.equal(other.body, 'x-tenant: b');
      assert.equal(again.body, 'x-tenant: a');
      assert.match(String(again.headers['cache-status']), /hubgate; hit/);
    }
  });

  it('varies by the field from which the host of the request to the app is made', async () => {
    for (const path of ['/whose/up', '/whose/request']) {
      assert.equal((await ask('hosts', path, { 'X-Tenant': 'a' })).body, 'a.test');
      assert.equal((await ask('hosts', path, { 'X-Tenant': 'b' })).body, 'b.test');
      const again = await ask('hosts', path, { 'X-Tenant': 'a' });
      assert.match(String(again.headers['cache-status']), /hubgate; hit/, path);
    }
  });

  it('varies by the spelling of the host, which the app sees', async () => {
    const own = `plain.localhost:${port}`;
    const upper = await ask('plain', '/whose/1', { Host: own.toUpperCase() });
    assert.equal(upper.body, own.toUpperCase());
    assert.equal((await ask('plain', '/whose/1')).body, own);
  });

  it('is shared if such a field is the same for everybody', async () => {
    for (const [site, body] of [
      ['static', 'x-tenant: acme'],
      ['removed', 'x-tenant: undefined'],
    ] as const) {
      await ask(site, '/x-tenant/1', { 'X-Site': 'a' });
      const other = await ask(site, '/x-tenant/1', { 'X-Site': 'b' });
      assert.equal(other.body, body);
      assert.match(String(other.headers['cache-status']), /hubgate; hit/);
    }
  });

  it('is not shared if it varies by the address of the client', async () => {
    const one = await ask('plain', '/x-forwarded-for/1');
    const other = await ask('plain', '/x-forwarded-for/1', {}, '127.0.0.7');
    assert.equal(one.body, 'x-forwarded-for: 127.0.0.1');
    assert.equal(other.body, 'x-forwarded-for: 127.0.0.7');
  });

  it('is shared if it varies by the scheme or the coding', async () => {
    for (const name of ['x-forwarded-proto', 'x-forwarded-host', 'accept-encoding']) {
      await ask('plain', `/${name}/1`);
      const again = await ask('plain', `/${name}/1`);
      assert.match(String(again.headers['cache-status']), /hubgate; hit/, name);
    }
  });

  it('varies by what a field is made from, also through other fields', async () => {
    const one = await ask('chain', '/x-tenant/1', { 'X-Site': 'a' });
    const other = await ask('chain', '/x-tenant/1', { 'X-Site': 'b' }, '127.0.0.7');
    assert.deepEqual([one.body, other.body], ['x-tenant: a', 'x-tenant: b']);
    assert.deepEqual([one.headers['x-you'], other.headers['x-you']], ['a', 'b']);
    assert.deepEqual([one.headers['x-who'], other.headers['x-who']], ['internal', undefined]);
    const first = await ask('authup', '/x-tenant/1', { 'X-Wanted': 'a' });
    const second = await ask('authup', '/x-tenant/1', { 'X-Wanted': 'b' });
    assert.deepEqual([first.body, second.body], ['x-tenant: a', 'x-tenant: b']);
  });

  it('does not depend on what another field for the app is made from', async () => {
    for (const name of ['x-forwarded-proto', 'x-forwarded-host', 'x-tenant']) {
      await ask('address', `/${name}/1`, { 'X-Site': 'a' });
      const again = await ask('address', `/${name}/1`, { 'X-Site': 'a' }, '127.0.0.7');
      assert.match(String(again.headers['cache-status']), /hubgate; hit/, name);
    }
    await ask('address', '/x-real-ip/1');
    const other = await ask('address', '/x-real-ip/1', {}, '127.0.0.7');
    assert.equal(other.body, 'x-real-ip: 127.0.0.7');
  });

  it('is for the root that was chosen in front of the cache', async (test) => {
    const php = await startPhpFpm(test);
    if (php === null) return;
    const directory = await temporaryDirectory(test);
    for (const name of ['public', 'internal']) {
      await mkdir(join(directory, name));
      const script = `<?php header('Cache-Control: public, max-age=60'); echo '${name}';`;
      await writeFile(join(directory, name, 'index.php'), script);
    }
    const own = await freePort();
    await startGateway(
      test,
      `http://localhost:${own} {
	root ${directory}/public
	@internal header X-Internal yes
	root @internal ${directory}/internal
	cache
	php_fastcgi ${php.upstream}
}
`,
    );
    const get = async (headers: Record<string, string>) => {
      const response = await fetch(`http://localhost:${own}/index.php`, { headers });
      return { body: await response.text(), status: response.headers.get('cache-status') ?? '' };
    };
    const internal = await get({ 'X-Internal': 'yes' });
    const other = await get({});
    assert.equal(internal.body, 'internal');
    assert.equal(other.body, 'public');
    const again = await get({});
    assert.equal(again.body, 'public');
    assert.match(again.status, /hubgate; hit/);
  });

  it('is not shared if an answer in front of the cache has chosen its upstream', async () => {
    const [first, second] = tenants.map((own) => `127.0.0.1:${own}`);
    const one = await ask('auth', '/page', { 'X-Wanted': String(first) });
    const other = await ask('auth', '/page', { 'X-Wanted': String(second) });
    assert.equal(one.body, 'tenant a');
    assert.equal(other.body, 'tenant b');
  });

  it('is not shared if the response of another app has let the request through', async () => {
    const user = await ask('gate', '/x-tenant/gate', { Cookie: 'user=1' });
    assert.deepEqual([user.status, user.body], [200, 'x-tenant: undefined']);
    assert.equal((await ask('gate', '/x-tenant/gate')).status, 403);
  });

  it('is not shared if it replaces a response for one client', async () => {
    for (const name of ['alice', 'bob', 'alice']) {
      const { body } = await ask('replaced', '/file-of/me', { 'X-Tenant': name });
      assert.equal(body, `${name}: undefined`);
    }
  });

  for (const site of ['replaced', 'intercepted']) {
    it(`is not shared if it replaces an error (${site})`, async () => {
      for (let i = 0; i < 2; i += 1) {
        const { status, headers, body } = await ask(site, '/fails/now');
        assert.deepEqual([status, body], [200, 'a fallback']);
        assert.match(String(headers['cache-status']), /detail=client/);
      }
    });

    it(`is shared if routes send it on (${site})`, async () => {
      const [, again] = [await ask(site, '/kept/1'), await ask(site, '/kept/1')];
      assert.match(String(again.headers['cache-status']), /hubgate; hit/);
      assert.equal(again.headers[site === 'replaced' ? 'x-copied' : 'x-intercepted'], 'yes');
    });
  }

  it('is for the status of its error', async () => {
    const missing = await ask('errors', '/page', { 'X-Missing': 'yes' });
    const failed = await ask('errors', '/page');
    assert.equal(missing.status, 404);
    assert.equal(failed.status, 410);
    const again = await ask('errors', '/page');
    assert.equal(again.status, 410);
    assert.match(String(again.headers['cache-status']), /hubgate; hit/);
  });

  it('lacks the fields that a handler behind the cache removes, and has the changed ones once', async () => {
    for (const way of ['miss', 'hit']) {
      const { headers } = await ask('preset', '/embed/');
      assert.equal(headers['x-frame-options'], undefined, way);
      assert.equal(headers['content-security-policy'], 'frame-ancestors *', way);
      assert.match(String(headers['cache-status']), way === 'hit' ? /hubgate; hit/ : /stored/);
    }
    const { headers } = await ask('preset', '/');
    assert.equal(headers['x-frame-options'], 'DENY');
    assert.equal(headers['content-security-policy'], "frame-ancestors 'none'");
  });

  it('shows those fields to what waits for the response', async () => {
    for (const way of ['miss', 'hit']) {
      const { headers } = await ask('preset', '/later/');
      assert.equal(headers['x-frame-options'], 'SAMEORIGIN', way);
      assert.equal(headers['content-security-policy'], "frame-ancestors 'none'", way);
      assert.equal(headers['x-new'], 'yes', way);
    }
  });

  it('is shared if a handler behind the cache sets another value when it arrives', async () => {
    for (const way of ['miss', 'hit', 'renewed', 'hit']) {
      const path = way === 'renewed' ? '/deferred/always' : '/deferred/';
      if (way === 'renewed') await ask('preset', path);
      const { headers } = await ask('preset', path);
      assert.equal(headers['x-frame-options'], 'SAMEORIGIN', way);
      if (way === 'hit') assert.match(String(headers['cache-status']), /hubgate; hit/);
      if (way === 'renewed') assert.match(String(headers['cache-status']), /fwd-status=304/);
    }
  });

  it('has for each client the fields that it would have without a cache', async () => {
    const mobile = { 'User-Agent': 'mobile' };
    assert.equal((await ask('some', '/default/', mobile)).headers['x-frame-options'], 'DENY');
    assert.equal((await ask('some', '/default/')).headers['x-frame-options'], 'SAMEORIGIN');
    assert.equal((await ask('some', '/')).headers['x-frame-options'], undefined);
    assert.equal((await ask('some', '/', mobile)).headers['x-frame-options'], undefined);
    assert.equal((await ask('some', '/', mobile)).headers['x-frame-options'], undefined);
  });

  it('has the value that a handler behind the cache sets, even if one in front has set the same', async () => {
    for (const client of ['fixed', 'other', 'fixed']) {
      const { headers } = await ask('preset', '/same/', { 'X-Client': client });
      assert.equal(headers['x-client'], 'fixed');
      assert.equal(headers['content-type'], 'application/json');
    }
  });

  it('is not shared if a field of the client has decided about it', async () => {
    const gold = await ask('preset', '/tier/', { 'X-Client': 'gold' });
    const other = await ask('preset', '/tier/', { 'X-Client': 'none' });
    assert.deepEqual([gold.headers['x-extra'], other.headers['x-extra']], ['yes', undefined]);
  });

  it('varies by what has decided about it also after the app has confirmed it', async () => {
    for (const client of ['a', 'a', 'b', 'a']) {
      const { headers } = await ask('preset', '/once/always', { 'X-Client': client });
      assert.equal(headers['x-extra'], client);
    }
  });

  it('does not give a field that is made from that of one client to another one', async () => {
    const one = await ask('preset', '/personal/', { 'X-Client': 'a' });
    const other = await ask('preset', '/personal/', { 'X-Client': 'b' });
    assert.equal(one.headers['x-client'], 'client a');
    assert.equal(other.headers['x-client'], 'client b');
  });

  it('is not sent without validation when the app fails, if it needs that', async () => {
    await ask('stale', '/always');
    failing = true;
    try {
      const again = await ask('stale', '/always');
      assert.equal(again.status, 500);
    } finally {
      failing = false;
    }
  });
});
