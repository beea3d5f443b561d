import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

describe('reverse_proxy with method, rewrite and replace_status', () => {
  it('changes the request to its upstream, and the status of the response, as Caddy does', async (test) => {
    const upstream = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        const status = Number(new URL(`http://x${request.url}`).searchParams.get('status') ?? 200);
        response.writeHead(status).end(`${request.method} ${request.url} ${body}`);
      });
    });
    test.after(() => upstream.close());
    const port = await freePort();
    upstream.listen(port, '127.0.0.1');
    await once(upstream, 'listening');
    const to = `127.0.0.1:${port}`;
    const directives = `
	reverse_proxy /method ${to} {
		method GET
	}
	reverse_proxy /rewrite/* ${to} {
		rewrite /in{path}?from={query}
	}
	reverse_proxy /path ${to} {
		rewrite /elsewhere
	}
	reverse_proxy /status ${to} {
		@gone status 4xx
		replace_status @gone 203
		@made status 201
		handle_response @made {
			respond "made {path}" 202
		}
	}
	reverse_proxy /again* ${to} {
		handle_response {
			reverse_proxy ${to}
		}
	}
	reverse_proxy /reset ${to} {
		handle_response {
			reverse_proxy ${to} {
				method GET
			}
		}
	}
	handle /retried {
		reverse_proxy 127.0.0.1:1 ${to} {
			lb_policy first
			lb_retries 2
			fail_duration 1m
		}
	}
`;
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${directives}}\n`);
    const caddy = await startCaddy(test, directives);
    for (const at of caddy === null ? [origin] : [origin, caddy]) {
      for (const [method, path, status, body] of [
        ['POST', '/method', 200, 'GET /method '],
        ['POST', '/rewrite/a?b=c', 200, 'POST /in/rewrite/a?from=b%3Dc body'],
        ['POST', '/path?b=c', 200, 'POST /elsewhere?b=c body'],
        ['GET', '/status?status=404', 203, 'GET /status?status=404 '],
        ['GET', '/status?status=201', 202, 'made /status'],
        ['GET', '/status', 200, 'GET /status '],
        ['GET', '/retried', 200, 'GET /retried '],
        ['GET', '/again', 200, 'GET /again '],
        ['POST', '/reset', 200, 'GET /reset '],
      ] as const) {
        const sent = method === 'POST' ? { headers: [['Content-Length', '4']], body: 'body' } : {};
        const answer = await send(`${at}${path}`, { method, ...sent } as Parameters<
          typeof send
        >[1]);
        const where = at === origin ? 'hubgate' : 'Caddy';
        assert.deepEqual([answer.status, answer.body], [status, body], `${where}: ${path}`);
      }
      for (const field of [
        ['Content-Length', '4'],
        ['Transfer-Encoding', 'chunked'],
      ] as const) {
        const { status } = await send(`${at}/again`, {
          method: 'POST',
          headers: [field],
          body: 'body',
        });
        assert.equal(status, 502, `the first upstream has the body, ${field[0]}`);
      }
    }
  });
});

describe('the fields of a response in placeholders', () => {
  it('are text: what is not ASCII keeps its bytes', async (test) => {
    const name = Buffer.from('José').toString('latin1');
    const upstream = createServer((request, response) => {
      const seen = request.headers['x-seen'] ?? '';
      response.writeHead(200, { 'X-Name': name, ...(seen === '' ? {} : { 'X-Seen': seen }) });
      response.end('the app');
    });
    test.after(() => upstream.close());
    const port = await freePort();
    upstream.listen(port, '127.0.0.1');
    await once(upstream, 'listening');
    const to = `127.0.0.1:${port}`;
    const directives = `
	reverse_proxy /body ${to} {
		handle_response {
			respond "{rp.header.X-Name}"
		}
	}
	route /asked {
		reverse_proxy ${to} {
			handle_response {
				request_header X-Seen {rp.header.X-Name}
			}
		}
		reverse_proxy ${to}
	}
`;
    // The Caddy that is compared has neither.
    const more = `
	reverse_proxy /down ${to} {
		header_down X-Out {rp.header.X-Name}
	}
	route /intercepted {
		intercept {
			handle_response {
				header X-Out {resp.header.X-Name}
				respond "{resp.header.X-Name}"
			}
		}
		reverse_proxy ${to}
	}
`;
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${directives}${more}}\n`);
    const caddy = await startCaddy(test, directives);
    for (const at of caddy === null ? [origin] : [origin, caddy]) {
      assert.equal((await send(`${at}/body`)).body, 'José');
      assert.equal((await send(`${at}/asked`)).headers['x-seen'], name);
    }
    assert.equal((await send(`${origin}/down`)).headers['x-out'], name);
    const { headers, body } = await send(`${origin}/intercepted`);
    assert.deepEqual([headers['x-out'], body], [name, 'José']);
  });
});
