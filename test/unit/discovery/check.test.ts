import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { ConfigError, type Problem } from '../../../src/config/problem.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { loadConfig } from '../../../src/load-config.ts';
import { PUBLISHER_KEY, SUBSCRIBER_KEY } from './site.ts';

const ISSUER = 'https://issuer.example';

/** What is said of a Hubfile, `code line`, errors and warnings. */
function problemsOf(text: string): readonly Problem[] {
  const disk = diskIo({});
  const io = { ...disk, read: () => Buffer.from(text) };
  try {
    return loadConfig('Hubfile', io).warnings;
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

function only(text: string): Problem {
  const problems = problemsOf(text);
  assert.equal(problems.length, 1, JSON.stringify(problems.map(({ message }) => message)));
  return problems[0] ?? assert.fail();
}

const pem = (key: ReturnType<typeof generateKeyPairSync>['publicKey'], type: 'spki' | 'pkcs8') =>
  String(key.export({ format: 'pem', type }));
const [rsa, otherRsa] = [1, 2].map(() => generateKeyPairSync('rsa', { modulusLength: 2048 }));
assert.ok(rsa && otherRsa);

interface MintSite {
  readonly mint: string;
  readonly subscriber?: string;
  readonly hub?: string;
}

const mintSite = ({ mint, subscriber = `jwt "${SUBSCRIBER_KEY}"`, hub = '' }: MintSite): string =>
  `https://example.com {
	tls internal
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "${PUBLISHER_KEY}"
			}
			subscriber {
				${subscriber}
			}
		}
		${hub}
	}
	discovery {
		token mint {
			${mint}
		}
	}
}
`;

const GOOD = `issuer ${ISSUER}\nkey "${SUBSCRIBER_KEY}"\nsubscribe https://example.com/{http.response.header.a}`;

describe('load: does the hub accept what token mint issues?', () => {
  it('reports nothing if the token is accepted', () => {
    assert.deepEqual(problemsOf(mintSite({ mint: GOOD })), []);
    const pair = {
      mint: `issuer ${ISSUER}\nkey "${pem(rsa.privateKey, 'pkcs8')}"\nalg RS256`,
      subscriber: `jwt "${pem(rsa.publicKey, 'spki')}" RS256`,
    };
    assert.deepEqual(problemsOf(mintSite(pair)), []);
  });

  for (const [name, site, message] of [
    [
      'an issuer that the hub does not trust',
      { mint: GOOD.replace(ISSUER, `${ISSUER}/`) },
      /does not trust the issuer https:\/\/issuer\.example\//,
    ],
    [
      'another secret',
      { mint: GOOD.replace('a subscriber key', 'another key, still long enough,') },
      /its subscriber key is different/,
    ],
    [
      'another key pair',
      {
        mint: `issuer ${ISSUER}\nkey "${pem(otherRsa.privateKey, 'pkcs8')}"\nalg RS256`,
        subscriber: `jwt "${pem(rsa.publicKey, 'spki')}" RS256`,
      },
      /its subscriber key is different/,
    ],
    [
      'another algorithm',
      { mint: `${GOOD}\nalg HS512` },
      /verifies subscribers with HS256, not with HS512/,
    ],
    [
      'a secret where the hub has a JWK Set',
      { mint: GOOD, subscriber: 'jwks_uri https://idp.example/jwks' },
      /verifies subscribers with RS256, .*, not with HS256/,
    ],
    [
      'a private key of an algorithm that the JWK Set is not to verify',
      {
        mint: `issuer ${ISSUER}\nkey "${pem(rsa.privateKey, 'pkcs8')}"\nalg RS256`,
        subscriber: 'jwks_uri https://idp.example/jwks ES256',
      },
      /verifies subscribers with ES256, not with RS256/,
    ],
    [
      'publish grants that the publisher key does not vouch for',
      {
        mint: `${GOOD}\npublish https://example.com/chat`,
        hub: 'publish_origins https://example.com',
      },
      /its publisher key is different/,
    ],
    [
      'a pattern that the hub refuses',
      { mint: `${GOOD}\nsubscribe_urlpattern "https://example.com/(?=a){http.response.header.a}"` },
      /authorization_details\[0\]\.topics\[1\]/,
    ],
  ] as const) {
    it(`refuses ${name}`, () => {
      const problem = only(mintSite(site));
      assert.equal(problem.code, 'mint-refused');
      assert.equal(problem.severity, 'error');
      assert.match(problem.message, message);
      assert.ok((problem.place?.line ?? 0) > 10, 'with its place');
      assert.ok(!JSON.stringify(problem).includes(SUBSCRIBER_KEY), 'and without the key');
    });
  }

  it('refuses a key that cannot sign, and a payload that is not JSON', () => {
    assert.equal(
      only(mintSite({ mint: `issuer ${ISSUER}\nkey "${pem(rsa.publicKey, 'spki')}"\nalg RS256` }))
        .code,
      'invalid-key',
    );
    assert.equal(only(mintSite({ mint: `${GOOD}\npayload "{a}"` })).code, 'invalid-payload');
    assert.equal(only(mintSite({ mint: `${GOOD}\nttl 10ms` })).code, 'short-lifetime');
  });
});

describe('load: does the cookie reach the hub? (seed §5.3)', () => {
  const hubSite = (host: string): string => `https://${host} {
	tls internal
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "${PUBLISHER_KEY}"
			}
			subscriber {
				jwt "${SUBSCRIBER_KEY}"
			}
		}
	}
}
`;
  const page = (host: string, lines: string): string => `https://${host} {
	tls internal
	discovery {
		${lines}
	}
}
`;
  const mint = `token mint {\n${GOOD}\n}`;

  it('refuses cookie discovery across sites, and explains', () => {
    for (const lines of [
      `hub hub.example.net\n${mint}`,
      'hub hub.example.net\ncookie {\nsame_site lax\n}',
    ]) {
      const problem = only(hubSite('hub.example.net') + page('app.example.com', lines));
      assert.equal(problem.code, 'cookie-across-sites');
      assert.equal(problem.severity, 'error');
      assert.match(
        problem.message,
        /app\.example\.com can never reach the hub on hub\.example\.net/,
      );
      assert.match(problem.hint ?? '', /fetch\(\) and an Authorization header/);
    }
    const elsewhere = page('app.example.com', `hub https://hub.example.net/h\n${mint}`);
    assert.equal(only(elsewhere).code, 'cookie-across-sites');
    const suffix = page('one.github.io', `hub https://two.github.io/h\n${mint}`);
    assert.equal(only(suffix).code, 'cookie-across-sites', 'two owners below a public suffix');
  });

  it('lets a site announce a hub across sites without a cookie', () => {
    assert.deepEqual(
      problemsOf(hubSite('hub.example.net') + page('app.example.com', 'hub hub.example.net')),
      [],
    );
  });

  it('asks for the domain setting that a hub on a sibling subdomain needs', () => {
    const named = hubSite('hub.example.com') + page('app.example.com', 'hub hub.example.com');
    assert.equal(only(named).severity, 'warning');
    assert.equal(only(named).hint, 'add cookie { domain example.com }');
    const minting = named.replace('hub hub.example.com', `hub hub.example.com\n${mint}`);
    assert.equal(only(minting).severity, 'error');
    const fixed = minting.replace(mint, `${mint}\ncookie {\ndomain example.com\n}`);
    assert.deepEqual(problemsOf(fixed), []);
  });

  it('refuses a domain that is a public suffix, or that does not cover both', () => {
    for (const [domain, message] of [
      ['com', /browsers accept no cookie for all of com/],
      ['co.uk', /browsers accept no cookie/],
      ['example.net', /does not cover both/],
      ['hub.example.com', /does not cover both/],
    ] as const) {
      const lines = `hub hub.example.com\ncookie {\ndomain ${domain}\n}`;
      const problem = only(hubSite('hub.example.com') + page('app.example.com', lines));
      assert.equal(problem.code, 'bad-cookie-domain');
      assert.match(problem.message, message);
    }
  });

  it('refuses a hub that does not exist', () => {
    assert.equal(only(page('app.example.com', 'hub hub.example.com')).code, 'unknown-hub');
  });
});

describe('load: token exchange', () => {
  const exchange = (lines: string): string => `https://example.com {
	tls internal
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt "${PUBLISHER_KEY}"
			}
		}
		anonymous
	}
	discovery {
		token exchange {
			client_id gateway
			client_secret "a secret"
			${lines}
		}
	}
}
`;
  for (const [lines, code] of [
    ['endpoint https://idp.example/token\nsubject_token {cookie.session}', null],
    ['endpoint http://localhost:4000/token\nsubscribe https://example.com/a', null],
    ['endpoint https://idp.example/token', 'empty-exchange'],
    ['endpoint idp.example\nsubject_token x', 'bad-url'],
    ['endpoint https://me:secret@idp.example/\nsubject_token x', 'bad-url'],
    ['endpoint http://idp.example/token\nsubject_token x', 'insecure-url'],
  ] as const) {
    it(`${code ?? 'accepts'}: ${lines.replace('\n', ', ')}`, () => {
      assert.deepEqual(
        problemsOf(exchange(lines)).map((problem) => problem.code),
        code === null ? [] : [code],
      );
    });
  }
});
