import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { text } from 'node:stream/consumers';
import { createHub, type HubOptions, type MountedHub } from '../../../src/hub.ts';
import { signToken } from '../../../src/index.ts';

const issuers = [{ id: 'https://issuer.example' }] as const;

describe('createHub, called from JavaScript', () => {
  for (const [missing, options] of [
    ['issuers', undefined],
    ['issuers', {}],
    ['id of each issuer', { issuers: [{}] }],
    ['key, or jwksUri, of each role', { issuers: [{ id: 'a', publisher: {} }] }],
    ['redis.urls', { issuers, redis: { stream: 'a' } }],
    ['redis.stream', { issuers, redis: { urls: ['redis://127.0.0.1:1'] } }],
    ['postgres.url', { issuers, postgres: { stream: 'a' } }],
    ['postgres.stream', { issuers, postgres: { url: 'postgres://127.0.0.1:1' } }],
  ] as const) {
    it(`names the missing option ${missing} of ${JSON.stringify(options)}`, async () => {
      await assert.rejects(createHub(options as unknown as HubOptions), {
        code: 'missing-option',
        message: `createHub needs the option ${missing}`,
      });
    });
  }
});

describe('createHub, mounted in a server', () => {
  const key = 'a secret of at least thirty-two bytes';
  const body = 'topic=https%3A%2F%2Fa.example%2F&data=1';

  it('gives the request whose body somebody else has read to the error handler', async (test) => {
    const response = await answerOf(test, '', (hub) => async (request, answer) => {
      await text(request);
      hub.handle(request, answer, (error) => answer.end(String(error)));
    });
    assert.match(response, /HubgateError: The body of this request was read before the hub/);
  });

  it('sends 100 Continue once, although the server of Node has sent it too', async (test) => {
    const response = await answerOf(
      test,
      'Expect: 100-continue\r\n',
      (hub) => (request, answer) => {
        hub.handle(request, answer, () => answer.end());
      },
    );
    assert.deepEqual(response.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 100', 'HTTP/1.1 200']);
  });

  /** What is answered to a publication. */
  async function answerOf(
    test: TestContext,
    fields: string,
    listener: (hub: MountedHub) => RequestListener,
  ): Promise<string> {
    const [{ id: iss }] = issuers;
    const hub = await createHub({ issuers: [{ id: iss, publisher: { key } }] });
    const server = createServer(listener(hub)).listen(0, '127.0.0.1');
    test.after(async () => {
      server.close();
      await hub.close();
    });
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const aud = `http://127.0.0.1:${port}/.well-known/hub`;
    const token = await signToken({ iss, aud, key, publish: '*' });
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST /.well-known/hub HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n${fields}` +
        `Authorization: Bearer ${token}\r\nContent-Type: application/x-www-form-urlencoded\r\n` +
        `Content-Length: ${body.length}\r\n\r\n${body}`,
    );
    return text(socket);
  }
});
