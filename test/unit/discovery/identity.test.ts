import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { ConfigError, type Problem } from '../../../src/config/problem.ts';
import { parseHubfile } from '../../../src/parse-hubfile.ts';
import {
  COOKIE,
  cookieHeader,
  cookies,
  fields,
  HUB,
  ISSUER,
  listen,
  MARK,
  type Site,
  startSite,
  SUBSCRIBER_KEY,
} from './site.ts';

const MINT = `token mint {
			issuer ${ISSUER}
			key "${SUBSCRIBER_KEY}"
			subscribe_urlpattern https://example.com/users/{header.X-User-Id}/*
		}`;

/** Knows a user by the session cookie; answers all others as the query of the page says. */
const auth: RequestListener = (request, response) => {
  const user = /\bsession=(\w+)/.exec(request.headers.cookie ?? '')?.[1];
  const page = new URL(String(request.headers['x-forwarded-uri']), 'http://app');
  const denial = Number(page.searchParams.get('denial') ?? '0');
  if (user !== undefined) response.setHeader('X-User-Id', user);
  else if (denial !== 0) response.writeHead(denial, { location: '/login' });
  response.end();
};

const app: RequestListener = (request, response) => {
  response.setHeader('Seen-User', request.headers['x-user-id'] ?? 'nobody');
  response.end('a page');
};

async function guardedSite(test: TestContext, hub?: string): Promise<Site> {
  const port = await listen(test, auth);
  return startSite(test, app, {
    ...(hub === undefined ? {} : { hub }),
    site: `discovery {
		expire {
			status 401
		}
		${MINT}
	}
	forward_auth localhost:${port} {
		uri /session
		copy_headers X-User-Id
	}`,
  });
}

const ALICE = ['X-User-Id', 'alice'] as const;

describe('tokens behind forward_auth', () => {
  it('are issued to the user that the service names, whatever the client sends', async (test) => {
    const site = await guardedSite(test);
    const answer = await site.get('/', { headers: [['Cookie', 'session=bob'], ALICE] });
    assert.deepEqual(fields(answer, 'seen-user'), ['bob']);
    const stream = await site.stream('match=*', { headers: [cookieHeader(answer)] });
    await site.publish({ topic: 'https://example.com/users/alice/a', private: 'on', id: 'hers' });
    await site.publish({ topic: 'https://example.com/users/bob/a', private: 'on', id: 'his' });
    assert.deepEqual(await stream.untilId('his'), ['his']);
  });

  it('are not issued with a denial, which is not a page of the app', async (test) => {
    const site = await guardedSite(test);
    for (const denial of [302, 303, 307, 401, 403, 500]) {
      const answer = await site.get(`/?denial=${denial}`, { headers: [ALICE] });
      assert.equal(answer.status, denial);
      assert.equal(cookies(answer).get(COOKIE)?.get('value') ?? '', '', String(denial));
      assert.deepEqual(fields(answer, 'link'), [], String(denial));
    }
    const guest = await site.get('/', { headers: [ALICE] });
    assert.deepEqual(fields(guest, 'seen-user'), ['nobody']);
    assert.equal(cookies(guest).has(COOKIE), false);
  });

  it('end with the session: a page fetched as a guest deletes them', async (test) => {
    const site = await guardedSite(test);
    const page = await site.get('/', { headers: [['Cookie', 'session=bob']] });
    const stream = await site.stream('match=*', { headers: [cookieHeader(page)] });
    const mark = [...cookies(page)].find(([name]) => name === MARK) ?? assert.fail('no mark');
    const known = ['Cookie', `${MARK}=${mark[1].get('value')}`] as const;
    const guest = await site.get('/', { headers: [known] });
    assert.equal(cookies(guest).get(COOKIE)?.get('max-age'), '0');
    assert.equal(cookies(guest).get(MARK)?.get('max-age'), '0');
    await stream.untilEnd();
    assert.equal(cookies(await site.get('/')).has(COOKIE), false, 'who had none is left alone');
  });

  it('end with a denial whose status is listed in expire', async (test) => {
    const site = await guardedSite(test);
    const page = await site.get('/', { headers: [['Cookie', 'session=bob']] });
    const mark = cookies(page).get(MARK)?.get('value') ?? assert.fail('no mark');
    const known = ['Cookie', `${MARK}=${mark}`] as const;
    const kept = await site.get('/?denial=403', { headers: [known] });
    assert.equal(cookies(kept).has(COOKIE), false);
    const over = await site.get('/?denial=401', { headers: [known] });
    assert.equal(cookies(over).get(COOKIE)?.get('max-age'), '0');
  });

  it('keep guests’ pages out of shared caches, which do not see the deciding field', async (test) => {
    const site = await guardedSite(test);
    const guest = await site.get('/');
    assert.equal(guest.headers['cache-control'], 'private');
    assert.deepEqual(fields(guest, 'vary'), []);
  });
});

const CHOSEN = 'client-chosen-identity';
const GUARD = 'forward_auth localhost:4000 {\nuri /session\ncopy_headers X-User-Id\n}';
const RENAMING = GUARD.replace('X-User-Id', 'X-User-Id>X-Who');
/** The password is "right". */
const HASH = '$2a$04$/uaF/uaF/uaF/uaF/uaF/uVHyJ0TRj.IMxWmjm7GaId6KXSwJfXaO';
const ACCOUNTS = `basic_auth {\nalice ${HASH}\n}`;

describe('the field that names a user in a token, when the Hubfile is loaded', () => {
  const grant = (text: string): string => MINT.replace('{header.X-User-Id}', text);
  const CASES: readonly (readonly [string, string, string, readonly string[]])[] = [
    ['a field that forward_auth copies', '{header.X-User-Id}', GUARD, []],
    ['the same by its long name', '{http.request.header.x-user-id}', GUARD, []],
    ['a field that forward_auth copies under another name', '{header.X-Who}', RENAMING, []],
    ['a field that a nested forward_auth copies', '{header.X-User-Id}', `route {\n${GUARD}\n}`, []],
    ['the user of basic_auth', '{http.auth.user.id}', ACCOUNTS, []],
    ['a field of the answer', '{http.response.header.X-User-Id}', '', []],
    ['the host of a site with one', '{host}', '', []],
    ['a field that nothing establishes', '{header.X-User-Id}', '', [CHOSEN]],
    ['the same by its long name', '{http.request.header.X-User-Id}', '', [CHOSEN]],
    ['another field than the one that is copied', '{header.X-Other}', GUARD, [CHOSEN]],
    ['the name that the service uses for it', '{header.X-User-Id}', RENAMING, [CHOSEN]],
    [
      'a field that request_header writes',
      '{header.X-User-Id}',
      'request_header X-User-Id {query.user}',
      [CHOSEN],
    ],
    ['a cookie', '{cookie.user}', '', [CHOSEN]],
    ['a part of the query', '{query.user}', '', [CHOSEN]],
    ['a part of the path', '{path.1}', '', [CHOSEN]],
    ['a variable', '{vars.user}', 'vars user {query.user}', [CHOSEN]],
    ['a variable of map', '{vars.user}', 'map {header.X-User} {user} {\ndefault x\n}', [CHOSEN]],
    ['a group of a regular expression', '{re.1}', '', [CHOSEN]],
    [
      'the user where there is not a basic_auth',
      '{http.auth.user.id}',
      '',
      ['unestablished-identity'],
    ],
    [
      'a field of the answer that the site takes from the query',
      '{http.response.header.X-User-Id}',
      'header X-User-Id {query.user}',
      [CHOSEN],
    ],
  ];
  for (const [title, text, lines, expected] of CASES) {
    it(`${expected.length === 0 ? 'may be' : 'must not be'} ${title}`, () => {
      const problems = problemsOf(`discovery {\n${grant(text)}\n}\n${lines}`);
      assert.deepEqual(
        problems.map(({ code }) => code),
        expected,
      );
      for (const { place, hint } of problems) {
        assert.ok((place?.line ?? 0) > 1, 'with its place');
        assert.ok(hint !== undefined, 'and what to do instead');
      }
    });
  }

  it('must not be the host of a site with many hosts', () => {
    for (const address of ['http://*.example.com', 'http://:8080']) {
      const problems = problemsOf(`discovery {\n${grant('{host}')}\n}`, address);
      assert.deepEqual(
        problems.map(({ code }) => code),
        [CHOSEN],
      );
    }
  });

  it('may be a credential of the client if another server verifies it', () => {
    const exchange = (subject: string): string[] =>
      problemsOf(`discovery {
		token exchange {
			endpoint https://idp.example/token
			client_id a
			client_secret b
			subject_token ${subject}
		}
	}`).map(({ code }) => code);
    assert.deepEqual(exchange('{cookie.session}'), []);
    assert.deepEqual(exchange('{header.Authorization}'), []);
    assert.deepEqual(exchange('{query.token}'), [CHOSEN]);
    assert.deepEqual(exchange('{vars.token}'), [CHOSEN]);
  });
});

/** The errors of a site with these lines. */
function problemsOf(lines: string, address = 'http://localhost:8080'): readonly Problem[] {
  const text = `${address} {${HUB}
		anonymous
		cookie_name ${COOKIE}
	}
	${lines}
	reverse_proxy localhost:3000
}
`;
  try {
    parseHubfile(text);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.filter(({ severity }) => severity === 'error');
  }
}
