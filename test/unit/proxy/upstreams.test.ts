import assert from 'node:assert/strict';
import http from 'node:http';
import http2 from 'node:http2';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { freePort } from '../../support/free-port.ts';
import { startGateway } from '../../support/gateway.ts';
import { send } from '../../support/http.ts';
import { UpstreamRegistry } from '../../../src/proxy/upstreams.ts';
import { portOf } from '../http/exchange-server.ts';

describe('an upstream', () => {
  it('counts as a different one over HTTP/2', () => {
    const registry = new UpstreamRegistry();
    const [first, second, third] = ['http://a:80', 'h2c://a:80', 'http://a:80'].map((text) =>
      registry.leaseUpstream(text),
    );
    assert.notEqual(first?.value, second?.value);
    assert.equal(first?.value, third?.value);
    assert.equal(second?.value.address.http2, true);
  });

  it('is contacted over HTTP/2 as soon as a reload has switched it to HTTP/2', async (test) => {
    let app: http.Server | http2.Http2Server = http.createServer((_, response) => {
      response.end('1.1');
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    const [appPort, port] = [portOf(app), await freePort()];
    const site = (scheme: string): string =>
      `http://localhost:${port} {\n\treverse_proxy ${scheme}://127.0.0.1:${appPort}\n}\n`;
    const { reload } = await startGateway(test, site('http'));
    assert.equal((await send(`http://localhost:${port}/`)).body, '1.1');
    app.closeAllConnections();
    app.close();
    await once(app, 'close');
    app = http2.createServer((request, response) => response.end(request.httpVersion));
    app.listen(appPort, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    await reload(site('h2c'));
    assert.equal((await send(`http://localhost:${port}/`)).body, '2.0');
  });
});
