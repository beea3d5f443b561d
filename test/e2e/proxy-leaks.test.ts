import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { describe, it } from 'node:test';
import { origin, proxyTo, type TestGateway, until } from '../unit/proxy/gateway.ts';
import { rounds } from '../support/rounds.ts';

const EXCHANGES = rounds(4_000, 10_000);
const AT_ONCE = 50;

/** Node ends a session whose client resets more streams than that in a burst. */
const RESETS_PER_SESSION = 200;

/** Descriptors that come and go with the runtime, not with exchanges. */
const SLACK = 20;

const descriptors = (): number => readdirSync('/proc/self/fd').length;
const inFlight = (gateway: TestGateway): number =>
  gateway.registry.upstreams().reduce((sum, upstream) => sum + upstream.inFlight, 0);

describe(`${EXCHANGES} aborted exchanges`, { skip: process.platform !== 'linux' }, () => {
  it('leak no descriptors, neither at the client nor at the upstream', async () => {
    await using upstream = await origin((request, response) => {
      if (request.url === '/mute') return;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (request.url === '/stream') response.write('data: 1\n\n');
      else if (request.url === '/dies') response.write('half', () => response.destroy());
      else response.flushHeaders();
    });
    await using gateway = await proxyTo([upstream.url]);
    const before = descriptors();
    let resets = 0;
    let session = http2.connect(`http://127.0.0.1:${gateway.http2}`);
    const nextSession = (): http2.ClientHttp2Session => {
      resets += 1;
      if (resets % RESETS_PER_SESSION === 0) {
        session.close();
        session = http2.connect(`http://127.0.0.1:${gateway.http2}`);
      }
      return session;
    };

    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < EXCHANGES) {
        next += 1;
        const path = ['/stream', '/mute', '/dies', '/head'][next % 4] ?? '/';
        const post = next % 3 === 0;
        if (next % 2 === 0) await abort1(gateway.http1, path, post);
        else await abort2(nextSession(), path, post);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));

    session.close();
    await until(() => inFlight(gateway) === 0, 'nothing is under way', 30_000);
    await until(() => upstream.sockets.size <= SLACK, 'the upstream sees no connection', 30_000);
    await until(
      () => descriptors() <= before + SLACK,
      `descriptors are back at ${before}, now ${descriptors()}`,
      30_000,
    );
    assert.deepEqual(gateway.faults, []);
  });
});

async function abort1(port: number, path: string, post: boolean): Promise<void> {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  const body = post ? 'Content-Length: 100\r\n\r\nhalf' : '\r\n';
  socket.write(`${post ? 'POST' : 'GET'} ${path} HTTP/1.1\r\nHost: a\r\n${body}`);
  if (path === '/stream') await Promise.race([once(socket, 'data'), once(socket, 'close')]);
  else await new Promise((turn) => setImmediate(turn));
  socket.destroy();
}

async function abort2(
  session: http2.ClientHttp2Session,
  path: string,
  post: boolean,
): Promise<void> {
  const stream = session.request(
    { ':path': path, ':method': post ? 'POST' : 'GET' },
    { endStream: !post },
  );
  stream.on('error', () => {});
  if (post) stream.write('half');
  if (path === '/stream' && !post)
    await Promise.race([once(stream, 'data'), once(stream, 'close')]);
  else await new Promise((turn) => setImmediate(turn));
  stream.close(http2.constants.NGHTTP2_CANCEL);
}
