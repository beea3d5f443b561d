import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { origin, proxyTo } from '../unit/proxy/gateway.ts';

const MIB = 1024 * 1024;
/** Mebibytes each way. */
const SIZE_MIB = 1_024;
/** A quarter of it: newer V8s are in less of a hurry to give back what lies outside their heap. */
const MAX_GROWTH_MIB = 256;

describe(`${SIZE_MIB} MiB each way`, () => {
  it('pass over HTTP/1.1 with bounded memory, a slow reader included', async () => {
    await using upstream = await bodies();
    await using gateway = await proxyTo([upstream.url]);
    const memory = watchMemory();
    const target = { host: '127.0.0.1', port: gateway.http1, agent: false };

    const get = http.get({ ...target, path: '/down' });
    const [down]: http.IncomingMessage[] = await once(get, 'response');
    assert.ok(down);
    assert.equal(await slowlyCounted(down), SIZE_MIB * MIB);

    const post = http.request({ ...target, path: '/up', method: 'POST' });
    const answered = once(post, 'response');
    await pipeline(generated(), post);
    const [up]: http.IncomingMessage[] = await answered;
    assert.equal(up?.headers['x-received'], String(SIZE_MIB * MIB));
    up?.resume();
    memory.assertBounded();
  });

  it('pass over HTTP/2 with bounded memory, a slow reader included', async () => {
    await using upstream = await bodies();
    await using gateway = await proxyTo([upstream.url]);
    const memory = watchMemory();
    const session = http2.connect(`http://127.0.0.1:${gateway.http2}`);

    const down = session.request({ ':path': '/down' });
    assert.equal(await slowlyCounted(down), SIZE_MIB * MIB);

    const up = session.request({ ':path': '/up', ':method': 'POST' });
    const answered = once(up, 'response');
    await pipeline(generated(), up, { end: true });
    const [head] = await answered;
    assert.equal(head['x-received'], String(SIZE_MIB * MIB));
    session.close();
    memory.assertBounded();
  });
});

function bodies() {
  return origin((request, response) => {
    if (request.url === '/down') {
      generated().pipe(response);
      return;
    }
    let received = 0;
    request.on('data', (chunk: Buffer) => {
      received += chunk.length;
    });
    request.on('end', () => response.writeHead(200, { 'x-received': received }).end());
  });
}

function generated(): Readable {
  const chunk = Buffer.alloc(MIB / 4, 'hubgate');
  let left = SIZE_MIB * 4;
  return new Readable({
    highWaterMark: MIB / 4,
    read() {
      left -= 1;
      this.push(left < 0 ? null : chunk);
    },
  });
}

/** Counts bytes and holds the sender back now and then. */
async function slowlyCounted(source: Readable): Promise<number> {
  let bytes = 0;
  let writes = 0;
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      writes += 1;
      if (writes % 512 === 0) setTimeout(done, 5);
      else done();
    },
  });
  await pipeline(source, sink);
  return bytes;
}

function watchMemory() {
  const before = process.memoryUsage.rss();
  let most = before;
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss());
  }, 20);
  return {
    assertBounded() {
      clearInterval(timer);
      const growth = Math.round((most - before) / MIB);
      assert.ok(growth < MAX_GROWTH_MIB, `memory grew by ${growth} MiB`);
    },
  };
}
