import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';

const REQUESTS = 10_000;
const AT_ONCE = 50;
const SEED = 20_261_120;

const token = fc.string({
  unit: fc.constantFrom('a', 'b', 'X', 'Y', '0', '9', '-', '_', '.'),
  minLength: 1,
  maxLength: 12,
});
const character = fc.oneof(
  { weight: 400, arbitrary: fc.integer({ min: 0x21, max: 0x7e }) },
  { weight: 1, arbitrary: fc.integer({ min: 0x00, max: 0xff }) },
);
const bytes = fc.string({
  unit: character.map((code) => String.fromCharCode(code)),
  maxLength: 40,
});
const method = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.constantFrom('GET', 'POST', 'QUERY', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'PATCH'),
  },
  { weight: 1, arbitrary: token },
);
const path = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      '/',
      '/.well-known/hub',
      '/.well-known/hub/',
      '/.well-known/hub/subscriptions',
      '/.well-known/hub/subscriptions/exact/%zz',
      '/.well-known/hub/subscriptions/urlpattern/a/b',
      '/.well-known/oauth-protected-resource/.well-known/hub',
      '/.well-known/%68ub',
      '*',
      'http://other.example/x',
      '//',
      '/../..//%2e%2e/',
    ),
  },
  { weight: 1, arbitrary: bytes.map((text) => `/${text}`) },
);
const query = fc.oneof(
  fc.constantFrom(
    '',
    '?match=a',
    '?match_urlpattern=%7Bunclosed',
    '?match_urlpattern=/(a+)+b',
    '?match=%FF',
    '?match=a&last_event_id=earliest',
    '?topic=a',
    `?${'match=a&'.repeat(120)}`,
    `?match=${'a'.repeat(5000)}`,
  ),
  bytes.map((text) => `?${text}`),
);
const field = fc.oneof(
  fc.constantFrom(
    'Authorization: Bearer x',
    'Authorization: Bearer a.b.c',
    'Authorization: Basic eDp5',
    'Cookie: __Secure-hub_access_token=eyJhbGciOiJub25lIn0.e30.',
    'Last-Event-ID: \xff\xfe',
    'Content-Type: application/x-www-form-urlencoded',
    'Content-Type: multipart/form-data; boundary=',
    'Origin: null',
    'Access-Control-Request-Method: GET',
    'Connection: close, x',
    'Expect: 100-continue',
    'Upgrade: websocket',
    'Transfer-Encoding: chunked',
    'Content-Length: 5',
    'Accept-Encoding: gzip, br',
    'Range: bytes=0-0',
    'X-Forwarded-For: 1.2.3.4',
  ),
  fc.tuple(token, bytes).map(([name, value]) => `${name}: ${value}`),
);
const body = fc.constantFrom(
  '',
  'topic=a',
  'hello',
  '5\r\nhello\r\n0\r\n\r\n',
  'topic=%FF&data=%00',
  '\0\0\0',
);

const request = fc
  .tuple(method, path, query, fc.array(field, { maxLength: 6 }), body)
  .map(
    ([verb, where, what, fields, content]) =>
      `${verb} ${where}${what} HTTP/1.1\r\nHost: localhost\r\n${fields.join('\r\n')}${fields.length > 0 ? '\r\n' : ''}\r\n${content}`,
  );

describe('hostile input', () => {
  it(`${REQUESTS} random requests crash nothing, and never get a 5xx other than 501`, async (test) => {
    const app = createServer((incoming, response) => {
      incoming.resume();
      response.end('ok');
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => {
      app.closeAllConnections();
      app.close();
    });
    const address = app.address();
    assert.ok(address !== null && typeof address !== 'string');
    const port = await freePort();
    await startGateway(
      test,
      `http://localhost:${port}, http://:${port} {\n\thub {\n\t\tissuer i {\n\t\t\tpublisher {\n\t\t\t\tjwt "a secret of the test, long enough"\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt "a secret of the test, long enough"\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\tsubscriptions\n\t\tcors_origins https://a.example\n\t\ttransport memory\n\t}\n\tencode gzip\n\treverse_proxy 127.0.0.1:${address.port}\n}\n`,
    );
    const failures: string[] = [];
    const pending = fc.sample(request, { seed: SEED, numRuns: REQUESTS });
    const worker = async (): Promise<void> => {
      for (let text = pending.pop(); text !== undefined; text = pending.pop()) {
        const answer = await exchange(port, text);
        // 501 is for methods that nobody knows.
        if (/^HTTP\/1\.1 5(?!01)\d\d/.test(answer))
          failures.push(`${text}\n→ ${answer.slice(0, 200)}`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    assert.deepEqual(failures.slice(0, 3), []);
    const alive = await fetch(`http://localhost:${port}/`);
    assert.equal(await alive.text(), 'ok');
  });
});

/** Sends bytes, and takes what comes first: the head of an answer, or the end. */
async function exchange(port: number, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let received = '';
  try {
    await new Promise<void>((resolve) => {
      // A request whose body never comes is answered by nobody; it is given up.
      const patience = setTimeout(resolve, 300);
      socket.on('data', (chunk) => {
        received += chunk.toString('latin1');
        if (/^HTTP\/1\.1 (?!100)/m.test(received)) done();
      });
      const done = (): void => {
        clearTimeout(patience);
        resolve();
      };
      socket.on('close', done);
      socket.on('error', done);
      socket.write(Buffer.from(text, 'latin1'));
    });
  } finally {
    socket.destroy();
  }
  return received.replace(/^HTTP\/1\.1 100[^]*?\r\n\r\n/, '');
}
