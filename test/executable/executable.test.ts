import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const executable = process.env['HUBGATE_EXECUTABLE'] ?? '';
if (executable === '') throw new Error('npm run test:executable runs these tests');
const KEY = 'key-of-the-test-of-the-executable-0123456789';
/** Of `hiccup`. */
const HASH = '$2a$12$1q195QKWqsWGF5nbmzqTvu/5iqTX9jbUfIZMN6aRZ0.FCT312kt/u';

describe('the single executable, without Node in the PATH', () => {
  it('serves TLS, checks a password, publishes and reloads, with two workers', async (test) => {
    const home = await temporaryDirectory(test);
    const site = `https://localhost:${String(await freePort())}`;
    const hubfile = (answer: string): string => `{
	admin off
	workers 2
	storage ${home}/storage
	skip_install_trust
	auto_https disable_redirects
}
${site} {
	tls internal
	hub {
		anonymous
		issuer https://example.com {
			publisher {
				jwt ${KEY}
			}
		}
	}
	basic_auth /hidden {
		alice ${HASH}
	}
	respond ${answer}
}
`;
    const file = join(home, 'Hubfile');
    await writeFile(file, hubfile('first'));
    const gateway = start(test, home, ['run', '--config', file]);
    await gateway.says('Listening on');
    const authority = join(home, 'storage/pki/local/root.crt');
    const ca = await readFile(authority, 'utf8');
    assert.equal((await get(site, ca)).body, 'first');
    assert.equal((await get(`${site}/hidden`, ca)).status, 401);
    assert.equal((await get(`${site}/hidden`, ca, 'alice:hiccup')).status, 200);

    const hub = `${site}/.well-known/hub`;
    const grants = ['--iss', 'https://example.com', '--aud', hub, '--publish', '*'];
    const token = (await run(test, home, ['token', '--key', KEY, ...grants])).trim();
    const at = ['--hub', hub, '--cacert', authority];
    await run(test, home, [
      ...['publish', ...at, '--token', token],
      ...['--topic', `${site}/news`, '--data', 'hello'],
    ]);
    const all = ['--match', '*', '--last-event-id', 'earliest', '--count', '1'];
    assert.match(await run(test, home, ['subscribe', ...at, ...all]), /hello/);

    const said = gateway.output.length;
    await writeFile(file, hubfile('second'));
    await gateway.says('Configuration reloaded', said);
    assert.equal((await get(site, ca)).body, 'second');
    assert.equal(await gateway.end('SIGTERM'), 0);
  });
});

describe('the files that the executable unpacks', () => {
  it('are in a directory of this user alone, once for all starts', async (test) => {
    const home = await temporaryDirectory(test);
    const outputs = [1, 2, 3].map(() => run(test, home, ['version']));
    assert.equal(new Set(await Promise.all(outputs)).size, 1);
    const cache = join(home, '.cache/hubgate');
    assert.equal(programs(cache).length, 1);
    for (const path of [cache, ...programs(cache)]) assert.equal(statSync(path).mode & 0o077, 0);
  });

  it('are unpacked again where some are missing or cut off', async (test) => {
    const home = await temporaryDirectory(test);
    const version = await run(test, home, ['version']);
    const [program = ''] = programs(join(home, '.cache/hubgate'));
    const main = join(program, 'node_modules/hubgate/dist/cli/main.js');
    rmSync(main);
    await writeFile(join(program, 'start.cjs'), '');
    assert.equal(await run(test, home, ['version']), version);
    assert.ok(existsSync(main));
  });

  it('are not taken from a directory into which others may write', async (test) => {
    const home = await temporaryDirectory(test);
    const version = await run(test, home, ['version']);
    const [program = ''] = programs(join(home, '.cache/hubgate'));
    // What another user could have left there, in the same length.
    const main = join(program, 'node_modules/hubgate/dist/cli/main.js');
    const { size } = statSync(main);
    await writeFile(main, 'console.log("of somebody else");'.padEnd(size));
    assert.equal((await run(test, home, ['version'])).trim(), 'of somebody else');
    chmodSync(program, 0o770);
    assert.equal(await run(test, home, ['version']), version);
  });

  it('are temporary without a writable home directory, and are removed at the end', async (test) => {
    const home = await temporaryDirectory(test);
    const temporary = join(home, 'temporary');
    await mkdir(temporary);
    const environment = { HOME: '/dev/null', TMPDIR: temporary };
    assert.match(await run(test, home, ['version'], environment), /^\d+\./);
    assert.deepEqual(readdirSync(temporary), []);
  });

  it('are those of this build, even when another build starts it', async (test) => {
    const home = await temporaryDirectory(test);
    const other = join(home, 'other');
    await mkdir(other, { mode: 0o700 });
    const inherited = { HUBGATE_UNPACKED: `0000000000000000:${other}` };
    assert.match(await run(test, home, ['version'], inherited), /^\d+\./);
  });

  it('are readable for a user that may read the executable only', async (test) => {
    if (process.getuid?.() !== 0) return test.skip('only root can become another user');
    const home = await temporaryDirectory(test);
    const copy = join(tmpdir(), `hubgate-of-everybody-${String(process.pid)}`);
    await copyFile(executable, copy);
    test.after(() => rmSync(copy, { force: true }));
    await chmod(copy, 0o755);
    const started = new TestProcess(['version'], {}, '/', {
      program: copy,
      uid: 65_534,
      gid: 65_534,
      wholeEnv: { HOME: '/nonexistent', PATH: home },
    });
    assert.equal(await started.exited(), 0, started.output);
  });
});

function programs(cache: string): string[] {
  return readdirSync(cache)
    .filter((name) => name.startsWith('program-'))
    .map((name) => join(cache, name));
}

/** The executable alone: neither Node nor a shell can be found. */
function start(
  test: TestContext,
  home: string,
  args: readonly string[],
  more: NodeJS.ProcessEnv = {},
): TestProcess {
  const wholeEnv = { HOME: home, PATH: '/nonexistent', NO_COLOR: '1', ...more };
  const started = new TestProcess(args, {}, home, { program: executable, wholeEnv });
  test.after(() => started.end('SIGKILL'));
  return started;
}

/** What a command prints; it must succeed. */
async function run(
  test: TestContext,
  home: string,
  args: readonly string[],
  more: NodeJS.ProcessEnv = {},
): Promise<string> {
  const started = start(test, home, args, more);
  assert.equal(await started.exited(), 0, started.output);
  return started.output;
}

async function get(
  url: string,
  ca: string,
  auth?: string,
): Promise<{ readonly status: number; readonly body: string }> {
  const sent = request(url, { ca, agent: false, ...(auth === undefined ? {} : { auth }) }).end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return { status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() };
}
