import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

const SENT = '/v w?i=1&j=2';

/** The target that hubgate and, where Caddy is installed, Caddy too make of another. */
async function ownAndTheirs(test: TestContext, directives: string) {
  const answer = `${directives}\n\trespond "{http.request.uri}"\n`;
  const port = await freePort();
  await startGateway(test, `http://127.0.0.1:${port} {\n${answer}}\n`);
  const caddy = await startCaddy(test, answer);
  const ask = async (origin: string, target: string) =>
    (await send(`${origin}${target}`, { headers: [['X-Sent', SENT]] })).body;
  return {
    own: (target: string) => ask(`http://127.0.0.1:${port}`, target),
    theirs: caddy === null ? null : (target: string) => ask(caddy, target),
  };
}

describe('rewrite', () => {
  it('changes path and query as Caddy does', async (test) => {
    const { own, theirs } = await ownAndTheirs(
      test,
      `	rewrite /a/* /new{http.request.uri}
	rewrite /b/* /h{http.request.header.X-Sent}
	rewrite /c/* /x?p={http.request.uri.path}&q={http.request.header.X-Sent}&{http.request.uri.query}
	rewrite /d/* /x?
	rewrite /e/* ?{http.request.uri.query}&more={http.request.header.X-Sent}
	rewrite /f/* /x?u={http.request.uri.query}
	rewrite /g/* /x?{http.request.header.X-Sent}
	rewrite /i/* /x?a=b=c&d
	rewrite /k/* /h{http.request.header.X-Sent}?z=1`,
    );
    for (const [target, expected] of [
      ['/a/b?c=1', '/new/a/b?c=1'],
      ['/a/b', '/new/a/b'],
      ['/b/1?k=2', '/h/v%20w?k=2'],
      ['/c/%26x/y?m=1&n=%20', '/x?p=%2Fc%2F%26x%2Fy&q=%2Fv+w%3Fi%3D1%26j%3D2&m=1&n=%20'],
      ['/d/1?x=1', '/x'],
      ['/e/1?q=1', '/e/1?q=1&more=%2Fv+w%3Fi%3D1%26j%3D2'],
      ['/e/1', '/e/1?more=%2Fv+w%3Fi%3D1%26j%3D2'],
      ['/f/1?a=1&b=2', '/x?u=a%3D1%26b%3D2'],
      ['/g/1?z=1', '/x?%2Fv+w%3Fi%3D1%26j%3D2'],
      ['/i/1', '/x?a=b=c&d'],
      ['/k/1?y=1', '/h/v%20w?z=1'],
    ] as const) {
      assert.equal(await own(target), expected, target);
      if (theirs !== null) assert.equal(await theirs(target), expected, `Caddy: ${target}`);
    }
  });
});

describe('a target that placeholders have filled in', () => {
  it('has no fragment, which a request line may not contain (RFC 9112 §3.2)', async (test) => {
    const { own, theirs } = await ownAndTheirs(
      test,
      `	rewrite /a/* /x/{query.to}
	uri /b/* replace /b/ /{query.to}/
	uri /c/* path_regexp /c/(\\w+) /{query.to}/$1`,
    );
    for (const [target, expected] of [
      ['/a/1?to=y%23z', '/x/y%23z?to=y%23z'],
      ['/b/1?to=y%23z', '/y%23z/1?to=y%23z'],
      ['/c/1?to=y%23z', '/y%23z/1?to=y%23z'],
    ] as const) {
      assert.equal(await own(target), expected, target);
      if (theirs !== null) assert.equal(await theirs(target), expected, `Caddy: ${target}`);
    }
  });
});

describe('uri', () => {
  it('path_regexp replaces only in the path, as Caddy does', async (test) => {
    const { own, theirs } = await ownAndTheirs(
      test,
      `	uri /p/* path_regexp /p/(\\w+) /$1/y
	uri /r/* path_regexp /{2,} /
	uri /s/* path_regexp e {http.request.header.X-Sent}`,
    );
    for (const [target, expected] of [
      ['/p/foo/bar?p=/p/foo', '/foo/y/bar?p=/p/foo'],
      ['/r//x///y?z=//', '/r/x/y?z=//'],
      ['/s/he?e', '/s/h/v%20w%3Fi=1&j=2?e'],
      ['/other//', '/other//'],
    ] as const) {
      assert.equal(await own(target), expected, target);
      if (theirs !== null) assert.equal(await theirs(target), expected, `Caddy: ${target}`);
    }
  });

  it('changes the decoded path where the change would damage an escape, as Caddy does', async (test) => {
    const { own, theirs } = await ownAndTheirs(
      test,
      `	uri /a/* replace 2 two
	uri /b/* path_regexp \\d{2} N
	uri /c/* path_regexp [A-F] _
	uri /d/* replace A z
	uri /e/* replace C D`,
    );
    for (const [target, expected] of [
      ['/a/my%20file2', '/a/my%20filetwo'],
      ['/a/100%25%20of2?x=2', '/a/100%25%20oftwo?x=two'],
      ['/b/a%20b/33', '/b/a%20b/N'],
      ['/c/%C3%A4/b', '/c/%C3%A4/b'],
      ['/d/%C3%A4/b', '/d/%C3%A4/b'],
      ['/e/%C3%A4/C', '/e/%D3%A4/D'],
    ] as const) {
      assert.equal(await own(target), expected, target);
      if (theirs !== null) assert.equal(await theirs(target), expected, `Caddy: ${target}`);
    }
  });

  it('query renames, sets, adds, replaces and deletes in this order', async (test) => {
    const port = await freePort();
    const site = `	uri /set query a {http.request.header.X-Sent}
	uri /add query +a 2
	uri /delete query -a
	uri /rename query a>b
	uri /replace query a ^(\\d)x $1y
	uri /all query * o 0
	uri /order query {
		b 1
		a>b
	}
	uri /block query {
		-gone
		* 1 9
		+z 1
		a 1
		old>gone
	}
	respond "{uri}"
`;
    await startGateway(test, `http://127.0.0.1:${port} {\n${site}}\n`);
    for (const [target, expected] of [
      ['/set?z=1&a=1&y=2&a=2', '/set?z=1&a=%2Fv+w%3Fi%3D1%26j%3D2&y=2'],
      ['/set', '/set?a=%2Fv+w%3Fi%3D1%26j%3D2'],
      ['/add?a=1&b=%20', '/add?a=1&b=+&a=2'],
      ['/delete?b=1&a=1&a', '/delete?b=1'],
      ['/delete?a=1', '/delete'],
      ['/delete?b=%20x&c', '/delete?b=%20x&c'],
      ['/rename?b=0&x=1&a=2', '/rename?x=1&b=2'],
      ['/rename?b=0', '/rename?b=0'],
      ['/replace?a=1x&a=x&b=1x', '/replace?a=1y&a=x&b=1x'],
      ['/all?a=foo&b=o', '/all?a=f00&b=0'],
      ['/order?a=x', '/order?b=1'],
      ['/block?old=1&k=1', '/block?k=9&a=9&z=9'],
    ] as const) {
      const { body } = await send(`http://127.0.0.1:${port}${target}`, {
        headers: [['X-Sent', SENT]],
      });
      assert.equal(body, expected, target);
    }
  });
});
