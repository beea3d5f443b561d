import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { signToken } from '../support/hub-server.ts';

const KEY = 'the key of the issuer, long enough to be';

describe('request_body in front of a hub', () => {
  for (const [limit, status, sent] of [
    ['max_size 1KB', 413, `topic=t&data=${'x'.repeat(2_000)}`],
    ['read_timeout 200ms', 408, 'topic=t'],
  ] as const) {
    for (const length of [null, 5_000]) {
      const how = length === null ? 'in chunks' : 'with its length';
      it(`${limit} answers ${status} to a publisher that sends its form ${how}`, async (test) => {
        const port = await freePort();
        const hub = `http://localhost:${port}/.well-known/hub`;
        await startLibraryGateway(
          test,
          `http://localhost:${port} {
	request_body {
		${limit}
	}
	hub {
		issuer a {
			publisher {
				jwt "${KEY}"
			}
		}
		anonymous
		transport memory
	}
}
`,
        );
        const publishing = request(hub, {
          method: 'POST',
          headers: {
            'Content-Type': 'application/x-www-form-urlencoded',
            Authorization: `Bearer ${await signToken(KEY, { iss: 'a', aud: hub })}`,
            ...(length === null ? {} : { 'Content-Length': length }),
          },
        });
        // The gateway closes the connection while the form is still being sent.
        publishing.on('error', () => {});
        publishing.write(sent);
        const [response] = (await once(publishing, 'response')) as [IncomingMessage];
        publishing.destroy();
        assert.equal(response.statusCode, status);
        assert.equal(response.headers['www-authenticate'], undefined);
      });
    }
  }
});
