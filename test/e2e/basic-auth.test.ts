import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { type Answer, openStream, send } from '../support/http.ts';
import { cli, runCommand } from '../support/process.ts';

/** Of "open sesame" and "tschüs:x"; little work, so that tests are quick. */
const BCRYPT = '$2a$04$WdfSlbENpCN6pu.YmQZdqOejWN9.8EVx9JJ/eSuLMjbQnTgEYwzpe';
const BCRYPT_UTF8 = '$2a$04$L6dGOGT8o1sX/6hh4C6Mo.wXd6qeTcEieUJAPqwWFPVEVougT/E0G';
const ARGON2ID =
  '$argon2id$v=19$m=64,t=1,p=1$xlrrKr/mWNMKkarvOxY/UA$r0NqHx7FL+3k8SeIZswa4bOub3/PQkEmzW/R5b1UBms';
/** Of "secret", by `caddy hash-password`. */
const CADDY = '$2a$14$xFVFII1N9Rdx5kRrysP1n.N.15wNRk1ZKR2NlYnar3OqgrBGQYc8W';

const KEY = 'a publisher key of more than 32 bytes, for tests';

const DIRECTIVES = `
	basic_auth /realm/* bcrypt "the admins" {
		ada ${BCRYPT}
	}
	basic_auth /caddy {
		cad ${CADDY}
	}
	basic_auth /private/* {
		ada ${BCRYPT}
		ünal ${BCRYPT_UTF8}
	}
	respond "for {http.auth.user.id}"
`;

const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

const ask = (url: string, authorization?: string): Promise<Answer> =>
  send(url, {
    headers: authorization === undefined ? [] : [['Authorization', authorization]],
  });

async function serve(test: TestContext, directives: string): Promise<string> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  await startGateway(test, `${origin} {${directives}}\n`);
  return origin;
}

describe('basic_auth (RFC 7617)', () => {
  it('accepts users with a correct password, as Caddy does', async (test) => {
    const own = await serve(test, DIRECTIVES);
    const caddy = await startCaddy(test, DIRECTIVES.replaceAll('basic_auth', 'basicauth'));
    if (caddy === null) return;
    for (const [path, authorization, status] of [
      ['/open', undefined, 200],
      ['/private/x', undefined, 401],
      ['/private/x', basic('ada', 'open sesame'), 200],
      ['/private/x', basic('ada', 'open sesame').replace('Basic', 'basic'), 200],
      ['/private/x', basic('ada', 'open sesam'), 401],
      ['/private/x', basic('ada', ''), 401],
      ['/private/x', basic('nobody', 'open sesame'), 401],
      ['/private/x', basic('ünal', 'tschüs:x'), 200],
      ['/private/x', basic('ünal', 'open sesame'), 401],
      ['/private/x', 'Basic !', 401],
      ['/private/x', 'Bearer abc', 401],
      ['/realm/x', undefined, 401],
      ['/caddy', basic('cad', 'secret'), 200],
    ] as const) {
      const mine = await ask(own + path, authorization);
      const theirs = await ask(caddy + path, authorization);
      const title = `${path} ${authorization ?? ''}`;
      assert.equal(mine.status, status, title);
      assert.equal(theirs.status, status, `Caddy: ${title}`);
      const challenge = mine.headers['www-authenticate'];
      assert.equal(challenge, theirs.headers['www-authenticate'], `Caddy: ${title}`);
      if (authorization !== undefined && status === 200) assert.equal(mine.body, theirs.body);
    }
  });

  it('accepts argon2id hashes, and runs error routes for a refusal', async (test) => {
    const own = await serve(
      test,
      `
	basic_auth {
		ada ${ARGON2ID}
	}
	respond "for {http.auth.user.id}"
	handle_errors {
		respond "please: {err.status_code}"
	}
`,
    );
    assert.equal((await ask(own, basic('ada', 'open sesame'))).body, 'for ada');
    const refused = await ask(own, basic('ada', 'x'));
    assert.deepEqual([refused.status, refused.body], [401, 'please: 401']);
    assert.equal(refused.headers['www-authenticate'], 'Basic realm="restricted"');
  });

  it('sends a realm with quotes as a quoted string', async (test) => {
    const own = await serve(
      test,
      `
	basic_auth bcrypt \`say "hi" \\ ü\` {
		ada ${BCRYPT}
	}
`,
    );
    const { headers } = await ask(own);
    const challenge = Buffer.from(String(headers['www-authenticate']), 'latin1').toString();
    assert.equal(challenge, String.raw`Basic realm="say \"hi\" \\ ü"`);
  });

  it('delays a client after 20 wrong passwords, but not a client with a correct one', async (test) => {
    const own = await serve(test, DIRECTIVES);
    const right = basic('ada', 'open sesame');
    assert.equal((await ask(`${own}/private/x`, right)).status, 200);
    for (let i = 0; i < 20; i += 1) {
      assert.equal((await ask(`${own}/private/x`, basic('ada', `guess ${i}`))).status, 401);
    }
    const late = await ask(`${own}/private/x`, basic('ada', 'guess'));
    assert.equal(late.status, 429);
    assert.ok(Number(late.headers['retry-after']) > 0);
    assert.equal((await ask(`${own}/private/x`, right)).status, 200);
  });

  it('lets the hub behind it take the token of the cookie, or none, as browsers add the password to each request', async (test) => {
    const own = await serve(
      test,
      `
	basic_auth {
		ada ${BCRYPT}
	}
	hub {
		issuer https://i.example {
			publisher {
				jwt "${KEY}"
			}
		}
		anonymous
		cookie_name hub_token
		publish_origins https://page.example
		transport memory
	}
	respond ok
`,
    );
    const hub = `${own}/.well-known/hub`;
    const password = ['Authorization', basic('ada', 'open sesame')] as const;
    const stream = await openStream(test, `${hub}?match=a`, { headers: [password] });
    assert.equal(stream.status, 200);
    const { stdout: token } = await runCommand([
      ...['token', '--iss', 'https://i.example', '--aud', hub, '--key', KEY, '--publish', 'a'],
    ]);
    const fields = [password, ['Content-Type', 'application/x-www-form-urlencoded']] as const;
    const publish = (more: readonly (readonly [string, string])[]) =>
      send(hub, { method: 'POST', headers: [...fields, ...more], body: 'topic=a&data=hello' });
    const cookie = ['Cookie', `hub_token=${token.trim()}`] as const;
    assert.equal((await publish([cookie, ['Origin', 'https://page.example']])).status, 200);
    // The rules against forged requests still apply.
    assert.equal((await publish([cookie, ['Origin', 'https://other.example']])).status, 400);
    assert.equal((await publish([])).status, 401);
    const bearer = ['Authorization', `Bearer ${token.trim()}`] as const;
    assert.equal((await publish([bearer])).status, 400, 'two fields');
    await stream.until(({ text: received }) => received.includes('data: hello'));
  });

  it('checks a password only once when several connections of a browser send it at the same time', async (test) => {
    const own = await serve(test, DIRECTIVES);
    const same = await Promise.all(
      Array.from({ length: 12 }, () => ask(`${own}/caddy`, basic('cad', 'secret'))),
    );
    assert.deepEqual(new Set(same.map(({ status }) => status)), new Set([200]));
  });
});

/** What `hubgate hash-password` makes of a line. */
async function hashed(line: string, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [cli, 'hash-password', ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.end(`${line}\n`);
  const [said] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  return said.trim();
}

describe('hubgate hash-password', () => {
  for (const algorithm of ['bcrypt', 'argon2id']) {
    it(`creates a ${algorithm} hash that basic_auth accepts`, async (test) => {
      const hash = await hashed('a password', ['--algorithm', algorithm]);
      const own = await serve(test, `\n\tbasic_auth {\n\t\tada ${hash}\n\t}\n\trespond ok\n`);
      assert.equal((await ask(own, basic('ada', 'a password'))).status, 200);
      assert.equal((await ask(own, basic('ada', 'another'))).status, 401);
    });
  }
});
