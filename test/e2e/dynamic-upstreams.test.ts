import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

describe('reverse_proxy { dynamic … }', () => {
  it('finds its upstreams in the DNS as Caddy does', async (test) => {
    const port = await freePort();
    const upstream = createServer((request, response) => response.end(`at ${request.url}`));
    test.after(() => upstream.close());
    upstream.listen(port, '127.0.0.1');
    await once(upstream, 'listening');
    const dns = await startDnsServer(test, (_, type) => {
      if (type === 'srv')
        return { kind: 'srv', services: [{ priority: 1, port, target: 'localhost' }] };
      return { kind: 'a', addresses: ['127.0.0.1'] };
    });
    const directives = `
	reverse_proxy /a {
		dynamic a {
			name app.internal
			port ${port}
			versions ipv4
			resolvers udp/${dns.address}
			refresh 30s
		}
	}
	reverse_proxy /srv {
		dynamic srv {
			service api
			proto tcp
			name app.internal
			resolvers udp/${dns.address}
		}
	}
`;
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${directives}}\n`);
    // Caddy 2.6 knows no versions.
    const caddy = await startCaddy(test, directives.replace('versions ipv4', ''));
    for (const path of ['/a', '/srv']) {
      assert.equal((await send(`${origin}${path}`)).body, `at ${path}`);
    }
    if (caddy === null) return;
    const question = 'srv _api._tcp.app.internal';
    const asked = (): number => dns.questions.filter((one) => one === question).length;
    assert.equal(asked(), 1);
    assert.equal((await send(`${caddy}/a`)).body, 'at /a');
    // Go asks the DNS for the target too, even for localhost: only the question can be compared.
    await send(`${caddy}/srv`);
    assert.equal(asked(), 2);
  });
});
