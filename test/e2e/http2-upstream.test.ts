import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

describe('reverse_proxy to h2c:// and with versions h2c', () => {
  it('speaks HTTP/2 to its upstream as Caddy does', async (test) => {
    const upstream = http2.createServer();
    test.after(() => upstream.close());
    upstream.on('stream', (stream, fields) => {
      stream.respond({ ':status': 203, 'x-host': fields[':authority'] });
      stream.end(`${fields[':method']} ${fields[':path']} ${String(fields['x-forwarded-proto'])}`);
    });
    const port = await freePort();
    upstream.listen(port, '127.0.0.1');
    await once(upstream, 'listening');
    const directives = `
	reverse_proxy /named* h2c://127.0.0.1:${port}
	reverse_proxy /versions 127.0.0.1:${port} {
		transport http {
			versions h2c 2
		}
	}
`;
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${directives}}\n`);
    const caddy = await startCaddy(test, directives);
    for (const at of caddy === null ? [origin] : [origin, caddy]) {
      for (const path of ['/named?x=1', '/versions']) {
        const { status, body, headers } = await send(`${at}${path}`);
        const host = new URL(at).host;
        assert.deepEqual([status, body, headers['x-host']], [203, `GET ${path} http`, host]);
      }
    }
  });
});
