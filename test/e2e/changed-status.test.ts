import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

/** An app that says with its 304 how long the body of the 200 would be (RFC 9110 §8.6). */
async function startApp(test: TestContext): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => {
      socket.write('HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 100\r\n\r\n');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('a 304 with a length whose status changes', () => {
  const cases: Readonly<Record<string, readonly [number, (app: string) => string]>> = {
    'by intercept': [503, (app) => `intercept {\nreplace_status 503\n}\nreverse_proxy ${app}`],
    'by intercept after method': [
      503,
      (app) => `method HEAD\nintercept {\nreplace_status 503\n}\nreverse_proxy ${app}`,
    ],
    'by replace_status of the proxy': [
      503,
      (app) => `reverse_proxy ${app} {\nreplace_status 503\n}`,
    ],
    'by copy_response': [
      203,
      (app) => `reverse_proxy ${app} {\nhandle_response {\ncopy_response 203\n}\n}`,
    ],
  };
  for (const [how, [status, directives]] of Object.entries(cases)) {
    it(how, async (test) => {
      const app = await startApp(test);
      const origin = `http://127.0.0.1:${await freePort()}`;
      await startGateway(test, `${origin} {\n${directives(app)}\n}\n`);
      const answer = await send(`${origin}/`);
      assert.equal(answer.status, status);
      assert.equal(answer.headers.etag, '"a"');
      assert.equal(answer.body, '');
    });
  }
});
