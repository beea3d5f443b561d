import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { cookieDomain, tokenCookies } from '../../../src/discovery/credentials.ts';
import { FORM, signToken } from '../../support/hub-server.ts';
import {
  COOKIE,
  cookieHeader,
  cookies,
  deferred,
  detail,
  fields,
  HUB,
  ISSUER,
  MARK,
  PUBLISHER_KEY,
  startSite,
  SUBSCRIBER_KEY,
} from './site.ts';

/** An app that sends the header of the request's query. */
const echo: RequestListener = (request, response) => {
  const query = new URL(request.url ?? '/', 'http://app').searchParams;
  for (const [name, value] of query) {
    if (name === 'status') response.statusCode = Number(value);
    else response.setHeader(name, value);
  }
  response.end('a page');
};

const send = (token: string, more: Record<string, string> = {}): string =>
  `/?${new URLSearchParams({ 'Hub-Access-Token': token, ...more }).toString()}`;

describe('discovery: the access-token cookie (seed §5.3, hubfile §3)', () => {
  it('makes the cookie from the app’s header, which the client never sees', async (test) => {
    const site = await startSite(test, echo);
    const token = await site.token();
    const answer = await site.get(send(token));
    const cookie = cookies(answer).get(COOKIE) ?? assert.fail('no cookie');
    const { 'max-age': maxAge, ...rest } = Object.fromEntries(cookie);
    assert.deepEqual(rest, {
      value: token,
      path: '/.well-known/hub',
      secure: '',
      httponly: '',
      samesite: 'Strict',
    });
    assert.ok(Number(maxAge) > 3590 && Number(maxAge) <= 3600, `Max-Age from exp, ${maxAge}`);
    assert.deepEqual(fields(answer, 'hub-access-token'), []);
    assert.equal(answer.body, 'a page');
  });

  it('allows reading private updates with the cookie', async (test) => {
    const site = await startSite(test, echo);
    const answer = await site.get(send(await site.token()));
    const stream = await site.stream('match=*', { headers: [cookieHeader(answer)] });
    const id = await site.publish({ topic: 'https://example.com/a', private: 'on', data: '1' });
    await stream.untilId(id);
  });

  it('sets no Max-Age for a token without exp, and at most 400 days (RFC 6265bis §5.5)', async (test) => {
    const site = await startSite(test, echo);
    const eternal = await site.get(send(await site.token({ exp: undefined })));
    assert.equal(cookies(eternal).get(COOKIE)?.has('max-age'), false);
    const long = await site.get(send(await site.token({ exp: 1e300 })));
    assert.equal(cookies(long).get(COOKIE)?.get('max-age'), '34560000');
  });

  it('deletes the cookie for an empty header', async (test) => {
    const site = await startSite(test, echo);
    const answer = await site.get(send(''));
    const cookie = cookies(answer).get(COOKIE) ?? assert.fail('no cookie');
    assert.equal(cookie.get('value'), '');
    assert.equal(cookie.get('max-age'), '0');
    assert.equal(cookie.get('path'), '/.well-known/hub');
    assert.equal(answer.headers['cache-control'], 'private');
  });

  it('drops a value that is not a JWT, with a warning that is not repeated', async (test) => {
    const site = await startSite(test, echo);
    const token = await site.token();
    for (const bad of [
      'not-a-token',
      `${token}; Domain=evil`,
      'a.b.c',
      `${token}.a.b`,
      `${token} x`,
    ]) {
      const before = site.log.length;
      const answer = await site.get(send(bad));
      assert.deepEqual(fields(answer, 'set-cookie'), [], bad);
      assert.deepEqual(fields(answer, 'hub-access-token'), []);
      const [line, ...more] = site.log.slice(before).filter(({ level }) => level === 'warn');
      assert.match(line?.message ?? '', /not a JWT/);
      assert.deepEqual(more, []);
      assert.ok(!JSON.stringify(line).includes(bad));
    }
  });

  it('hides the header from the client with discovery off and outside of the matcher', async (test) => {
    for (const line of ['discovery off', 'discovery /elsewhere/*']) {
      const site = await startSite(test, echo, { site: line });
      const answer = await site.get(send(await site.token()));
      assert.deepEqual(fields(answer, 'hub-access-token'), [], line);
      assert.deepEqual(fields(answer, 'set-cookie'), [], line);
    }
  });

  it('hides the header from the client in trailers too', async (test) => {
    const site = await startSite(test, (_, response) => {
      response.setHeader('Trailer', 'Hub-Access-Token, X-Sum');
      response.write('body');
      response.addTrailers({ 'Hub-Access-Token': 'secret', 'X-Sum': '1' });
      response.end();
    });
    const socket = connect(Number(new URL(site.origin).port), 'localhost');
    socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: close\r\n\r\n');
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /x-sum: 1/i);
    assert.doesNotMatch(text, /secret/);
  });

  it('takes name, header and SameSite from the configuration', async (test) => {
    const site = await startSite(test, echo, {
      hub: 'anonymous\n\t\t}\n\tdiscovery {\n\t\tcookie {\n\t\t\tfrom_header X-Token\n\t\t\tsame_site lax\n\t\t}',
    });
    const token = await site.token();
    const answer = await site.get(`/?X-Token=${token}`);
    assert.equal(cookies(answer).get(COOKIE)?.get('samesite'), 'Lax');
    assert.deepEqual(fields(answer, 'x-token'), []);
  });

  it('sets Domain for a hub on a sibling subdomain, on hosts that the domain covers', async (test) => {
    const hubfile = `http://hub.example.com:{port} {${HUB}
		anonymous
	}
}
http://app.example.com:{port} {
	discovery {
		hub hub.example.com
		cookie {
			domain example.com
		}
	}
	reverse_proxy localhost:{app}
}
`;
    const site = await startSite(test, echo, { hubfile });
    const { port } = new URL(site.origin);
    const answer = await site.get(send(await site.token()), {
      headers: [['Host', `app.example.com:${port}`]],
    });
    assert.equal(cookies(answer).get(COOKIE)?.get('domain'), 'example.com');
    assert.equal(cookies(answer).get(MARK)?.get('domain'), 'example.com');
  });

  it('sets no cookie for a hub on another domain, and logs that', async (test) => {
    const hubfile = `http://localhost:{port} {
	discovery {
		hub https://hub.example.net/.well-known/hub
	}
	reverse_proxy localhost:{app}
}
`;
    const site = await startSite(test, echo, { hubfile });
    const answer = await site.get(send(await site.token()));
    assert.deepEqual(fields(answer, 'set-cookie'), []);
    assert.deepEqual(fields(answer, 'hub-access-token'), []);
    assert.ok(site.log.some(({ message }) => message.includes('no cookie of this site can reach')));
  });

  it('warns about a token that browsers will not keep', async (test) => {
    const site = await startSite(test, (_, response) => {
      response.setHeader('Hub-Access-Token', large);
      response.end();
    });
    const large = await site.token({ note: 'x'.repeat(4000) });
    await site.get('/');
    assert.ok(site.log.some(({ message }) => message.includes('4096')));
  });

  it('computes the Domain as RFC 6265 §5.1.3 matches it', () => {
    assert.equal(cookieDomain('a.example.com', 'a.example.com', null), null);
    assert.equal(cookieDomain('a.example.com', 'b.example.com', null), undefined);
    assert.equal(cookieDomain('a.example.com', 'b.example.com', 'example.com'), 'example.com');
    assert.equal(cookieDomain('example.com', 'b.example.com', 'example.com'), 'example.com');
    assert.equal(cookieDomain('badexample.com', 'b.example.com', 'example.com'), undefined);
    assert.equal(cookieDomain('a.example.com', 'b.example.net', 'example.com'), undefined);
  });

  it('gives each of several hubs on one domain a cookie of its own', () => {
    const attributes = { path: '/h', sameSite: 'Lax', domain: null } as const;
    const names = ['one', 'two'].flatMap((name) =>
      tokenCookies({ ...attributes, name }, 't', 'm', 60).map((cookie) => cookie.split('=')[0]),
    );
    assert.deepEqual(names, ['one', 'one_session', 'two', 'two_session']);
  });
});

describe('discovery: logging out (issue 7, expire)', () => {
  const login = async (site: Awaited<ReturnType<typeof startSite>>, jti = 'urn:token:1') => {
    const answer = await site.get(send(await site.token({ jti })));
    return { answer, cookie: cookieHeader(answer) };
  };

  it('ends the streams of the browser that logs out, and of no other', async (test) => {
    const site = await startSite(test, echo);
    const [alice, bob] = [await login(site), await login(site)];
    const streams = await Promise.all(
      [alice, bob].map(({ cookie }) => site.stream('match=*', { headers: [cookie] })),
    );
    await site.get(send(''), { headers: [alice.cookie] });
    await streams[0]?.untilEnd();
    assert.equal(streams[0]?.complete, true, 'in good order');
    const id = await site.publish({ topic: 'https://example.com/a' });
    await streams[1]?.untilId(id);
  });

  it('does so whichever of the browser’s tokens opened the stream', async (test) => {
    const site = await startSite(test, echo);
    const first = await login(site, 'urn:token:1');
    const stream = await site.stream('match=*', { headers: [first.cookie] });
    const renewed = await site.get(send(await site.token({ jti: 'urn:token:2' })), {
      headers: [first.cookie],
    });
    assert.equal(
      cookies(renewed).get(MARK)?.get('value'),
      cookies(first.answer).get(MARK)?.get('value'),
      'the browser keeps its mark',
    );
    await site.get(send(''), { headers: [cookieHeader(renewed)] });
    await stream.untilEnd();
  });

  it('does so for a token that has already expired, by its jti', async (test) => {
    const site = await startSite(test, echo);
    const { cookie } = await login(site, 'urn:session:7');
    const [token = ''] = cookie[1].split('; ');
    const stream = await site.stream('match=*', { headers: [['Cookie', token]] });
    const expired = await site.token({ jti: 'urn:session:7', exp: 1 });
    const answer = await site.get(send(expired));
    assert.equal(cookies(answer).get(COOKIE)?.get('max-age'), '0');
    await stream.untilEnd();
  });

  it('does so on a configured status or path, and only if the logout succeeded', async (test) => {
    const site = await startSite(test, echo, {
      site: 'discovery {\n\t\texpire {\n\t\t\tstatus 401 419\n\t\t\tpath /logout /session/*\n\t\t}\n\t}',
    });
    const { cookie } = await login(site);
    const stream = await site.stream('match=*', { headers: [cookie] });
    for (const [path, isLogout] of [
      ['/?status=200', false],
      ['/logout?status=403', false],
      ['/logout', true],
      ['/session/end?status=303', true],
      ['/?status=401', true],
      ['/?status=419', true],
    ] as const) {
      const answer = await site.get(path, { headers: [cookie] });
      assert.equal(cookies(answer).get(COOKIE)?.get('max-age') === '0', isLogout, path);
    }
    await stream.untilEnd();
  });

  it('means the status of an error, not that of its page', async (test) => {
    const site = await startSite(
      test,
      (request, response) => {
        if (request.url === '/logout') request.socket.destroy();
        else echo(request, response);
      },
      {
        site: `discovery {
		expire {
			status 401
			path /logout
		}
	}
	error /denied 401
	handle_errors {
		rewrite * /oops
		reverse_proxy localhost:{app}
	}`,
      },
    );
    const { cookie } = await login(site);
    const stream = await site.stream('match=*', { headers: [cookie] });
    for (const [path, isLogout] of [
      ['/logout', false],
      ['/denied', true],
    ] as const) {
      const answer = await site.get(path, { headers: [cookie], method: 'POST' });
      assert.equal(answer.status, 200);
      assert.equal(cookies(answer).get(COOKIE)?.get('max-age') === '0', isLogout, path);
      if (!isLogout) assert.equal(stream.ended, false);
    }
    await stream.untilEnd();
  });

  it('refuses an update whose body arrives after its browser has logged out', async (test) => {
    const page = 'https://page.example';
    const site = await startSite(test, echo, { hub: `publish_origins ${page}` });
    const publisher = await signToken(PUBLISHER_KEY, {
      ...{ iss: ISSUER, aud: site.hub },
      authorization_details: [detail('publish', '*')],
    });
    const [own, other] = [cookieHeader(await site.get(send(publisher))), await login(site)];
    const lateUpdate = (beforeBody: () => unknown) =>
      site.get('/.well-known/hub', {
        ...{ method: 'POST', body: 'topic=https://example.com/a', beforeBody },
        headers: [FORM, ['Origin', page], own],
      });
    const unconcerned = await lateUpdate(() => site.get(send(''), { headers: [other.cookie] }));
    assert.equal(unconcerned.status, 200, unconcerned.body);
    const refused = await lateUpdate(() => site.get(send(''), { headers: [own] }));
    assert.equal(refused.status, 401, refused.body);
  });

  it('hides the session mark from the app and leaves its other cookies unchanged', async (test) => {
    const seen: (string | undefined)[] = [];
    const site = await startSite(test, (request, response) => {
      seen.push(request.headers.cookie);
      response.end();
    });
    const mark = `${MARK}=AAAAAAAAAAAAAAAAAAAAAA`;
    for (const value of [`a=1; ${mark}; b=2`, mark, `a=1;b="2"`]) {
      await site.get('/', { headers: [['Cookie', value]] });
    }
    assert.deepEqual(seen, ['a=1; b=2', undefined, 'a=1;b="2"']);
  });

  it('ignores a mark that it cannot have created', async (test) => {
    const site = await startSite(test, echo);
    const forged: [string, string] = ['Cookie', `${MARK}=guessed`];
    const stream = await site.stream('match=*', { headers: [forged] });
    const answer = await site.get(send(await site.token()), { headers: [forged] });
    assert.match(cookies(answer).get(MARK)?.get('value') ?? '', /^[\w-]{22}$/);
    await site.get(send(''), { headers: [forged] });
    const id = await site.publish({ topic: 'https://example.com/a' });
    await stream.untilId(id);
  });
});

describe('discovery: caches (RFC 9111)', () => {
  const claims = { iss: ISSUER, authorization_details: [detail('subscribe', '*')] };

  it('makes a response with a token private, whatever the app said', async (test) => {
    const site = await startSite(test, echo);
    const token = await signToken(SUBSCRIBER_KEY, claims);
    for (const [given, expected] of [
      [undefined, 'private'],
      ['max-age=60', 'private, max-age=60'],
      ['public, s-maxage=60, max-age=5', 'private, max-age=5'],
      ['private="set-cookie", max-age=5', 'private, max-age=5'],
      ['no-cache', 'private, no-cache'],
      ['Private', 'Private'],
      ['no-store', 'no-store'],
      ['public, x="a, private, b"', 'private, x="a, private, b"'],
    ] as const) {
      const more = given === undefined ? {} : { 'Cache-Control': given };
      const answer = await site.get(send(token, more));
      assert.equal(answer.headers['cache-control'], expected, given);
    }
  });

  it('removes the fields that override Cache-Control in some caches (RFC 9213)', async (test) => {
    const site = await startSite(test, echo);
    const token = await signToken(SUBSCRIBER_KEY, claims);
    const overrides = {
      'CDN-Cache-Control': 'max-age=60',
      'Cloudflare-CDN-Cache-Control': 'max-age=60',
      'Surrogate-Control': 'max-age=60',
      'X-Accel-Expires': '60',
    };
    const answer = await site.get(send(token, { ...overrides, 'Cache-Control': 'private' }));
    for (const name of Object.keys(overrides)) {
      assert.deepEqual(fields(answer, name.toLowerCase()), [], name);
    }
    const without = await site.get(`/?${new URLSearchParams(overrides).toString()}`);
    assert.equal(without.headers['x-accel-expires'], '60', 'without a token they stay');
    assert.equal(without.headers['cache-control'], undefined);
  });

  it('gives a 304 a token only if no shared cache may store the response that it stands for (§4.3.4)', async (test) => {
    const site = await startSite(test, echo);
    const token = await signToken(SUBSCRIBER_KEY, claims);
    for (const value of [token, '']) {
      const shared = await site.get(send(value, { status: '304' }));
      assert.deepEqual(fields(shared, 'set-cookie'), []);
      assert.equal(shared.headers['cache-control'], undefined);
      assert.deepEqual(fields(shared, 'hub-access-token'), []);
      const own = await site.get(send(value, { status: '304', 'Cache-Control': 'private' }));
      assert.equal(cookies(own).get(COOKIE)?.get('value'), value);
    }
    assert.ok(site.log.some(({ message }) => message.startsWith('A 304 had a token')));
  });

  it('leaves the body, its length and its validators as the app sent them', async (test) => {
    const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 256));
    const site = await startSite(test, (_, response) => {
      response.writeHead(200, {
        'Content-Type': 'text/html',
        'Content-Length': bytes.length,
        ETag: '"1"',
        'Hub-Access-Token': token,
      });
      response.end(bytes);
    });
    const token = await site.token();
    const answer = await fetch(`${site.origin}/`);
    assert.deepEqual(Buffer.from(await answer.arrayBuffer()), bytes);
    assert.equal(answer.headers.get('content-length'), '100000');
    assert.equal(answer.headers.get('etag'), '"1"');
    assert.match(answer.headers.get('set-cookie') ?? '', /hub_access_token=/);
  });

  it('does not hold back what the app streams', async (test) => {
    const more = deferred();
    const site = await startSite(test, (_, response) => {
      response.write('first');
      void more.promise.then(() => response.end('second'));
    });
    const answer = await fetch(`${site.origin}/`);
    const reader = answer.body?.getReader() ?? assert.fail('no body');
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), 'first');
    more.resolve();
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), 'second');
  });
});
