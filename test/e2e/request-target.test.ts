import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:http2';
import { describe, it, type TestContext } from 'node:test';
import { answer } from '../../src/http/answer.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send, sendBytes } from '../support/http.ts';
import { serveExchanges } from '../unit/http/exchange-server.ts';

/** An app that answers with the target it was asked for. */
async function startEcho(test: TestContext): Promise<number> {
  const app = createServer(({ url, rawHeaders }, response) => {
    const fields = rawHeaders.filter((_, at) => at % 2 === 0).join(' ');
    response.setHeader('x-fields', fields);
    response.end(`app ${url}`);
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => {
    app.closeAllConnections();
    app.close();
  });
  const address = app.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

async function ask(port: number, target: string, fields = ''): Promise<string> {
  const head = `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n${fields}\r\n`;
  const answer = await sendBytes(`http://127.0.0.1:${port}`, head);
  const body = answer
    .slice(answer.indexOf('\r\n\r\n') + 4)
    .replace(/^\w+\r\n([^]*)\r\n0\r\n\r\n$/, '$1');
  const status = answer.slice(9, 12);
  return status === '200' ? body : status;
}

const GUARDED = (app: number): string => `
	hub {
		issuer https://issuer.example {
			publisher {
				jwt "a publisher key of 32 bytes, or more" HS256
			}
			subscriber {
				jwt "a subscriber key of 32 bytes, or more" HS256
			}
		}
	}
	@app not path /.well-known/hub /.well-known/hub/* /.well-known/oauth-protected-resource/.well-known/hub
	@admin path /admin/*
	route {
		respond @admin "no" 403
		handle_path /area/* {
			respond /in/* "no" 403
			reverse_proxy 127.0.0.1:${app}
		}
		handle /open/* {
			reverse_proxy 127.0.0.1:${app}
		}
		respond @app "no" 401
		reverse_proxy 127.0.0.1:${app}
	}
`;

describe('the request target', () => {
  it('is the same for guards, the hub and the app', async (test) => {
    const app = await startEcho(test);
    const port = await freePort();
    await startGateway(test, `http://127.0.0.1:${port} {${GUARDED(app)}}\n`);
    for (const [target, expected] of [
      ['/account', '401'],
      // Of the hub, whatever its spelling: the guard leaves it out, so no app may get it.
      ['/account/../.well-known/hub', '401'],
      ['/account/%2e%2e/.well-known/hub', '401'],
      ['/account/..%2f.well-known/hub', '400'],
      ['/.well-known/HUB/x', '404'],
      ['//.well-known/hub/x', '404'],
      ['/.well-known%2Fhub/x', '404'],
      ['/.well-known/oauth-protected-resource/.WELL-KNOWN/hub', '404'],
      ['/x\\..\\admin/users', '400'],
      ['/open/\\..\\../admin/users', '400'],
      ['/open/../admin/users', '403'],
      ['/open/%2E%2e/%61dmin/users', '403'],
      ['//admin/users', '403'],
      ['/open/..;/admin/users', '400'],
      ['/open/x/../y?a=../b%zz', 'app /open/y?a=../b%zz'],
      ['/open//https://x.example/', 'app /open//https://x.example/'],
      ['/open/"<>{}|^`[]', 'app /open/%22%3C%3E%7B%7D%7C%5E%60%5B%5D'],
      ['/open/%zz', '400'],
      ['/open/%', '400'],
      [`http://127.0.0.1:${port}/open/../admin/users`, '403'],
      [`http://127.0.0.1:${port}/open/./%7eu`, 'app /open/~u'],
      // What a prefix is taken off is what the matcher has seen.
      ['/area/in/x', '403'],
      ['//area/in/x', '403'],
      ['/./area/in/x', '403'],
      ['/AREA//in/x', '403'],
      ['/%2Farea/in/x', '403'],
      ['/area%2Fin/x', '403'],
      ['/area/out//x', 'app /out/x'],
      ['//area//out/x', 'app /out/x'],
      ['/area/%2Fout/x', 'app /%2Fout/x'],
    ] as const) {
      const answer = await ask(port, target);
      // The hub itself asks for a token where it is asked for its stream.
      if (target.endsWith('.well-known/hub') && expected === '401') {
        assert.match(answer, /^40[01]$/, target);
      } else assert.equal(answer, expected, target);
    }
  });

  it('is the same over HTTP/2', async (test) => {
    const app = await startEcho(test);
    const port = await freePort();
    const site = `https://localhost:${port} {\n\ttls internal\n${GUARDED(app)}}\n`;
    const { root } = await startGateway(test, site);
    const client = connect(`https://localhost:${port}`, { ca: await root() });
    test.after(() => client.close());
    for (const [target, expected] of [
      ['/open/./x', 'app /open/x'],
      ['/open/%2e%2e/admin/users', '403'],
      ['/x\\..\\admin/users', '400'],
      ['/open/%zz', '400'],
      ['//area/in/x', '403'],
      ['/.well-known/HUB/x', '404'],
    ] as const) {
      const request = client.request({ ':path': target });
      const [head] = await once(request, 'response');
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      await once(request, 'close');
      assert.equal(head[':status'] === 200 ? body : String(head[':status']), expected, target);
    }
  });

  it('that is refused with a reason has none in the response to HEAD, which no client would expect (RFC 9110 §9.3.2)', async (test) => {
    const [port, secure] = [await freePort(), await freePort()];
    const site = `http://127.0.0.1:${port}, https://localhost:${secure} {\n\ttls internal\n\trespond x\n}\n`;
    const { root } = await startGateway(test, site);
    for (const target of ['/..%2fb', '/x\\..\\b', '/b?\xfc']) {
      const head = `HEAD ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;
      const answer = await sendBytes(`http://127.0.0.1:${port}`, Buffer.from(head, 'latin1'));
      assert.match(answer, /^HTTP\/1\.1 400 [^]*\r\n\r\n$/, target);
    }
    const client = connect(`https://localhost:${secure}`, { ca: await root() });
    test.after(() => client.close());
    const request = client.request({ ':path': '/..%2fb', ':method': 'HEAD' });
    const [fields] = await once(request, 'response');
    assert.equal(fields[':status'], 400);
    request.on('data', () => assert.fail('content'));
    await once(request, 'close');
    assert.equal(request.rstCode, 0);
  });

  it('of OPTIONS may be an asterisk, which no site answers, because it means the server (RFC 9110 §9.3.7)', async (test) => {
    const [port, plain] = [await freePort(), await freePort()];
    const proxy = '\treverse_proxy 127.0.0.1:1\n}\n';
    const { root } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n${proxy}http://127.0.0.1:${plain} {\n${proxy}`,
    );
    const client = connect(`https://localhost:${port}`, { ca: await root() });
    test.after(() => client.close());
    const request = client.request({ ':method': 'OPTIONS', ':path': '*' });
    const [head] = await once(request, 'response');
    assert.equal(head[':status'], 200);
    const asked = { method: 'OPTIONS', target: '*' };
    const { status, body } = await send(`http://127.0.0.1:${plain}`, asked);
    assert.deepEqual([status, body], [200, '']);
  });

  it('is also normalised after a rewrite in the configuration', async (test) => {
    const app = await startEcho(test);
    const port = await freePort();
    const site = `http://127.0.0.1:${port} {
	route {
		rewrite /r/* /app/{query.to}
		uri /s/* replace /s/ /app/
		respond /admin/* "no" 403
		reverse_proxy 127.0.0.1:${app}
	}
}\n`;
    await startGateway(test, site);
    for (const [target, expected] of [
      ['/r/1?to=x%20y', 'app /app/x%20y?to=x%20y'],
      ['/r/1?to=../admin/users', '403'],
      ['/r/1?to=..%5cadmin', '400'],
      ['/r/1?to=100%25', 'app /app/100%25?to=100%25'],
      ['/s/x', 'app /app/x'],
    ] as const) {
      assert.equal(await ask(port, target), expected, target);
    }
  });

  it('reaches the app with its original spelling if servers says so, while guards see the normalised one', async (test) => {
    const app = await startEcho(test);
    const port = await freePort();
    const site = `http://127.0.0.1:${port} {
	respond /admin/* "no" 403
	rewrite /old/* /new
	reverse_proxy 127.0.0.1:${app}
}\n`;
    const options = '\tservers {\n\t\tforward_raw_path\n\t}\n';
    await startGateway(test, site, options);
    for (const [target, expected] of [
      ['/a/../%7eb|', 'app /a/../%7eb|'],
      ['/a/../admin/x', '403'],
      ['/old/%7e', 'app /new'],
      ['/%zz', '400'],
    ] as const) {
      assert.equal(await ask(port, target), expected, target);
    }
  });
});

describe('fields with an underscore in their names', () => {
  it('are dropped from trailers too, over both protocols', async () => {
    const fields: string[][] = [];
    await using server = await serveExchanges(async (exchange) => {
      for await (const _ of exchange.body);
      fields.push([...exchange.trailers()].map(([name]) => name.toLowerCase()));
      answer(exchange, 204, {});
    });
    const head = `POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`;
    await sendBytes(
      `http://127.0.0.1:${server.http1}`,
      `${head}0\r\nX_User: root\r\nX-Other: 1\r\n\r\n`,
    );
    const client = connect(`http://127.0.0.1:${server.http2}`);
    const request = client.request({ ':method': 'POST' }, { waitForTrailers: true });
    request.once('wantTrailers', () => request.sendTrailers({ x_user: 'root', 'x-other': '1' }));
    request.resume().end('body');
    await once(request, 'close');
    client.close();
    assert.deepEqual(fields, [['x-other'], ['x-other']]);
  });

  it('are dropped on arrival unless servers keeps them', async (test) => {
    const app = await startEcho(test);
    for (const isKept of [false, true]) {
      const port = await freePort();
      const options = isKept ? '\tservers {\n\t\tunderscores_in_headers\n\t}\n' : '';
      const site = `http://127.0.0.1:${port} {\n\trequest_header -X-User\n\treverse_proxy 127.0.0.1:${app}\n}\n`;
      await startGateway(test, site, options);
      const { headers } = await send(`http://127.0.0.1:${port}/`, {
        headers: [
          ['X_User', 'root'],
          ['X-User', 'root'],
          ['X-Other', '1'],
        ],
      });
      const fields = String(headers['x-fields']).toLowerCase().split(' ');
      assert.equal(fields.includes('x_user'), isKept);
      assert.ok(fields.includes('x-other') && !fields.includes('x-user'));
    }
  });
});
