import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { decodeJwt, decodeProtectedHeader, importSPKI, jwtVerify } from 'jose';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { cli, commandOf, runCommand, startProcess } from '../support/process.ts';

const directory = mkdtempSync(join(tmpdir(), 'hubgate-cli-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const KEY = 'a-secret-of-the-test-that-is-long-enough';
const BASE = ['token', '--iss', 'https://issuer.example', '--aud', 'https://hub.example/hub'];
const WITH_KEY = [...BASE, '--key', KEY];

describe('hubgate token', () => {
  it('I-516 I-517 I-518: prints one token and a newline, with typ at+jwt and every claim', async () => {
    const { code, stdout, stderr } = await runCommand([...WITH_KEY, '--publish', 'a']);
    assert.equal(code, 0);
    assert.equal(stderr, '');
    assert.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/);
    assert.deepEqual(decodeProtectedHeader(stdout.trim()), { alg: 'HS256', typ: 'at+jwt' });
    const claims = decodeJwt(stdout.trim());
    assert.deepEqual(Object.keys(claims).sort(), [
      ...['aud', 'authorization_details', 'client_id', 'exp', 'iat', 'iss', 'jti', 'sub'],
    ]);
    assert.equal(claims.aud, 'https://hub.example/hub');
    await jwtVerify(stdout.trim(), Buffer.from(KEY));
  });

  it('I-519 I-520: fills in sub, client_id, jti and a lifetime of one hour by default', async () => {
    const filled = decodeJwt(await token(...WITH_KEY, '--publish', 'a'));
    assert.match(String(filled.sub), /^urn:uuid:/);
    assert.equal(filled['client_id'], 'https://issuer.example');
    assert.match(String(filled.jti), /^urn:uuid:/);
    assert.equal(Number(filled.exp) - Number(filled.iat), 3600);
    const told = decodeJwt(
      await token(
        ...WITH_KEY,
        '--publish',
        'a',
        '--sub',
        's',
        '--client-id',
        'c',
        '--ttl',
        '1h30m',
      ),
    );
    assert.deepEqual([told.sub, told['client_id']], ['s', 'c']);
    assert.equal(Number(told.exp) - Number(told.iat), 5400);
    const kid = await token(...WITH_KEY, '--publish', 'a', '--kid', 'k1');
    assert.equal(decodeProtectedHeader(kid).kid, 'k1');
  });

  it('takes a key that begins like an option, as one in 64 generated keys does', async () => {
    for (const letter of ['V', 'h', '-', 'x']) {
      const key = `-${letter}${KEY}`;
      const made = await token(...BASE, '--key', key, '--publish', 'a');
      await jwtVerify(made, Buffer.from(key));
    }
  });

  it('I-521 I-522 I-523 I-524: puts exact topics before patterns, and the payload on subscribe only', async () => {
    const { authorization_details: details } = decodeJwt(
      await token(
        ...[...WITH_KEY, '--publish-urlpattern', 'p', '--publish', 'a', '--publish', 'b'],
        ...['--subscribe', 'c', '--subscribe-urlpattern', 'q', '--payload', '{"n":1}'],
      ),
    );
    const type = 'urn:hub:authorization-detail';
    assert.deepEqual(details, [
      {
        type,
        actions: ['publish'],
        topics: [{ match: 'a' }, { match: 'b' }, { match: 'p', match_type: 'urlpattern' }],
      },
      {
        type,
        actions: ['subscribe'],
        topics: [{ match: 'c' }, { match: 'q', match_type: 'urlpattern' }],
        payload: { n: 1 },
      },
    ]);
  });

  it('I-525 I-526 I-527 I-528 I-532 I-537: fails with a message and no output', async () => {
    for (const [args, words] of [
      [[...WITH_KEY, '--subscribe', 'a', '--payload', 'not json'], /--payload/],
      [WITH_KEY, /--publish.*--publish-urlpattern.*--subscribe.*--subscribe-urlpattern/],
      [['token', '--aud', 'a', '--key', KEY, '--publish', 'a'], /--iss/],
      [['token', '--iss', 'a', '--key', KEY, '--publish', 'a'], /--aud/],
      [[...BASE, '--publish', 'a'], /--key/],
      [[...BASE, '--key', '@/no/such/file', '--publish', 'a'], /\/no\/such\/file/],
      [[...WITH_KEY, '--publish', 'a', '--alg', 'none'], /none/],
      [[...WITH_KEY, '--publish', 'a', '--alg', 'RS256'], /RS256/],
    ] as const) {
      const { code, stdout, stderr } = await runCommand(args);
      assert.equal(code, 1, stderr);
      assert.equal(stdout, '');
      assert.match(stderr, words);
      assert.equal(stderr.includes(KEY), false, 'no secret in an error');
    }
  });

  it('I-529 L38: a flag that does not exist is a usage error, 64', async () => {
    const { code, stdout, stderr } = await runCommand(['token', '--nonsense']);
    assert.deepEqual([code, stdout], [64, '']);
    assert.match(stderr, /--nonsense/);
  });

  it('I-530 I-531: uses a literal key unchanged, and strips one line ending from a key file', async () => {
    await jwtVerify(
      await token(...BASE, '--key', ' spaced key of enough bytes here ', '--publish', 'a'),
      Buffer.from(' spaced key of enough bytes here '),
    );
    const file = join(directory, 'key');
    writeFileSync(file, `${KEY}\r\n`);
    await jwtVerify(await token(...BASE, '--key', `@${file}`, '--publish', 'a'), Buffer.from(KEY));
    writeFileSync(file, `${KEY}\n\n`);
    await jwtVerify(
      await token(...BASE, '--key', `@${file}`, '--publish', 'a'),
      Buffer.from(`${KEY}\n`),
    );
    const fromInput = execFileSync(
      process.execPath,
      [cli, ...BASE, '--key', '@-', '--publish', 'a'],
      {
        input: `${KEY}\n`,
        encoding: 'utf8',
      },
    );
    await jwtVerify(fromInput.trim(), Buffer.from(KEY));
  });

  it('I-534 I-535 I-536: signs with PEM private keys, whose algorithm must be given', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const file = join(directory, 'ec.pem');
    writeFileSync(file, privateKey.export({ type: 'pkcs8', format: 'pem' }));
    const signed = await token(...BASE, '--key', `@${file}`, '--alg', 'ES256', '--publish', 'a');
    const spki = publicKey.export({ type: 'spki', format: 'pem' }).toString();
    await jwtVerify(signed, await importSPKI(spki, 'ES256'));
    for (const more of [[], ['--alg', 'HS256'], ['--alg', 'ES384'], ['--alg', 'RS256']]) {
      const { code, stdout } = await runCommand([
        ...BASE,
        '--key',
        `@${file}`,
        '--publish',
        'a',
        ...more,
      ]);
      assert.deepEqual([code, stdout], [1, '']);
    }
  });

  it('I-538 I-539 I-540: --dev fills in only what is missing', async () => {
    const env = { HUB_PUBLISHER_JWT_KEY: KEY };
    const run = async (...args: string[]) => {
      const { stdout } = await runCommand(['token', '--dev', ...args], env);
      await jwtVerify(stdout.trim(), Buffer.from(KEY));
      return decodeJwt(stdout.trim());
    };
    const all = await run();
    assert.deepEqual(
      [all.iss, all.aud, all.exp],
      ['https://localhost', 'https://localhost/.well-known/hub', 4102444800],
    );
    const short = await run('--ttl', '15m');
    assert.equal((short.exp ?? 0) - (short.iat ?? 0), 900);
    const actions = (claims: typeof all) =>
      (claims['authorization_details'] as { actions: string[]; topics: unknown[] }[]).map(
        ({ actions: [action], topics }) => [action, topics],
      );
    assert.deepEqual(actions(all), [
      ['publish', [{ match: '*' }]],
      ['subscribe', [{ match: '*' }]],
    ]);
    assert.deepEqual(actions(await run('--publish', 'T')), [['publish', [{ match: 'T' }]]]);
    assert.equal((await run('--aud', 'https://x.example/hub')).aud, 'https://x.example/hub');
  });

  it('I-541 I-542: shows the claims on standard error, and mints an expired token if asked to', async () => {
    const { stdout, stderr } = await runCommand([
      ...[...WITH_KEY, '--publish', 'a', '--pretty', '--ttl', '-1h'],
    ]);
    const shown = JSON.parse(stderr);
    assert.deepEqual(shown.claims, decodeJwt(stdout.trim()));
    assert.ok(shown.claims.exp < Date.now() / 1000);
  });

  it('I-521: uses the detail type of the profile, or another', async () => {
    const type = async (...args: string[]) => {
      const [detail] = decodeJwt(await token(...WITH_KEY, '--publish', 'a', ...args))[
        'authorization_details'
      ] as { type: string }[];
      return detail?.type;
    };
    assert.equal(await type('--profile', 'mercure'), 'https://mercure.rocks/authorization-detail');
    assert.equal(await type('--detail-type', 'urn:x'), 'urn:x');
  });
});

describe('hubgate token inspect', () => {
  const hubfile = join(directory, 'Hubfile');
  writeFileSync(
    hubfile,
    `hub.example {\n\thub {\n\t\tissuer https://issuer.example {\n\t\t\tpublisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t}\n\treverse_proxy localhost:1\n}\n`,
  );
  const inspect = async (made: string, ...args: string[]) =>
    runCommand(['token', 'inspect', made, '--config', hubfile, ...args]);
  const good = (...more: string[]) =>
    token(
      ...[
        'token',
        '--iss',
        'https://issuer.example',
        '--aud',
        'https://hub.example/.well-known/hub',
      ],
      ...['--key', KEY, '--publish', 'a', ...more],
    );

  it('accepts the tokens that the hub accepts', async () => {
    const { code, stdout } = await inspect(await good(), '--topic', 'a');
    assert.equal(code, 0, stdout);
    assert.match(
      stdout,
      /^It grants:\n {2}publish the topic "a"\nThe hub accepts this token for publishing\.\n$/m,
    );
  });

  it('expects the URL of a site with an IPv6 address as clients write it', async () => {
    const file = join(directory, 'IPv6');
    writeFileSync(file, readFileSync(hubfile, 'utf8').replace('hub.example', '[::1]:8443'));
    const made = await good('--aud', 'https://[::1]:8443/.well-known/hub');
    const { code, stdout } = await inspect(made, '--config', file, '--adapter', 'hubfile');
    assert.equal(code, 0, stdout);
  });

  it('names each check that fails, the expected and actual values, and the fix', async () => {
    for (const [made, args, words] of [
      [await good('--ttl', '-1h'), [], /FAIL {2}exp/],
      [await good(), ['--topic', 'b'], /FAIL {2}grant[^]*add an authorization detail/],
      [await good(), ['--url', 'https://other.example/hub'], /FAIL {2}aud[^]*other\.example/],
      [await token(...WITH_KEY, '--publish', 'a'), [], /FAIL {2}aud/],
      [await good('--subscribe', 'a'), [], /FAIL {2}role[^]*for subscribing: role/],
      [await good(), ['--action', 'subscribe'], /FAIL {2}role[^]*for subscribing: role/],
      ['nonsense', [], /FAIL {2}shape: .*; found no dot\n/],
    ] as const) {
      const { code, stdout } = await inspect(made, ...args);
      assert.equal(code, 1);
      assert.match(stdout, words);
      assert.match(stdout, /The hub refuses this token for (?:publishing|subscribing): /);
    }
  });
});

describe('hubgate publish and subscribe', () => {
  it('I-543: connect to a hub with a minted token, print ids and events, and continue after a lost connection', async (test) => {
    const port = await freePort();
    const site = `http://localhost:${port}`;
    const hubfile = `${site} {\n\thub {\n\t\tissuer ${site} {\n\t\t\tpublisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}\n\t\ttransport memory\n\t}\n}\n`;
    await startGateway(test, hubfile);
    const hub = `${site}/.well-known/hub`;
    const made = await token(
      ...['token', '--iss', site, '--aud', hub, '--key', KEY],
      ...['--publish', '*', '--subscribe', '*'],
    );
    const publish = async (...args: string[]) =>
      (await runCommand(['publish', '--hub', hub, '--token', made, ...args])).stdout.trim();
    assert.equal(
      await publish('--topic', 'a', '--id', 'first', '--data', 'one\ntwo', '--private'),
      'first',
    );
    const subscriber = startProcess(test, [
      ...[cli, 'subscribe', '--hub', hub, '--token', made, '--match', 'a', '--json'],
      ...['--last-event-id', 'earliest', '--count', '2'],
    ]);
    await subscriber.says('first');
    await publish('--topic', 'a', '--id', 'second', '--type', 'note', '--data', 'x');
    await subscriber.says('second');
    assert.deepEqual(
      subscriber.output
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
      [
        { id: 'first', type: 'message', data: 'one\ntwo' },
        { id: 'second', type: 'note', data: 'x' },
      ],
    );
    const { code, stderr } = await runCommand(['publish', '--hub', hub, '--topic', 'a']);
    assert.equal(code, 1);
    assert.match(stderr, /401[^]*token inspect/);
  });

  it('survive a restart of the hub while subscribed, and miss nothing', async (test) => {
    const port = await freePort();
    const site = `http://localhost:${port}`;
    const hub = `${site}/.well-known/hub`;
    const history = join(directory, 'history');
    const file = join(directory, 'Restarted');
    writeFileSync(
      file,
      `{\n\tadmin off\n\tstorage ${directory}\n}\n${site} {\n\thub {\n\t\tissuer ${site} {\n\t\t\tpublisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport lmdb {\n\t\t\tpath ${history}\n\t\t}\n\t}\n}\n`,
    );
    const start = async () => {
      const gateway = startProcess(test, [cli, 'run', '--config', file]);
      await gateway.says(`:${port}`);
      return gateway;
    };
    const made = await token('token', '--iss', site, '--aud', hub, '--key', KEY, '--publish', '*');
    const publish = (id: string) =>
      runCommand(['publish', '--hub', hub, '--token', made, '--topic', 'a', '--id', id]);
    const first = await start();
    await publish('one');
    const subscriber = startProcess(test, [
      ...[cli, 'subscribe', '--hub', hub, '--match', 'a', '--last-event-id', 'earliest', '--json'],
    ]);
    await subscriber.says('"one"');
    await first.end('SIGKILL');
    await subscriber.says('Cannot reach');
    await start();
    await publish('two');
    await subscriber.says('"two"');
    assert.equal(subscriber.output.match(/"id":"(?:one|two)"/g)?.length, 2);
  });

  it('say what to do about a certificate that they do not trust', async (test) => {
    const port = await freePort();
    await startGateway(test, `https://localhost:${port} {\n\ttls internal\n\trespond ok\n}\n`);
    const { code, stderr } = await runCommand([
      ...['publish', '--hub', `https://localhost:${port}/.well-known/hub`, '--topic', 'a'],
    ]);
    assert.equal(code, 1);
    assert.match(stderr, /--cacert/);
  });
});

describe('hubgate version, validate', () => {
  it('prints the version of the package', async () => {
    const { stdout } = await runCommand(['version']);
    assert.match(stdout, /^\d+\.\d+\.\d+\n$/);
  });

  it('prints all problems as data, with their positions, and fails', async () => {
    const file = join(directory, 'Broken');
    writeFileSync(file, 'localhost {\n\tnonsense\n\trespond "x" abc\n}\n');
    const { code, stdout } = await runCommand(['validate', '--config', file, '--json']);
    assert.equal(code, 1);
    const problems: { code: string; line: number; column: number }[] = JSON.parse(stdout);
    assert.deepEqual(
      problems.map(({ line, column }) => [line, column]),
      [
        [2, 2],
        [3, 14],
      ],
    );
  });

  it('run reports that there is no configuration, and where it looked', async () => {
    const { code, stderr } = await runCommand(['run', '--config', join(directory, 'absent')]);
    assert.equal(code, 1);
    assert.match(stderr, /absent[^]*--config/);
  });

  it('validate succeeds although its warnings cannot be written', () => {
    const hubfile = join(directory, 'warning.hubfile');
    writeFileSync(hubfile, 'http://localhost {\n\timport nothing*\n}\n');
    const [program, args] = commandOf([cli, 'validate', '--config', hubfile]);
    const line = ['-c', 'exec "$0" "$@" 2>/dev/full', program, ...args];
    assert.match(execFileSync('sh', line, { encoding: 'utf8' }), /is valid/);
  });

  it('run ends if it cannot write its process id', async (test) => {
    const hubfile = await smallHubfile();
    const pidfile = join(directory, 'absent', 'hubgate.pid');
    const args = [cli, 'run', '--config', hubfile, '--pidfile', pidfile];
    const running = startProcess(test, args);
    assert.equal(await running.exited(), 1);
    assert.match(running.output, /^hubgate: Cannot write .*absent\/hubgate\.pid: /m);
    assert.doesNotMatch(running.output, /Listening on/);
  });

  it('run stops as usual if it cannot remove the file of its process id', async (test) => {
    const hubfile = await smallHubfile();
    const pidfile = join(directory, 'hubgate.pid');
    const running = startProcess(test, [cli, 'run', '--config', hubfile, '--pidfile', pidfile]);
    await running.says('Listening on');
    while (!existsSync(pidfile)) await delay(10);
    // Not even root can remove it as a file.
    rmSync(pidfile);
    mkdirSync(pidfile);
    assert.equal(await running.end('SIGTERM'), 0);
    assert.match(running.output, /hubgate\.pid cannot be removed[^]*Stopped/);
  });

  it('run --watch, as with Caddy, keeps a process id that another process has written', async (test) => {
    const hubfile = await smallHubfile();
    const pidfile = join(directory, 'taken.pid');
    const args = [cli, 'run', '--watch', '--config', hubfile, '--pidfile', pidfile];
    const running = startProcess(test, args);
    await running.says('Listening on');
    while (!existsSync(pidfile) || readFileSync(pidfile, 'utf8') === '') await delay(10);
    writeFileSync(pidfile, '1\n');
    assert.equal(await running.end('SIGTERM'), 0);
    assert.equal(readFileSync(pidfile, 'utf8'), '1\n');
  });
});

/** A Hubfile of one small site. */
async function smallHubfile(): Promise<string> {
  const hubfile = join(directory, 'small.hubfile');
  const options = `{\n\tadmin off\n\tstorage ${directory}/small-storage\n}\n`;
  const site = `http://localhost:${await freePort()} {\n\trespond hello\n}\n`;
  writeFileSync(hubfile, options + site);
  return hubfile;
}

async function token(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runCommand(args);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}
