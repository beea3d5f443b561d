import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it, type TestContext } from 'node:test';
import { errors, Provider } from 'oidc-provider';
import { freePort } from '../support/free-port.ts';
import {
  claimsOf,
  COOKIE,
  cookieHeader,
  cookies,
  fields,
  PUBLISHER_KEY,
  type Site,
  startSite,
} from '../unit/discovery/site.ts';

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const DETAIL = 'urn:hub:authorization-detail';
const SECRET = 'the secret of the gateway';

/** What a user of that client may read. */
const detailsOf = (client: string) => [
  {
    type: DETAIL,
    actions: ['subscribe'],
    topics: [{ match: `https://example.com/users/${client}/*`, match_type: 'urlpattern' }],
  },
];

/** An authorization server with the clients alice, bob (by whom users are told) and gateway. */
async function startProvider(test: TestContext): Promise<{ issuer: string; asked: () => number }> {
  const port = await freePort();
  const issuer = `http://localhost:${port}`;
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const resource = (audience: string) => ({
    audience,
    scope: '',
    accessTokenFormat: 'jwt',
    accessTokenTTL: 3600,
    jwt: { sign: { alg: 'RS256' } },
  });
  const client = (id: string, secret: string, ...grants: string[]) => ({
    client_id: id,
    client_secret: secret,
    grant_types: grants,
    redirect_uris: [],
    response_types: [],
    authorization_details_types: [DETAIL],
  });
  const provider = new Provider(issuer, {
    clients: [
      client('alice', 'a', 'client_credentials'),
      client('bob', 'b', 'client_credentials'),
      client('gateway', SECRET, 'client_credentials', EXCHANGE),
    ],
    jwks: {
      keys: [{ ...privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig', kid: '1' }],
    },
    ttl: { ClientCredentials: 3600 },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_: unknown, audience: string) => resource(audience),
      },
      richAuthorizationRequests: {
        enabled: true,
        types: { [DETAIL]: { validate: () => {} } },
        authorizationDetailsForAccessToken: (context: {
          oidc: { params: { authorization_details: string } };
        }) => JSON.parse(context.oidc.params.authorization_details),
      },
    },
  });
  provider.registerGrantType(
    EXCHANGE,
    async (context) => {
      const { params, client: gateway } = context.oidc;
      const subject = await provider.ClientCredentials.find(params['subject_token'] ?? '');
      if (subject === undefined) throw new errors.InvalidGrant('unknown subject');
      const audience = params['resource'] ?? '';
      const token = new provider.ClientCredentials({ client: gateway });
      token.resourceServer = new provider.ResourceServer(audience, resource(audience));
      token.rar = detailsOf(subject.clientId);
      context.body = {
        access_token: await token.save(),
        issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
        token_type: 'Bearer',
        expires_in: token.expiration,
      };
    },
    ['subject_token', 'subject_token_type', 'requested_token_type', 'resource'],
  );
  let asked = 0;
  const answer = provider.callback();
  const server = createServer((request, response) => {
    if (request.url === '/token') asked += 1;
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(port, 'localhost', resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { issuer, asked: () => asked };
}

/** An access token of the provider's, as an app keeps it in its session cookie. */
async function sessionOf(issuer: string, client: string, secret: string): Promise<string> {
  const answer = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`${client}:${secret}`)}` },
    body: new URLSearchParams({ grant_type: 'client_credentials' }),
  });
  const body: unknown = await answer.json();
  assert.ok(
    typeof body === 'object' && body !== null && 'access_token' in body,
    JSON.stringify(body),
  );
  return String(body.access_token);
}

const app: RequestListener = (request, response) => {
  const user = new URL(request.url ?? '/', 'http://app').searchParams.get('user');
  if (user !== null) response.setHeader('X-User', user);
  response.end('a page');
};

function exchangeSite(test: TestContext, issuer: string, lines: string): Promise<Site> {
  return startSite(test, app, {
    hubfile: `http://localhost:{port} {
	hub {
		issuer https://publishers.example {
			publisher {
				jwt "${PUBLISHER_KEY}"
			}
		}
		issuer ${issuer} {
			subscriber {
				jwks_uri ${issuer}/jwks RS256
			}
		}
		anonymous
		cookie_name ${COOKIE}
		transport memory
	}
	discovery {
		token exchange {
			endpoint ${issuer}/token
			client_id gateway
			client_secret "${SECRET}"
			${lines}
		}
	}
	reverse_proxy localhost:{app}
}
`,
  });
}

describe('discovery: token exchange with a real authorization server', () => {
  it('exchanges the user’s session for a token that the hub accepts (RFC 8693)', async (test) => {
    const { issuer, asked } = await startProvider(test);
    const site = await exchangeSite(test, issuer, 'subject_token {cookie.session}');
    const session = await sessionOf(issuer, 'alice', 'a');
    const before = asked();
    const page = await site.get('/', { headers: [['Cookie', `session=${session}`]] });
    const token = cookies(page).get(COOKIE)?.get('value') ?? assert.fail(JSON.stringify(site.log));
    assert.deepEqual(claimsOf(token)['authorization_details'], detailsOf('alice'));
    assert.equal(claimsOf(token)['aud'], site.hub);
    const again = await site.get('/', { headers: [['Cookie', `session=${session}`]] });
    assert.equal(cookies(again).get(COOKIE)?.get('value'), token);
    assert.equal(asked() - before, 1, 'one question until half of its life is over');

    const stream = await site.stream('match=*', { headers: [cookieHeader(page)] });
    assert.equal(stream.status, 200, JSON.stringify(site.log));
    const bob = await site.get('/', {
      headers: [['Cookie', `session=${await sessionOf(issuer, 'bob', 'b')}`]],
    });
    assert.notEqual(cookies(bob).get(COOKIE)?.get('value'), token);
  });

  it('serves the page without a cookie when the server refuses', async (test) => {
    const { issuer } = await startProvider(test);
    const site = await exchangeSite(test, issuer, 'subject_token {cookie.session}');
    const page = await site.get('/', { headers: [['Cookie', 'session=forged']] });
    assert.equal(page.body, 'a page');
    assert.deepEqual(fields(page, 'set-cookie'), []);
    const line = site.log.find(({ level }) => level === 'warn');
    assert.match(String(line?.fields['reason']), /400: "invalid_grant"/);
  });

  it('gets a token of its own with authorization details (RFC 6749 §4.4, RFC 9396)', async (test) => {
    const { issuer } = await startProvider(test);
    const site = await exchangeSite(
      test,
      issuer,
      'subscribe_urlpattern https://example.com/users/{http.response.header.X-User}/*',
    );
    const page = await site.get('/?user=carol');
    const token = cookies(page).get(COOKIE)?.get('value') ?? assert.fail(JSON.stringify(site.log));
    assert.deepEqual(claimsOf(token)['authorization_details'], detailsOf('carol'));
    const stream = await site.stream('match=*', { headers: [cookieHeader(page)] });
    assert.equal(stream.status, 200, JSON.stringify(site.log));
    assert.deepEqual(fields(await site.get('/'), 'set-cookie'), []);
  });
});
