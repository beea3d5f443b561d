import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { cli, commandOf, runCommand, startProcess } from '../support/process.ts';

const directory = mkdtempSync(join(tmpdir(), 'hubgate-notations-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const SECRET = 'a-secret-of-the-test-that-is-long-enough';

function write(name: string, text: string): string {
  const file = join(directory, name);
  writeFileSync(file, text);
  return file;
}

/** Runs a command with something on its standard input. */
function withInput(args: readonly string[], input: string) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, ...args], {
    input,
    encoding: 'utf8',
    cwd: directory,
  });
  return { code: status, stdout, stderr };
}

describe('hubgate adapt --adapter caddyfile', () => {
  const caddyfile = write(
    'Caddyfile',
    'http://a.example {\n\tbasicauth {\n\t\tbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n\t}\n\trespond ok\n}\n',
  );
  const partly = write('Partly', 'http://a.example {\n\tpush\n\trespond ok\n}\n');
  const adapt = (...args: readonly string[]) =>
    runCommand(['adapt', '--adapter', 'caddyfile', ...args]);

  it('prints a Hubfile, and exits with 0 if everything is converted', async () => {
    const { code, stdout, stderr } = await adapt('--config', caddyfile);
    assert.deepEqual([code, stderr], [0, '']);
    assert.equal(stdout, readFileSync(caddyfile, 'utf8').replace('basicauth', 'basic_auth'));
  });

  it('reads the Caddyfile of the directory, or standard input', () => {
    const named = withInput(['adapt', '--adapter', 'caddyfile'], '');
    const input = withInput(
      ['adapt', '--adapter', 'caddyfile', '--config', '-'],
      readFileSync(caddyfile, 'utf8'),
    );
    assert.deepEqual([named.code, named.stdout], [0, input.stdout]);
  });

  it('exits with 3 if something is left out, and reports its position and what to write instead', async () => {
    const { code, stdout, stderr } = await adapt('--config', partly);
    assert.equal(code, 3);
    assert.match(stderr, /Partly:2:2: left out: the directive push is not supported by hubgate\n/);
    assert.match(stderr, /\n {2}browsers no longer support push/);
    assert.match(stderr, /\n1 item is left out and marked by a comment in the Hubfile/);
    assert.match(stdout, /\n\t# push\n\trespond ok\n/);
  });

  it('marks each placeholder without a value with a comment, and leaves its line as it is', async () => {
    const file = join(directory, 'Placeholders');
    const used =
      'http://localhost {\n\theader {\n\t\tX-A {tls_version}\n\t}\n\trespond {http.request.duration}\n}\n';
    writeFileSync(file, used);
    const { code, stdout, stderr } = await adapt('--config', file);
    assert.equal(code, 3);
    assert.match(stderr, /\n2 items are left out and marked by a comment in the Hubfile/);
    assert.match(stdout, /\n\t\t# left out: \{tls_version\} .*\n\t\tX-A \{tls_version\}\n/);
    assert.match(stdout, /\n\t# left out: \{http.request.duration\} .*\n\trespond \{http/);
    const withoutMarks = stdout.replace(/\t+# left out: .*\n/g, '');
    assert.equal(withoutMarks.trimEnd(), used.trimEnd());
  });

  it('writes a file that loads, and does not overwrite one that exists', async () => {
    const output = join(directory, 'Written');
    assert.equal((await adapt('--config', partly, '--output', output)).code, 3);
    assert.equal((await runCommand(['validate', '--config', output])).code, 0);
    const again = await adapt('--config', caddyfile, '--output', output);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /Written exists already/);
    assert.match(readFileSync(output, 'utf8'), /# push/);
  });

  it('inlines imported files, so that its output is self-contained', async () => {
    mkdirSync(join(directory, 'sites'));
    mkdirSync(join(directory, 'elsewhere'));
    write('sites/a.caddy', 'http://b.example {\n\timport ../answer\n\tpush\n}\n');
    write('answer', 'respond {$ANSWER:ok}\n');
    const whole = write('Whole', 'import sites/*.caddy\n');
    const output = join(directory, 'elsewhere/Hubfile');
    const { code, stderr } = await adapt('--config', whole, '--output', output);
    assert.equal(code, 3);
    assert.match(stderr, /sites\/a\.caddy:3:2: left out: [^]*\n {2}imported at [^\n]*Whole:1:1\n/);
    assert.match(readFileSync(output, 'utf8'), /# from [^\n]*answer\n\trespond \{\$ANSWER:ok\}/);
    assert.equal(statSync(output).mode & 0o777, 0o600);
    assert.equal((await runCommand(['validate', '--config', output])).code, 0);
  });

  it('exits with 1 and prints nothing if the input is not a Caddyfile', async () => {
    const broken = write('Broken', 'a.example {\n');
    const { code, stdout, stderr } = await adapt('--config', broken);
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /Broken:1:11: error: the block opened here is not closed/);
  });

  it('converts a Caddyfile to a Hubfile only', async () => {
    assert.equal((await adapt('--config', caddyfile, '--to', 'json')).code, 64);
  });
});

describe('hubgate adapt', () => {
  const hubfile = write(
    'Adapted',
    `a.example {\n\thub {\n\t\tissuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt ${SECRET}\n\t\t\t}\n\t\t\tsubscriber {\n\t\t\t\tjwt {env.KEY}\n\t\t\t}\n\t\t}\n\t}\n\treverse_proxy localhost:3000\n}\n`,
  );

  it('names the schema of the package, which its reader ignores', async () => {
    const printed = async (to: string) =>
      (await runCommand(['adapt', '--config', hubfile, '--to', to, '--show-secrets'])).stdout;
    const json = await printed('json');
    const yaml = await printed('yaml');
    const { $schema } = JSON.parse(json);
    const { title } = JSON.parse(readFileSync(new URL($schema), 'utf8'));
    assert.equal(title, 'hubgate');
    assert.equal(yaml.split('\n')[0], `# yaml-language-server: $schema=${$schema}`);
    for (const [name, text] of [
      ['named.json', json],
      ['named.yaml', yaml],
    ] as const) {
      const { code, stderr } = await runCommand([
        'validate',
        ...['--config', write(name, text.replace('{env.KEY}', SECRET))],
      ]);
      assert.deepEqual([code, stderr.includes('error')], [0, false], stderr);
    }
  });

  it('leaves secrets out, keeps placeholders, and says so', async () => {
    for (const to of ['json', 'yaml']) {
      const { code, stdout, stderr } = await runCommand(['adapt', '--config', hubfile, '--to', to]);
      assert.equal(code, 0);
      assert.equal(stdout.includes(SECRET), false);
      assert.match(stdout, /\{env\.KEY\}/);
      assert.match(stderr, /--show-secrets/);
      const { code: refused, stderr: why } = withInput(
        ['validate', '--config', '-', '--adapter', to],
        stdout,
      );
      assert.equal(refused, 1);
      assert.match(why, /secret that was left out/);
    }
  });

  it('converts each notation to each other without changing its meaning', async () => {
    const adapt = async (file: string, ...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runCommand([
        ...['adapt', '--config', file, '--show-secrets', ...args],
      ]);
      assert.deepEqual([code, stderr], [0, '']);
      return stdout;
    };
    const json = await adapt(hubfile, '--pretty');
    const yaml = await adapt(write('a.json', json), '--to', 'yaml');
    assert.equal(yaml, await adapt(hubfile, '--to', 'yaml'));
    assert.equal(await adapt(write('a.yml', yaml), '--pretty'), json);
    assert.equal((await adapt(hubfile)).trim().split('\n').length, 1);
  });

  it('gives --adapter precedence over the extension', async () => {
    const file = write('really.json', 'a.example {\n\trespond x\n}\n');
    assert.equal((await runCommand(['adapt', '--config', file])).code, 1);
    assert.equal((await runCommand(['adapt', '--config', file, '--adapter', 'hubfile'])).code, 0);
    assert.equal((await runCommand(['adapt', '--config', file, '--adapter', 'toml'])).code, 64);
  });
});

describe('hubgate run with YAML', () => {
  it('serves the configuration, and reports where it is wrong', async (test) => {
    const port = await freePort();
    const text = `options: {admin: "off", storage: ${directory}/storage}\nsites:\n- addresses: [{scheme: http, host: localhost, port: ${port}}]\n  routes:\n  - handler: {kind: respond, body: from yaml}\n`;
    const file = write('run.yaml', text);
    const gateway = startProcess(test, [cli, 'run', '--config', file]);
    await gateway.says('Listening on');
    assert.equal((await send(`http://localhost:${port}/`)).body, 'from yaml');
    writeFileSync(file, text.replace('body', 'bdy'));
    await gateway.says('run.yaml:5:30');
    assert.equal((await send(`http://localhost:${port}/`)).body, 'from yaml');
  });

  it('reads the configuration from standard input', async () => {
    const { code, stdout } = withInput(
      ['validate', '--config', '-', '--adapter', 'yaml'],
      'sites: [{addresses: [{host: a.example}]}]',
    );
    assert.deepEqual([code, stdout], [0, '- is valid\n']);
  });
});

describe('hubgate fmt', () => {
  const ugly = 'a.example {\n  respond    "x"\n}\n';
  const pretty = 'a.example {\n\trespond "x"\n}\n';

  it('prints the canonical layout of a file and of standard input', async () => {
    const { code, stdout } = await runCommand(['fmt', write('ugly', ugly)]);
    assert.deepEqual([code, stdout], [0, pretty]);
    assert.deepEqual(withInput(['fmt', '-'], ugly).stdout, pretty);
    assert.equal(withInput(['fmt', '-'], '').stdout.trim(), '');
  });

  it('--check fails if something would change, --diff shows it, --write changes the file', async () => {
    const file = write('written', ugly);
    const check = await runCommand(['fmt', file, '--check']);
    assert.deepEqual([check.code, check.stdout], [1, '']);
    assert.match(check.stderr, /not formatted/);
    const { code, stdout } = await runCommand(['fmt', file, '--diff']);
    assert.deepEqual(
      [code, stdout],
      [0, ' a.example {\n-  respond    "x"\n+\trespond "x"\n }\n \n'],
    );
    assert.equal((await runCommand(['fmt', file, '--write'])).code, 0);
    assert.equal(readFileSync(file, 'utf8'), pretty);
    assert.equal((await runCommand(['fmt', file, '--check'])).code, 0);
    assert.equal((await runCommand(['fmt', file, '--diff'])).stdout, '');
  });

  it('--write leaves the file whole if the disk is full, and keeps its mode and its link', async () => {
    const long = ugly.repeat(100);
    const file = write('long', long);
    chmodSync(file, 0o640);
    const link = `${file}.link`;
    symlinkSync(file, link);
    // One block of 1024 bytes: the system refuses what lies behind it.
    const limited = ['-c', 'ulimit -f 1; exec "$@"', 'bash'];
    const [program, args] = commandOf([cli, 'fmt', link, '--write']);
    const { status, stderr } = spawnSync('bash', [...limited, program, ...args], {
      encoding: 'utf8',
      env: { ...process.env, XDG_CACHE_HOME: join(directory, 'cache') },
    });
    assert.equal(status, 1, stderr);
    assert.match(stderr, /^hubgate: Cannot write .*long\.link: EFBIG/m);
    assert.equal(readFileSync(file, 'utf8'), long);
    const names = readdirSync(directory).filter((name) => name.includes('long'));
    assert.deepEqual(names.toSorted(), ['long', 'long.link']);

    assert.equal((await runCommand(['fmt', link, '--write'])).code, 0);
    assert.equal((await runCommand(['fmt', file, '--check'])).code, 0);
    assert.equal(statSync(file).mode & 0o777, 0o640);
    assert.ok(lstatSync(link).isSymbolicLink());
  });

  it('fails for an unclosed quote, and for input that is not a Hubfile', async () => {
    const latin1 = write('latin1', '');
    const bytes = Buffer.from('a {\nrespond "caf\xe9"\n}\n', 'latin1');
    writeFileSync(latin1, bytes);
    const refused = await runCommand(['fmt', latin1, '--write']);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /:2:13: error: the file is not UTF-8/);
    assert.deepEqual(readFileSync(latin1), bytes);
    const { code, stderr } = await runCommand(['fmt', write('open', 'a {\n\trespond "x\n}\n')]);
    assert.equal(code, 1);
    assert.match(stderr, /open:2:10: error/);
    assert.equal((await runCommand(['fmt', write('x.yaml', 'a: 1')])).code, 64);
    assert.equal((await runCommand(['fmt', '--write', '--check'])).code, 64);
    assert.equal((await runCommand(['fmt', '-', '--write'])).code, 64);
  });
});

describe('hubgate environ', () => {
  it('leaves secrets out', async () => {
    const { code, stdout } = await runCommand(['environ'], { SOME_KEY: SECRET, PLAIN: 'shown' });
    assert.equal(code, 0);
    assert.equal(stdout.includes(SECRET), false);
    assert.match(stdout, /^hubgate\.version=\d+\.\d+\.\d+$/m);
    assert.match(stdout, /^PLAIN=shown$/m);
  });
});

describe('hubgate reverse-proxy', () => {
  it('is a gateway with a hub and no file, which accepts the tokens of token --dev', async (test) => {
    const [port, app] = [await freePort(), await freePort()];
    startProcess(test, [
      '-e',
      `require('http').createServer((q, r) => r.end('the app')).listen(${app}, '127.0.0.1')`,
    ]);
    const gateway = startProcess(
      test,
      [
        ...[cli, 'reverse-proxy', '--from', `http://localhost:${port}`, '--to', `127.0.0.1:${app}`],
        '--dev',
      ],
      { XDG_DATA_HOME: directory },
    );
    await gateway.says(`Development gateway: http://localhost:${port}`);
    await gateway.says('hubgate token --dev');
    await gateway.says('Its key is public');
    await gateway.says('Listening on');
    // The user has written neither a key nor a history.
    assert.doesNotMatch(gateway.output, /demo-key|history-left-behind/);
    const other = Object.values(networkInterfaces())
      .flatMap((each) => each ?? [])
      .find(({ internal, family }) => !internal && family === 'IPv4');
    if (other !== undefined) {
      await assert.rejects(send(`http://${other.address}:${port}/`), /ECONNREFUSED/);
    }
    let answer = await send(`http://localhost:${port}/`);
    while (answer.status === 502) answer = await send(`http://localhost:${port}/`);
    assert.equal(answer.body, 'the app');
    assert.match(String(answer.headers.link), /rel="hub"/);
    const { stdout: token } = await runCommand(['token', '--dev']);
    const published = await runCommand([
      ...['publish', '--hub', `http://localhost:${port}/.well-known/hub`],
      ...['--token', token.trim(), '--topic', 'a', '--id', 'one'],
    ]);
    assert.deepEqual([published.code, published.stdout], [0, 'one\n'], published.stderr);
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('says which authority and which key it has, if the directory or the environment has others', async (test) => {
    const [port, own] = [await freePort(), join(directory, 'beside-a-hubfile')];
    mkdirSync(own);
    writeFileSync(join(own, 'Hubfile'), '{\n\tstorage .hubgate\n}\n');
    const flags = ['--dev', '--from', `localhost:${port}`, '--to', 'localhost:1'];
    const env = { XDG_DATA_HOME: directory, HUB_PUBLISHER_JWT_KEY: SECRET };
    const gateway = startProcess(test, [cli, 'reverse-proxy', ...flags], env, own);
    await gateway.says('(hubgate trust, in a directory without a Hubfile)');
    await gateway.says('Its key is HUB_PUBLISHER_JWT_KEY of the environment');
    await gateway.says('Listening on');
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('has a hub with keys of an env file, whose tokens it describes', async (test) => {
    const port = await freePort();
    const envFile = join(directory, 'reverse-proxy.env');
    writeFileSync(envFile, `HUB_PUBLISHER_JWT_KEY=${SECRET}\nHUB_SUBSCRIBER_JWT_KEY=${SECRET}\n`);
    const flags = ['--from', `:${port}`, '--to', 'localhost:1', '--hub', '--envfile', envFile];
    const gateway = startProcess(test, [cli, 'reverse-proxy', ...flags], {
      XDG_DATA_HOME: directory,
      HUB_PUBLISHER_JWT_KEY: '',
    });
    const hub = `http://localhost:${port}/.well-known/hub`;
    await gateway.says(`iss http://localhost:${port}, aud ${hub}`);
    await gateway.says('Listening on');
    assert.doesNotMatch(gateway.output, /cookie|warning/i);
    const grant = ['--iss', `http://localhost:${port}`, '--aud', hub, '--publish', '*'];
    const { stdout: token } = await runCommand(['token', ...grant, '--key', SECRET]);
    const update = ['--token', token.trim(), '--topic', 'a', '--id', 'one'];
    const published = await runCommand(['publish', '--hub', hub, ...update]);
    assert.deepEqual([published.code, published.stdout], [0, 'one\n'], published.stderr);
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('reports missing addresses and keys', async () => {
    assert.equal((await runCommand(['reverse-proxy', '--from', 'a'])).code, 64);
    const odd = await runCommand(['reverse-proxy', '--from', 'a {', '--to', 'b:1']);
    assert.equal(odd.code, 64);
    const { code, stderr } = await runCommand(
      ['reverse-proxy', '--from', 'localhost:1', '--to', 'localhost:2', '--hub'],
      { HUB_PUBLISHER_JWT_KEY: '', HUB_SUBSCRIBER_JWT_KEY: '' },
    );
    assert.equal(code, 1);
    assert.match(stderr, /HUB_PUBLISHER_JWT_KEY is not set/);
  });
});
