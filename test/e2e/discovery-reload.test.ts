import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { signToken } from '../support/hub-server.ts';
import {
  claimsOf,
  COOKIE,
  cookies,
  ISSUER,
  listen,
  type Site,
  startSite,
  SUBSCRIBER_KEY,
} from '../unit/discovery/site.ts';

const HOUR_S = 3600;
const UNRELATED = ['grace_period 100ms', 'grace_period 200ms'] as const;

const app: RequestListener = (_, response) => {
  response.setHeader('X-User-Id', '42');
  response.end('a page');
};

describe('discovery: tokens survive a reload (architecture: leases)', () => {
  it('token mint: the token stays the same while its claims are unchanged', async (test) => {
    const site = await startSite(test, app, {
      site: `discovery {
		token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			ttl 10m
			subscribe https://example.com/users/{http.response.header.X-User-Id}
		}
	}
	request_body {
		max_size 1MiB
	}`,
    });
    const first = await tokenOf(site);
    await site.reload(...UNRELATED);
    assert.equal(await tokenOf(site), first);
    await site.reload('max_size 1MiB', 'max_size 2MiB');
    assert.equal(await tokenOf(site), first, 'the rest of the site');

    const changes: readonly (readonly [string, string])[] = [
      ['ttl 10m', 'ttl 11m'],
      ['ttl 10m', 'ttl 10m\n\t\t\tkid two'],
      ['/users/{', '/people/{'],
      [SUBSCRIBER_KEY, `another ${SUBSCRIBER_KEY}`],
      ['anonymous', 'anonymous\n\t\tresource_identifier https://example.com/hub'],
      ['anonymous', 'anonymous\n\t\tdetail_type urn:example:detail'],
    ];
    const given = new Set([first]);
    for (const [from, to] of changes) {
      await site.reload(from, to);
      given.add(await tokenOf(site));
    }
    assert.equal(given.size, 1 + changes.length, 'each change makes another token');
  });

  it('token exchange: no second request unless it differs', async (test) => {
    const { url, asked } = await startEndpoint(test);
    const site = await startSite(test, app, {
      site: `discovery {
		token exchange {
			endpoint ${url}
			client_id gateway
			client_secret one
			subscribe https://example.com/users/{http.response.header.X-User-Id}
		}
	}`,
    });
    const first = await tokenOf(site);
    await site.reload(...UNRELATED);
    assert.equal(await tokenOf(site), first);
    assert.equal(asked(), 1);

    const changes: readonly (readonly [string, string])[] = [
      [`endpoint ${url}`, `endpoint ${url}?other`],
      ['client_id gateway', 'client_id another'],
      ['client_secret one', 'client_secret two'],
      ['/users/{', '/people/{'],
      [
        'client_secret one',
        'client_secret one\n\t\t\tsubject_token {http.response.header.X-User-Id}',
      ],
      ['anonymous', 'anonymous\n\t\tresource_identifier https://example.com/hub'],
    ];
    const given = new Set([first]);
    for (const [from, to] of changes) {
      await site.reload(from, to);
      given.add(await tokenOf(site));
    }
    assert.equal(given.size, 1 + changes.length);
    assert.equal(asked(), 1 + changes.length);
  });
});

async function tokenOf(site: Site): Promise<string> {
  const page = await site.get('/');
  const token = cookies(page).get(COOKIE)?.get('value') ?? assert.fail(JSON.stringify(site.log));
  assert.notEqual(claimsOf(token), null);
  return token;
}

/** A token endpoint (RFC 6749 §3.2) that never gives the same token twice. */
async function startEndpoint(test: TestContext) {
  let asked = 0;
  const port = await listen(test, (request, response) => {
    request.resume();
    asked += 1;
    const exp = Math.floor(Date.now() / 1000) + HOUR_S;
    void signToken(SUBSCRIBER_KEY, { exp, jti: String(asked) }).then((token) => {
      response.setHeader('Content-Type', 'application/json');
      response.end(JSON.stringify({ access_token: token, token_type: 'Bearer' }));
    });
  });
  return { url: `http://localhost:${port}/token`, asked: () => asked };
}
