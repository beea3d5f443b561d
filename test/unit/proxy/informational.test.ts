import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import { HeaderList } from '../../../src/http/header-list.ts';
import { serveExchanges } from '../http/exchange-server.ts';
import { proxyTo, rawOrigin, until } from './gateway.ts';

const FINAL = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** Sends bytes to an HTTP/1.1 listener and returns all that comes until the last answer's `ok`. */
async function talk(port: number, request: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
  let text = '';
  socket.on('data', (chunk: string) => (text += chunk));
  socket.on('error', () => {});
  socket.write(request);
  await until(() => text.endsWith('\r\n\r\nok'), 'the answer is there');
  socket.destroy();
  return text;
}

/** What an HTTP/1.1 client gets before the final head, `Via` left out. */
async function informed(interim: string, version = '1.1'): Promise<string> {
  await using upstream = await rawOrigin((socket, text) => {
    if (text.endsWith('\r\n\r\n')) socket.write(interim + FINAL, 'latin1');
  });
  await using gateway = await proxyTo(
    [upstream.url],
    {},
    { before: (exchange) => exchange.withhold(['Hub-Access-Token']) },
  );
  const text = await talk(gateway.http1, `GET / HTTP/${version}\r\nHost: a\r\n\r\n`);
  assert.deepEqual(gateway.faults, []);
  const end = text.indexOf('HTTP/1.1 200');
  return text.slice(0, end).replaceAll('Via: 1.1 hubgate\r\n', '');
}

describe('informational responses to an HTTP/1.1 client (RFC 9110 §15.2)', () => {
  for (const head of [
    'HTTP/1.1 103 Early Hints\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nX-Only: 1\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload, </b>; rel="x, y"\r\nLink: <//c>; as=font; crossorigin\r\n\r\n',
    'HTTP/1.1 102 Processing\r\nX-Progress: 50%\r\n\r\n',
    'HTTP/1.1 104 \r\nUpload-Offset: 7\r\n\r\n',
    'HTTP/1.1 150 \r\nX-CamelCase: caf\u00e9\r\nx-lower: 1\r\n\r\n',
    'HTTP/1.1 199 \r\nX-A: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n',
  ]) {
    it(`are passed on unchanged: ${JSON.stringify(head)}`, async () => {
      assert.equal(await informed(head), head);
    });
  }

  it('lose fields that concern one connection, frame the message or are withheld', async () => {
    const head =
      'HTTP/1.1 103 Early Hints\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\n' +
      'Hub-Access-Token: secret\r\nContent-Length: 9\r\nX-Stays: 1\r\n\r\n';
    assert.equal(await informed(head), 'HTTP/1.1 103 Early Hints\r\nX-Stays: 1\r\n\r\n');
  });

  it('are not sent to an HTTP/1.0 client', async () => {
    assert.equal(await informed('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n', '1.0'), '');
  });

  it('are sent in order, after the responses to earlier requests on the connection', async () => {
    await using upstream = await rawOrigin((socket, text) => {
      if (text.includes('GET /fast')) socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${FINAL}`);
      else setImmediate(() => upstream.connections() === 2 && socket.write(FINAL));
    });
    await using gateway = await proxyTo([upstream.url]);
    const slow = net.connect(gateway.http1, '127.0.0.1').setEncoding('latin1');
    let text = '';
    slow.on('data', (chunk: string) => (text += chunk));
    const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;
    slow.write(get('/slow') + get('/fast'));
    await until(() => (text.match(/\r\n\r\nok/g) ?? []).length === 2, 'both answers are there');
    const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    assert.deepEqual(statuses, ['200', '103', '200']);
    slow.destroy();
  });

  it('cannot inject a line, whatever their fields contain', async () => {
    await using server = await serveExchanges((exchange) => {
      const fields = HeaderList.of({
        'X-Good': '1',
        'X-Bad': 'a\r\nInjected: 1',
        'X-Nul': 'a\0b',
        'X-Wide': 'a\u010ab',
        'Bad Name': '1',
        'Bad\r\nName': '1',
        '': '1',
      });
      exchange.inform(103, fields);
      const headers = HeaderList.of({ 'content-length': '2' });
      exchange.begin({ status: 200, headers, source: 'gateway' }).end('ok');
    });
    const text = await talk(server.http1, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    assert.ok(
      text.startsWith('HTTP/1.1 103 Early Hints\r\nX-Good: 1\r\n\r\nHTTP/1.1 200 OK\r\n'),
      text,
    );
  });

  it('are buffered only up to a limit for a client that does not read', async () => {
    let written = 0;
    await using server = await serveExchanges((exchange) => {
      const fields = HeaderList.of({ 'X-Big': 'x'.repeat(16 * 1024) });
      for (let i = 0; i < 1000; i += 1) exchange.inform(103, fields.clone());
      const headers = HeaderList.of({ 'content-length': '2' });
      exchange.begin({ status: 200, headers, source: 'gateway' }).end('ok');
    });
    const socket = net.connect(server.http1, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await once(socket, 'readable');
    socket.on('data', (chunk: Buffer) => (written += chunk.length));
    let tail = '';
    socket.on('data', (chunk: Buffer) => (tail = (tail + chunk.toString('latin1')).slice(-40)));
    await until(() => tail.endsWith('\r\n\r\nok'), 'the answer is there');
    assert.ok(written < 8 * 1024 * 1024, `${written} bytes`);
    socket.destroy();
  });
});
