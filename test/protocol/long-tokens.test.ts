import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type IncomingHttpHeaders } from 'node:http2';
import { request } from 'node:https';
import { after, describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { FORM, ISSUER, PUBLISHER_KEY, signToken, SUBSCRIBER_KEY } from '../support/hub-server.ts';

const MAX_TOKEN_BYTES = 65_536;
const PATH = '/.well-known/hub';

interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const origin = `https://localhost:${await freePort()}`;
const gateway = await startGateway(
  { after },
  `${origin} {
	tls internal
	hub {
		anonymous
		transport memory
		publish_origins *
		issuer ${ISSUER} {
			publisher {
				jwt ${PUBLISHER_KEY}
			}
			subscriber {
				jwt ${SUBSCRIBER_KEY}
			}
		}
	}
}
`,
);
const ca = await gateway.root();

describe('the longest tokens, through the gateway’s own listeners (seed §8)', () => {
  for (const [protocol, send] of [
    ['HTTP/1.1', overHttp1],
    ['HTTP/2', overHttp2],
  ] as const) {
    for (const [carrier, fields] of [
      ['header', (token: string) => ({ authorization: `Bearer ${token}` })],
      [
        'cookie',
        (token: string) => ({ cookie: `__Secure-hub_access_token=${token}`, origin: 'https://a' }),
      ],
    ] as const) {
      it(`C-237: ${protocol}, ${carrier}: accepts 65536 bytes and answers 65537 with 401`, async () => {
        const form = {
          ...fields(await tokenOf(MAX_TOKEN_BYTES)),
          [FORM[0].toLowerCase()]: FORM[1],
        };
        const accepted = await send('POST', form, 'topic=a&id=long');
        assert.equal(accepted.body, 'long');
        assert.equal(accepted.status, 200);
        const longer = { ...form, ...fields(await tokenOf(MAX_TOKEN_BYTES + 1)) };
        const refused = await send('POST', longer, 'topic=a&id=longer');
        assert.equal(refused.status, 401);
        assert.match(
          String(refused.headers['www-authenticate']),
          /^Bearer error="invalid_token", /,
        );
      });
    }
  }

  async function tokenOf(length: number): Promise<string> {
    const type = 'urn:hub:authorization-detail';
    const details = [{ type, actions: ['publish'], topics: [{ match: '*' }] }];
    const claims = { iss: ISSUER, aud: origin + PATH, exp: 4_102_444_800 };
    const sign = (payload: number, header: number): Promise<string> =>
      signToken(
        PUBLISHER_KEY,
        { ...claims, authorization_details: details, pad: noise(payload) },
        { pad: noise(header) },
      );
    const empty = (await sign(0, 0)).length;
    const payload = Math.floor(((length - empty) * 3) / 4) - 6;
    // Base64 grows by steps; two parts together reach every length.
    for (let more = 0; more < 8; more += 1) {
      for (let header = 0; header < 4; header += 1) {
        const token = await sign(payload + more, header);
        if (token.length === length) return token;
      }
    }
    return assert.fail(`no token of ${length} bytes`);
  }

  function overHttp1(
    method: string,
    headers: Record<string, string>,
    body: string,
  ): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const outgoing = request(
        origin + PATH,
        { method, ca, headers: { ...headers, 'content-length': body.length }, agent: false },
        (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.once('end', () =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
          );
        },
      );
      outgoing.once('error', reject);
      outgoing.end(body);
    });
  }

  async function overHttp2(
    method: string,
    headers: Record<string, string>,
    body: string,
  ): Promise<Reply> {
    // Node's client by default refuses to send what browsers send.
    const session = connect(origin, { ca, maxSendHeaderBlockLength: 128 * 1024 });
    try {
      const stream = session.request({ ':method': method, ':path': PATH, ...headers });
      stream.end(body);
      const [response] = await once(stream, 'response');
      let text = '';
      stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      await once(stream, 'end');
      return { status: response[':status'], headers: response, body: text };
    } finally {
      session.close();
    }
  }
});

/** Text that compression does not make shorter. */
function noise(length: number): string {
  const alphabet = 'QWERTYUIOPASDFGHJKLZXCVBNM';
  return Array.from({ length }, (_, index) => alphabet[(index * index * 31 + index) % 26]).join('');
}
