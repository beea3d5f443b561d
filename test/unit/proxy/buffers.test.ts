import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { BufferSpace } from '../../../src/proxy/buffers.ts';
import { freePort } from '../../support/free-port.ts';
import { origin, type Overrides, proxyTo, rawOrigin, type TestGateway, until } from './gateway.ts';

const KIB = 1024;

describe('request_buffers', () => {
  it('sends a body to the upstream when it is complete, with its length', async () => {
    const asked: http.IncomingHttpHeaders[] = [];
    await using app = await origin((request, response) => {
      asked.push(request.headers);
      echo(request, response);
    });
    await using gateway = await proxyTo([app.url], { requestBuffers: 64 * KIB });
    const request = upload(gateway, { 'Transfer-Encoding': 'chunked' });
    request.write('one ');
    // A request of its own comes through meanwhile, so the gateway has had its turns.
    assert.equal((await get(gateway)).body, '');
    assert.equal(asked.length, 1);
    request.end('two');
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    assert.equal(await text(response), 'one two');
    assert.equal(asked[1]?.['content-length'], '7');
    assert.equal(asked[1]?.['transfer-encoding'], undefined);
  });

  it('streams what is beyond the limit, and loses nothing', async () => {
    await using app = await origin((request, response) => {
      response.setHeader('x-framing', request.headers['transfer-encoding'] ?? 'length');
      echo(request, response);
    });
    await using gateway = await proxyTo([app.url], { requestBuffers: 4 * KIB });
    for (const [size, framing] of [
      [4 * KIB - 1, 'length'],
      [300 * KIB, 'chunked'],
    ] as const) {
      const body = Buffer.alloc(size, 'abcdefghij').toString();
      const request = upload(gateway, { 'Transfer-Encoding': 'chunked' });
      request.end(body);
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      assert.equal(await text(response), body);
      assert.equal(response.headers['x-framing'], framing);
    }
  });

  it('gives a complete body to the next upstream as well', async () => {
    await using app = await origin(echo);
    const closed = `http://127.0.0.1:${await freePort()}`;
    await using gateway = await proxyTo([closed, app.url], {
      requestBuffers: 64 * KIB,
      loadBalancing: {
        ...{ policy: { kind: 'first' }, tryDurationMs: 5_000, tryIntervalMs: 10 },
        ...{ retries: null, retryMatch: null },
      },
    });
    const request = upload(gateway, { Expect: '100-continue', 'Content-Length': '4' });
    request.once('continue', () => request.end('body'));
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    assert.deepEqual([response.statusCode, await text(response)], [200, 'body']);
  });

  it('gives a large complete body to the next upstream after the first one has read it', async () => {
    await using app = await origin(echo);
    await using broken = await origin((request) => {
      request.resume();
      request.once('end', () => request.socket.destroy());
    });
    const overrides: Overrides = {
      requestBuffers: 64 * KIB,
      loadBalancing: {
        ...{ policy: { kind: 'first' }, tryDurationMs: 5_000, tryIntervalMs: 10 },
        ...{ retries: null, retryMatch: null },
      },
    };
    await using gateway = await proxyTo([broken.url, app.url], overrides, {
      mayRetry: () => Promise.resolve(true),
    });
    const body = Buffer.alloc(40 * KIB, 'abcdefghij').toString();
    const request = upload(gateway, { 'Transfer-Encoding': 'chunked' });
    request.end(body);
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    assert.equal(response.statusCode, 200);
    assert.ok((await text(response)) === body);
  });

  it('gives a body beyond the limit to the next upstream, unless one has read more than the buffer', async () => {
    await using app = await origin(echo);
    const closed = `http://127.0.0.1:${await freePort()}`;
    await using broken = await origin((request) => {
      let bytes = 0;
      request.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes === Number(request.headers['content-length'])) request.socket.destroy();
      });
    });
    for (const [first, size, status] of [
      [closed, 200 * KIB, 200],
      [broken.url, 200 * KIB, 502],
      [broken.url, 64 * KIB, 200],
    ] as const) {
      const body = Buffer.alloc(size, 'abcdefghij').toString();
      await using gateway = await proxyTo(
        [first, app.url],
        { requestBuffers: 64 * KIB },
        { mayRetry: () => Promise.resolve(true) },
      );
      const request = upload(gateway, { 'Content-Length': String(body.length) });
      request.end(body);
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      const answer = await text(response);
      assert.equal(response.statusCode, status);
      if (status === 200) assert.ok(answer === body);
      assert.deepEqual(gateway.faults, []);
    }
  });

  it('asks no upstream for a client that leaves before', async () => {
    let asked = 0;
    await using app = await origin((_request, response) => {
      asked += 1;
      response.end();
    });
    await using gateway = await proxyTo([app.url], { requestBuffers: 64 * KIB });
    const request = upload(gateway, { 'Content-Length': '10' });
    request.on('error', () => {});
    request.write('half');
    await get(gateway);
    request.destroy();
    await get(gateway);
    assert.equal(asked, 2);
    // The memory is free again: more than a thousand such clients fit one after the other.
    for (let i = 0; i < 2; i += 1) assert.equal((await get(gateway)).status, 200);
  });
});

describe('response_buffers', () => {
  const overrides: Overrides = { responseBuffers: 8 * KIB };

  it('begins the response when it is complete, with its length', async () => {
    await using app = await origin((_request, response) => {
      response.write('one ');
      setImmediate(() => response.end('two'));
    });
    await using gateway = await proxyTo([app.url], overrides);
    const { headers, body } = await get(gateway);
    assert.deepEqual([headers['content-length'], body], ['7', 'one two']);
  });

  it('streams what is beyond the limit, and loses nothing', async () => {
    await using app = await origin((request, response) => {
      const size = Number(new URL(request.url ?? '/', 'http://x').searchParams.get('size'));
      response.write(Buffer.alloc(size - 1, 'abc'));
      response.end('.');
    });
    await using gateway = await proxyTo([app.url], overrides);
    for (const size of [8 * KIB, 8 * KIB + 1, 500 * KIB]) {
      const { headers, body } = await get(gateway, `/?size=${size}`);
      assert.equal(body.length, size);
      assert.equal(headers['content-length'], size === 8 * KIB ? String(size) : undefined);
    }
  });

  it('answers 502 instead of half a response, or asks the next upstream', async () => {
    await using broken = await rawOrigin((socket) => {
      socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf');
    });
    await using gateway = await proxyTo([broken.url], overrides);
    assert.equal((await get(gateway)).status, 502);
    await using app = await origin((_request, response) => response.end('whole'));
    await using two = await proxyTo([broken.url, app.url], {
      ...overrides,
      loadBalancing: {
        ...{ policy: { kind: 'first' }, tryDurationMs: 5_000, tryIntervalMs: 10 },
        ...{ retries: null, retryMatch: null },
      },
    });
    const { status, body } = await get(two);
    assert.deepEqual([status, body], [200, 'whole']);
  });

  it('passes event streams, and responses without a body, at once', async () => {
    await using app = await origin((request, response) => {
      if (request.url === '/none') {
        response.writeHead(304, { ETag: '"a"' }).end();
        return;
      }
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.write('data: first\n\n');
    });
    await using gateway = await proxyTo([app.url], overrides);
    const none = await get(gateway, '/none');
    assert.deepEqual([none.status, none.headers['content-length']], [304, undefined]);
    const request = http.get({ host: '127.0.0.1', port: gateway.http1, agent: false });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    const [chunk] = (await once(response, 'data')) as [Buffer];
    assert.equal(String(chunk), 'data: first\n\n');
    response.on('error', () => {});
    request.destroy();
  });

  it('leaves no listeners behind, however often it waits for the client', async () => {
    await using app = await origin((_request, response) => {
      response.end(Buffer.alloc(4_000 * KIB));
    });
    /** The number of listeners for the end of the body, whenever it has to wait. */
    const counts: number[] = [];
    await using gateway = await proxyTo([app.url], overrides, {
      before: (exchange) =>
        exchange.onHead(() => (body) => {
          body.on('newListener', (name) => {
            if (name === 'drain') counts.push(body.listenerCount('close'));
          });
          return body;
        }),
    });
    assert.equal((await get(gateway)).body.length, 4_000 * KIB);
    assert.ok(counts.length > 2, `${counts.length} waits`);
    assert.deepEqual([...new Set(counts)], [counts[0]]);
  });

  it('holds no memory for clients that leave before the response begins', async () => {
    let open = 0;
    await using app = await origin((request, response) => {
      open += 1;
      response.once('close', () => (open -= 1));
      response.write('half');
    });
    const space = { responseBuffers: 16 * 1024 * KIB };
    await using gateway = await proxyTo([app.url], space);
    // Four of them fill all of the space.
    for (let round = 0; round < 3; round += 1) {
      const requests = [1, 2, 3, 4].map(() => {
        const request = http.get({ host: '127.0.0.1', port: gateway.http1, agent: false });
        request.on('error', () => {});
        return request;
      });
      await until(() => open === 4, 'the app has all of them');
      for (const request of requests) request.destroy();
      await until(() => open === 0, 'the app has none of them');
    }
  });
});

it('the memory for buffers is bounded for each proxy', () => {
  const space = new BufferSpace();
  const releases = [1, 2, 3, 4].map(() => space.take(16 * 1024 * KIB));
  assert.ok(releases.every((release) => release !== null));
  assert.equal(space.take(1), null);
  releases[0]?.();
  releases[0]?.();
  assert.notEqual(space.take(16 * 1024 * KIB), null);
  assert.equal(space.take(1), null);
});

/** Answers with the body of the request. */
function echo(request: http.IncomingMessage, response: http.ServerResponse): void {
  void text(request).then((body) => response.end(body));
}

function upload(gateway: TestGateway, headers: http.OutgoingHttpHeaders): http.ClientRequest {
  const request = http.request({
    ...{ host: '127.0.0.1', port: gateway.http1, method: 'POST', agent: false },
    headers: { Host: 'site', ...headers },
  });
  request.flushHeaders();
  return request;
}

async function get(
  gateway: TestGateway,
  path = '/',
): Promise<{ status: number; headers: http.IncomingHttpHeaders; body: string }> {
  const request = http.get({ host: '127.0.0.1', port: gateway.http1, path, agent: false });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  const body = await text(response);
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}
