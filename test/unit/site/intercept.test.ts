import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import type { HandlerConfig } from '../../../src/config/routes.ts';
import { ANY_RESPONSE } from '../../../src/config/shape-routes.ts';
import { openTunnel, tunnelOrigin } from '../../support/raw-tunnel.ts';
import { origin, proxyConfig, rawOrigin, until } from '../proxy/gateway.ts';
import { on, path, respond, serveSite } from './site-server.ts';

const field: HandlerConfig = {
  kind: 'header',
  operations: [{ kind: 'set', name: 'X-Set', value: 'z' }],
  isDeferred: false,
  match: ANY_RESPONSE,
};
/** A field for every response, and another response for `/no`. */
const intercept: HandlerConfig = {
  kind: 'intercept',
  handleResponse: [
    {
      ...ANY_RESPONSE,
      replaceStatus: null,
      routes: [on(field), on(respond('no', 403), path('/no'))],
    },
  ],
};

async function serve(app: http.RequestListener) {
  const upstream = await origin(app);
  const site = await serveSite([on(intercept), on(proxyConfig([upstream.url]))]);
  return {
    port: site.http1,
    faults: site.faults,
    [Symbol.asyncDispose]: async () => {
      await site[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

async function responseOf(port: number, target = '/'): Promise<http.IncomingMessage> {
  const request = http.get({ host: '127.0.0.1', port, path: target, agent: false });
  const [response]: http.IncomingMessage[] = await once(request, 'response');
  assert.ok(response);
  return response;
}

async function textOf(response: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response.setEncoding('latin1')) text += chunk;
  return text;
}

describe('intercept with routes that leave a response to the app', () => {
  it('passes the body on while it arrives', async () => {
    let more = (): void => {};
    await using site = await serve((_request, response) => {
      response.write('first');
      more = () => void response.end('second');
    });
    const response = await responseOf(site.port);
    let text = '';
    for await (const chunk of response.setEncoding('latin1')) {
      // The app sends the rest when the beginning has arrived.
      if (text === '') more();
      text += chunk;
    }
    assert.deepEqual([response.headers['x-set'], text], ['z', 'firstsecond']);
  });

  it('passes a large body and its trailer fields on', async () => {
    const body = 'a line\n'.repeat(300_000);
    await using site = await serve((_request, response) => {
      response.setHeader('Trailer', 'X-Sum');
      response.write(body);
      response.addTrailers({ 'X-Sum': '7' });
      response.end();
    });
    const response = await responseOf(site.port);
    assert.equal(await textOf(response), body);
    assert.equal(response.trailers['x-sum'], '7');
  });

  it('passes the trailer fields of a short response on', async () => {
    await using site = await serve((_request, response) => {
      response.setHeader('Trailer', 'X-Sum');
      response.addTrailers({ 'X-Sum': '7' });
      response.end('short');
    });
    const response = await responseOf(site.port);
    assert.equal(await textOf(response), 'short');
    assert.equal(response.trailers['x-sum'], '7');
  });

  it('drops the body if the routes respond, however large it is', async () => {
    await using site = await serve((_request, response) => {
      response.end('a line\n'.repeat(300_000));
    });
    const response = await responseOf(site.port, '/no');
    assert.deepEqual([response.statusCode, await textOf(response)], [403, 'no']);
    assert.deepEqual(site.faults, []);
  });

  it('sees no WebSocket that the app has opened, over HTTP/1.1 or HTTP/2', async () => {
    await using upstream = await tunnelOrigin((end) => end.end('tunnelled'));
    await using site = await serveSite([on(intercept), on(proxyConfig([upstream.url]))]);
    for (const isHttp2 of [false, true]) {
      const port = isHttp2 ? site.http2 : site.http1;
      const tunnel = await openTunnel(port, '/no', { isTls: false, isHttp2 });
      assert.equal(await text(tunnel), 'tunnelled');
      tunnel.destroy();
    }
    assert.deepEqual(site.faults, []);
  });

  it('cuts the client off if the app breaks off', async () => {
    await using site = await serve((_request, response) => {
      response.setHeader('Content-Length', '100');
      response.write('first', () => response.destroy());
    });
    const response = await responseOf(site.port);
    assert.equal(response.statusCode, 200);
    await assert.rejects(textOf(response), { code: 'ECONNRESET' });
  });

  const half = 'HTTP/1.1 500 Oops\r\nX-First: 1\r\nContent-Length: 100\r\n\r\nhalf';
  const garbled = 'HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n';
  for (const [name, bytes] of [
    ['while they run', half],
    ['at once', garbled],
  ] as const) {
    it(`asks no other upstream if one breaks off ${name}`, async () => {
      let breakOff = (): void => {};
      await using first = await rawOrigin((socket) => {
        socket.write(bytes);
        breakOff = () => socket.destroy();
      });
      let asked = 0;
      await using second = await origin((_request, response) => {
        asked += 1;
        response.end('second');
      });
      /** Ends its response when the first upstream has failed once more. */
      let failures = 0;
      const failed = async (): Promise<void> => {
        breakOff();
        failures += 1;
        const upstreams = site.registry.upstreams();
        const upstream = upstreams.find(({ address }) => address.port === first.port);
        await until(
          () => upstream?.measures.failures === failures,
          'the first upstream has failed',
        );
      };
      await using slow = await origin((_request, response) => {
        response.write('one ');
        void failed().then(() => response.end('two'));
      });
      const passing = proxyConfig([slow.url], {
        handleResponse: [{ ...ANY_RESPONSE, replaceStatus: null, routes: [] }],
      });
      const policy = { kind: 'first' } as const;
      const loadBalancing = { tryDurationMs: 0, tryIntervalMs: 1, retries: 1, retryMatch: null };
      await using site = await serveSite([
        on({
          kind: 'intercept',
          handleResponse: [
            {
              ...ANY_RESPONSE,
              status: ['5xx'],
              replaceStatus: null,
              routes: [
                on(proxyConfig([slow.url]), path('/own')),
                on(passing, path('/none', '/no')),
                on(respond('no', 403), path('/no')),
              ],
            },
          ],
        }),
        on(proxyConfig([first.url, second.url], { loadBalancing: { policy, ...loadBalancing } })),
      ]);
      for (const [target, ...expected] of [
        ['/none', 502, null],
        ['/no', 403, 'no'],
        ['/own', 200, 'one two'],
      ] as const) {
        const response = await responseOf(site.http1, target);
        const body = await textOf(response);
        assert.deepEqual([response.statusCode, expected[1] && body], expected, target);
      }
      assert.equal(asked, 0);
      assert.deepEqual(site.faults, []);
    });
  }
});
