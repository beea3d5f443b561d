import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as after } from 'node:timers/promises';
import { describe, it } from 'node:test';
import { origin, proxyTo } from './gateway.ts';

/** Sends bytes over one connection, and returns what comes back until it closes. */
async function exchange(port: number, bytes: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(bytes);
  return text(socket);
}

function put(path: string, body: string): string {
  return `PUT ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

function get(path: string, more = ''): string {
  return `GET ${path} HTTP/1.1\r\nHost: a\r\n${more}\r\n`;
}

/** An app that answers slowly, and notes when a request begins and ends. */
function slowApp(events: string[]) {
  return origin((request, response) => {
    const name = `${request.method} ${request.url}`;
    events.push(`begin ${name}`);
    void text(request).then(async (body) => {
      await after(50);
      events.push(`end ${name}`);
      response.end(`[${name} ${body}]`);
    });
  });
}

describe('pipelined requests (RFC 9112 §9.3.2)', () => {
  it('wait for an earlier one that is not safe, and one that is not safe waits for all', async () => {
    const events: string[] = [];
    await using app = await slowApp(events);
    await using gateway = await proxyTo([app.url]);
    const requests = [
      put('/1', 'x'),
      get('/2'),
      put('/3', 'yy'),
      get('/4', 'Connection: close\r\n'),
    ];
    const received = await exchange(gateway.http1, requests.join(''));
    const bodies = received.match(/\[[^\]]*\]/g);
    assert.deepEqual(bodies, ['[PUT /1 x]', '[GET /2 ]', '[PUT /3 yy]', '[GET /4 ]']);
    const names = ['PUT /1', 'GET /2', 'PUT /3', 'GET /4'];
    assert.deepEqual(
      events,
      names.flatMap((name) => [`begin ${name}`, `end ${name}`]),
    );
  });

  it('that are not safe wait for a safe one', async () => {
    const events: string[] = [];
    await using app = await slowApp(events);
    await using gateway = await proxyTo([app.url]);
    const close = 'Connection: close\r\nContent-Length: 0\r\n';
    await exchange(gateway.http1, `${get('/1')}DELETE /2 HTTP/1.1\r\nHost: a\r\n${close}\r\n`);
    assert.deepEqual(events, ['begin GET /1', 'end GET /1', 'begin DELETE /2', 'end DELETE /2']);
  });

  it('are processed at the same time if all are safe', async () => {
    const waiting: (() => void)[] = [];
    await using app = await origin(({ url }, response) => {
      waiting.push(() => response.end(url));
      // Neither is answered before both have arrived.
      if (waiting.length === 2) for (const answer of waiting) answer();
    });
    await using gateway = await proxyTo([app.url]);
    const received = await exchange(gateway.http1, get('/1') + get('/2', 'Connection: close\r\n'));
    assert.match(received, /\/1HTTP.*\/2$/s);
  });

  it('have no effect after a response that closes the connection (RFC 9112 §9.6)', async () => {
    const events: string[] = [];
    await using app = await slowApp(events);
    await using gateway = await proxyTo(
      [app.url],
      {},
      {
        before: (exchange) => {
          if (exchange.target !== '/1') return;
          exchange.onHead(({ headers }) => {
            headers.set('connection', 'close');
            return undefined;
          });
        },
      },
    );
    const received = await exchange(gateway.http1, put('/1', 'x') + put('/2', 'y'));
    assert.match(received, /Connection: close[^[]*\[PUT \/1 x\]$/);
    while (gateway.statuses.length === 0) await after(5);
    assert.deepEqual(gateway.statuses, [499]);
    assert.deepEqual(events, ['begin PUT /1', 'end PUT /1']);
  });
});
