// Heads of more than 64 KiB over HTTP/2, which is Node's own limit for what it sends. Beyond it, Node ends the connection,
// and Node 20 damages the memory of the process.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type ClientHttp2Session, connect, createServer as createHttp2Server } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

/** More than Node's limit, and less than the gateway accepts. */
const LARGE = 'a'.repeat(70_000);

async function get(session: ClientHttp2Session, path: string, headers = {}) {
  const stream = session.request({ ':path': path, ...headers });
  const [head] = await once(stream, 'response');
  let body = '';
  for await (const chunk of stream.setEncoding('utf8')) body += String(chunk);
  return { status: Number(head[':status']), headers: head as Record<string, string>, body };
}

async function startSite(test: TestContext, directives: string): Promise<ClientHttp2Session> {
  const port = await freePort();
  await startGateway(test, `https://localhost:${port} {\n\ttls internal\n${directives}\n}\n`);
  const session = connect(`https://localhost:${port}`, {
    rejectUnauthorized: false,
    settings: { maxHeaderListSize: 1024 * 1024 },
    maxSendHeaderBlockLength: 128 * 1024,
  });
  test.after(() => session.destroy());
  return session;
}

describe('a head of more than 64 KiB over HTTP/2', () => {
  it('is sent, and the connection serves further requests', async (test) => {
    const app = createServer((_request, response) => response.setHeader('X-Large', LARGE).end());
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const session = await startSite(
      test,
      `	redir /redir* https://other.example{uri} permanent
	header /reflect X-Reflected {header.X-Large}
	respond /reflect "reflected"
	reverse_proxy /app 127.0.0.1:${(app.address() as AddressInfo).port}
	respond / "other"`,
    );
    for (let round = 0; round < 20; round += 1) {
      const moved = await get(session, `/redir?${LARGE}`);
      assert.equal(
        moved.headers['location']?.length,
        'https://other.example/redir?'.length + 70_000,
      );
      const reflected = await get(session, '/reflect', { 'x-large': LARGE });
      assert.equal(reflected.headers['x-reflected']?.length, 70_000);
      const proxied = await get(session, '/app');
      assert.equal(proxied.headers['x-large']?.length, 70_000);
      const others = await Promise.all([...Array(30).keys()].map(() => get(session, '/')));
      for (const { body } of others) assert.equal(body, 'other');
    }
    assert.equal(session.closed, false);
  });

  it('ends its own stream only if the gateway makes it larger than it sends', async (test) => {
    const session = await startSite(
      test,
      `	header /large X-Twice "{header.X-Large}{header.X-Large}"
	respond "text"`,
    );
    for (let round = 0; round < 20; round += 1) {
      await assert.rejects(get(session, '/large', { 'x-large': LARGE }), /INTERNAL_ERROR/);
      const other = await get(session, '/');
      assert.equal(other.body, 'text');
    }
    assert.equal(session.closed, false);
  });

  it('is sent to an upstream; one that the gateway makes too large is refused', async (test) => {
    const app = createHttp2Server(
      { settings: { maxHeaderListSize: 1024 * 1024 } },
      (request, response) => response.end(String(request.headers['x-large']?.length)),
    );
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const origin = `http://127.0.0.1:${await freePort()}`;
    const upstream = `h2c://127.0.0.1:${(app.address() as AddressInfo).port}`;
    await startGateway(
      test,
      `${origin} {
	reverse_proxy /twice ${upstream} {
		header_up X-Twice "{header.X-Large}{header.X-Large}"
	}
	reverse_proxy ${upstream}
}
`,
    );
    const headers = [['X-Large', LARGE]] as const;
    assert.equal((await send(`${origin}/`, { headers })).body, '70000');
    assert.equal((await send(`${origin}/twice`, { headers })).status, 400);
    assert.equal((await send(`${origin}/`, { headers })).body, '70000');
  });
});

describe('a field over HTTP/2', () => {
  it('arrives although its value has blanks at its ends, as a placeholder without a value leaves them', async (test) => {
    const session = await startSite(
      test,
      `	header Content-Security-Policy "default-src 'self' {header.X-Sources}"
	header +X-Between "	a  b "
	header >X-Deferred " {header.X-Sources} "
	respond "text"`,
    );
    const { headers } = await get(session, '/');
    assert.equal(headers['content-security-policy'], "default-src 'self'");
    assert.equal(headers['x-between'], 'a  b');
    assert.equal(headers['x-deferred'], '');
  });
});
