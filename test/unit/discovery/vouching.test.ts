import assert from 'node:assert/strict';
import type { RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { ConfigError } from '../../../src/config/problem.ts';
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
  it('go to the user whom the service names, whatever the client says', async (test) => {
    const site = await guardedSite(test);
    const answer = await site.get('/', { headers: [['Cookie', 'session=bob'], ALICE] });
    assert.deepEqual(fields(answer, 'seen-user'), ['bob']);
    const stream = await site.stream('match=*', { headers: [cookieHeader(answer)] });
    await site.publish({ topic: 'https://example.com/users/alice/a', private: 'on', id: 'hers' });
    await site.publish({ topic: 'https://example.com/users/bob/a', private: 'on', id: 'his' });
    assert.deepEqual(await stream.untilId('his'), ['his']);
  });

  it('go to nobody with a denial, which is no page of the app', async (test) => {
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

  it('end with the session: a page fetched as a guest takes them away', async (test) => {
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

  it('end with a denial whose status is one of expire', async (test) => {
    const site = await guardedSite(test);
    const page = await site.get('/', { headers: [['Cookie', 'session=bob']] });
    const mark = cookies(page).get(MARK)?.get('value') ?? assert.fail('no mark');
    const known = ['Cookie', `${MARK}=${mark}`] as const;
    const kept = await site.get('/?denial=403', { headers: [known] });
    assert.equal(cookies(kept).has(COOKIE), false);
    const over = await site.get('/?denial=401', { headers: [known] });
    assert.equal(cookies(over).get(COOKIE)?.get('max-age'), '0');
  });

  it('keep guests’ pages out of shared caches: none sees the field that decides', async (test) => {
    const site = await guardedSite(test);
    const guest = await site.get('/');
    assert.equal(guest.headers['cache-control'], 'private');
    assert.deepEqual(fields(guest, 'vary'), []);
  });
});

describe('a field of the request in a token', () => {
  const CASES: readonly (readonly [string, string, readonly string[]])[] = [
    ['is refused when nobody vouches for it', 'discovery {\n{mint}\n}', ['unvouched-field']],
    [
      'is refused when forward_auth sees other requests',
      guarded('/private/*', ''),
      ['unvouched-field'],
    ],
    ['may come from a forward_auth of all requests', guarded('', ''), []],
    ['may come from a forward_auth of the same requests', guarded('/private/*', '/private/*'), []],
    [
      'may be written by request_header',
      'discovery {\n{mint}\n}\nrequest_header X-User-Id {tls_client_subject}',
      [],
    ],
    [
      'is refused when request_header only adds to it',
      'discovery {\n{mint}\n}\nrequest_header +X-User-Id guest',
      ['unvouched-field'],
    ],
    [
      'is refused when a page comes from before the guard',
      `discovery {\n{mint}\n}\nroute {\nreverse_proxy /open/* localhost:1\n${guard('')}\n}`,
      ['unvouched-field'],
    ],
    [
      'may come from the guards of all branches',
      `discovery {\n{mint}\n}\nhandle /a/* {\n${guard('')}\nreverse_proxy localhost:1\n}\nhandle {\n${guard('')}\nreverse_proxy localhost:1\n}`,
      [],
    ],
    [
      'is refused when one branch has no guard',
      `discovery {\n{mint}\n}\nhandle /a/* {\n${guard('')}\nreverse_proxy localhost:1\n}\nhandle {\nreverse_proxy localhost:1\n}`,
      ['unvouched-field'],
    ],
  ];
  for (const [title, lines, expected] of CASES) {
    it(title, () => {
      assert.deepEqual(codesOf(lines), expected);
    });
  }
});

function guard(matcher: string): string {
  return `forward_auth ${matcher} localhost:4000 {\nuri /session\ncopy_headers X-User-Id\n}`;
}

function guarded(guardMatcher: string, discoveryMatcher: string): string {
  return `discovery ${discoveryMatcher} {\n{mint}\n}\n${guard(guardMatcher)}`;
}

/** The codes of the errors in a site with these lines. */
function codesOf(lines: string): string[] {
  const text = `http://localhost:8080 {${HUB}
		anonymous
		cookie_name ${COOKIE}
	}
	${lines.replace('{mint}', MINT)}
	reverse_proxy localhost:3000
}
`;
  try {
    parseHubfile(text);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.filter(({ severity }) => severity === 'error').map(({ code }) => code);
  }
}

describe("token mint: Caddy's long names", () => {
  it('are vouched for as the short ones are', () => {
    const mint = MINT.replace('{header.', '{http.request.header.');
    assert.throws(
      () => parseHubfile(`example.com {${HUB}\n\t}\n\tdiscovery {\n${mint}\n\t}\n}\n`),
      (error) =>
        error instanceof ConfigError &&
        error.problems.some(({ code }) => code === 'unvouched-field'),
    );
  });
});
