import assert from 'node:assert/strict';
import dns from 'node:dns';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { requestHub } from '../../src/cli/hub-request.ts';
import { freePort } from '../support/free-port.ts';
import { root, runCommand } from '../support/process.ts';

async function listening(test: TestContext, server: ReturnType<typeof createTcpServer>) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return address.port;
}

const KEYS = {
  HUB_PUBLISHER_JWT_KEY: 'a-publisher-key-of-more-than-32-bytes-0123',
  HUB_SUBSCRIBER_JWT_KEY: 'a-subscriber-key-of-more-than-32-bytes-012',
};

const subscribe = (hub: string) => runCommand(['subscribe', '--match', '*', '--hub', hub]);

describe('hubgate --help', () => {
  it('shows an example and the page to read for every command', async () => {
    const { stdout } = await runCommand(['--help']);
    const commands = [...stdout.matchAll(/^ {2}([a-z-]+)(?: \[| <|  )/gm)].map(
      ([, name = '']) => name,
    );
    assert.ok(commands.length > 15);
    const nested = ['token inspect', 'history export', 'cache purge', 'outbox sql'];
    for (const name of [...commands, ...nested]) {
      if (['help', 'history', 'cache', 'outbox'].includes(name)) continue;
      const help = (await runCommand([...name.split(' '), '--help'])).stdout;
      assert.match(help, new RegExp(`\nExamples:\n  [^\n]*hubgate ${name}`), name);
      const [, page = ''] = /\nSee (\S+) of the package\.\n$/.exec(help) ?? [];
      assert.ok(page !== '' && existsSync(join(root, page)), `${name}: ${page}`);
    }
  });

  it('says where the documents are if the program is the single executable, which has none', async () => {
    const { stdout } = await runCommand(['run', '--help'], { HUBGATE_UNPACKED: 'hash:/tmp' });
    const here = '/usr/share/doc/hubgate';
    const where = existsSync(`${here}/docs`)
      ? `See ${here}/docs/production.md.`
      : 'See docs/production.md of the npm package, or of the one for Debian.';
    assert.ok(stdout.endsWith(`\n${where}\n`), stdout);
  });

  it('uses colour when asked to, but not after a mistake or in a pipe', async () => {
    const colour = await runCommand(['version', '--help'], {
      NO_COLOR: undefined,
      FORCE_COLOR: '1',
    });
    assert.ok(colour.stdout.includes('\u001B[1mUsage:'));
    const plain = await runCommand(['version', '--help']);
    assert.ok(!plain.stdout.includes('\u001B['));
    const mistake = await runCommand(['version', '--nonsense']);
    assert.equal(mistake.code, 64);
    assert.doesNotMatch(mistake.stderr, /Examples/);
  });
});

describe('a mistake on the command line', () => {
  it('gets a message with the command to write', async () => {
    for (const [args, said] of [
      [['run', 'Hubfile'], /run takes no argument; name the configuration file with --config/],
      [['--config', 'Hubfile', 'run'], /options follow the command, as in: hubgate run --config/],
      [['history', 'stats', '--x'], /\(see hubgate history stats --help\)/],
      [['help', 'rnu'], /unknown command 'rnu'\n\(Did you mean run\?\)\n\(see hubgate --help\)/],
      [['publish', '--topic', 'a', '--hub', 'localhost:1/hub'], /not a URL that begins with http/],
    ] as const) {
      const { code, stdout, stderr } = await runCommand([...args]);
      assert.deepEqual([code, stdout], [64, ''], args.join(' '));
      assert.match(stderr, said);
    }
  });

  it('help shows the help of nested commands and of itself', async () => {
    const nested = await runCommand(['help', 'token', 'inspect']);
    assert.deepEqual([nested.code, nested.stderr], [0, '']);
    assert.match(nested.stdout, /^Usage: hubgate token inspect /);
    const own = await runCommand(['help', '--help']);
    assert.deepEqual([own.code, own.stderr], [0, '']);
  });

  it('a file that is missing is named, with what to do', async () => {
    const env = { HOME: '/nonexistent' };
    const at = ['--hub', 'https://localhost:1/hub', '--topic', 'a'];
    const authority = await runCommand(['publish', ...at, '--cacert', 'none.pem'], env);
    assert.match(authority.stderr, /^hubgate: Cannot read none\.pem: the file does not exist\n$/);
    for (const command of ['run', 'validate', 'adapt']) {
      const { code, stderr } = await runCommand([command, '--config', 'none/Hubfile'], env);
      assert.equal(code, 1, command);
      assert.match(stderr, /cannot read none\/Hubfile: the file does not exist\n.*hubgate init/);
    }
  });
});

it('hubgate token warns about a secret that is too short for its algorithm', async () => {
  const args = ['token', '--iss', 'https://i.example', '--aud', 'https://h.example/hub'];
  const mint = (key: string) => runCommand([...args, '--publish', 'a', '--key', key]);
  const weak = await mint('short');
  assert.match(weak.stderr, /^Warning: this key has 5 bytes, HS256 needs at least 32\n/);
  assert.match(weak.stdout, /^eyJ/);
  assert.equal((await mint('x'.repeat(32))).stderr, '');
});

describe('the message for a hub that cannot be reached says what to check', () => {
  it('a name below localhost, which is this machine; a port on which nothing listens', async (test) => {
    const server = createServer((_request, response) => response.writeHead(404).end('not here'));
    const port = await listening(test, server);
    const answered = await subscribe(`http://some.name.localhost:${port}/hub`);
    assert.match(answered.stderr, /404/);
    const free = await freePort();
    const refused = await subscribe(`http://a.localhost:${free}/hub`);
    assert.equal(refused.code, 1);
    const expected = `nothing listens on port ${free} of a.localhost; is the gateway running, and is that its port\\?`;
    assert.match(refused.stderr, new RegExp(expected));
  });

  it('a host name that does not exist', async () => {
    const { stderr } = await subscribe('http://no-such-name.invalid/hub');
    assert.match(stderr, /no address found for no-such-name\.invalid; is the name spelled right/);
  });

  it('another service: a page, a redirect, one that does not respond', async (test) => {
    const page = createServer((request, response) => {
      const redirected = request.url?.startsWith('/moved') === true;
      response.writeHead(redirected ? 308 : 200, {
        'content-type': 'text/html',
        ...(redirected ? { location: 'https://localhost:8443/hub' } : {}),
      });
      response.end('<!doctype html>');
    });
    const port = await listening(test, page);
    const published = await runCommand([
      ...['publish', '--hub', `http://localhost:${port}/`, '--topic', 'a'],
    ]);
    assert.deepEqual([published.code, published.stdout], [1, '']);
    assert.match(
      published.stderr,
      /answered with text\/html, which a hub never does; is it the URL/,
    );
    const subscribed = await subscribe(`http://localhost:${port}/`);
    assert.deepEqual([subscribed.code, subscribed.stdout], [1, '']);
    assert.match(subscribed.stderr, /answered with text\/html, which a hub never does/);
    const moved = await subscribe(`http://localhost:${port}/moved`);
    assert.match(moved.stderr, /308: a page — it redirects to https:\/\/localhost:8443\/hub/);
  });

  it('a service that accepts the connection and sends nothing', async (test) => {
    const port = await listening(
      test,
      createTcpServer((socket) => socket.resume()),
    );
    const hub = new URL(`http://a.localhost:${port}/hub`);
    const access = { hub, token: null, caFile: null, insecure: false };
    const { signal } = new AbortController();
    const asked = { method: 'GET', url: hub, headers: {}, body: null, signal } as const;
    await assert.rejects(requestHub(access, { ...asked, timeoutMs: 20 }), {
      code: 'hub-unreachable',
      message: /accepted the connection but sent nothing \(No answer within 0\.02 s\)/,
    });
  });

  it('a name that the DNS does not look up in time', async (test) => {
    test.mock.method(dns, 'lookup', () => {});
    const hub = new URL('http://slow.test/hub');
    const access = { hub, token: null, caFile: null, insecure: false };
    const { signal } = new AbortController();
    const asked = { method: 'GET', url: hub, headers: {}, body: null, signal } as const;
    await assert.rejects(requestHub(access, { ...asked, timeoutMs: 20 }), {
      message: /slow\.test does not answer on port 80; does a firewall block it\?/,
    });
  });

  it('http:// instead of https://, and the reverse', async (test) => {
    const port = await listening(
      test,
      createServer((_request, response) => response.end('plain')),
    );
    const tls = await subscribe(`https://localhost:${port}/hub`);
    assert.match(tls.stderr, /does not speak TLS; does the URL begin with http:\/\/ instead/);
    const silent = createTcpServer((socket) => socket.destroy());
    const closing = await subscribe(`http://localhost:${await listening(test, silent)}/hub`);
    assert.match(closing.stderr, /closed the connection without an HTTP response/);
  });
});

describe('the message for an admin API that cannot be reached says what to check', () => {
  it('a wrong port, a wrong name, another service', async (test) => {
    const other = createServer((_request, response) => response.writeHead(404).end('not here'));
    const port = await listening(test, other);
    const site = createServer((_request, response) => response.end('a page'));
    const page = await listening(test, site);
    const silent = createTcpServer((socket) => socket.destroy());
    const closing = await listening(test, silent);
    const free = await freePort();
    const config = join(root, 'Hubfile.example');
    for (const command of [['stop'], ['top', '--once'], ['reload', '--config', config]]) {
      for (const [address, said] of [
        [`gateway.localhost:${port}`, /status 404\) is not the admin API of hubgate/],
        [`localhost:${page}`, /status 200\) is not the admin API of hubgate/],
        [`gateway.localhost:${free}`, /nothing listens on port \d+ of gateway\.localhost/],
        [`localhost:${closing}`, /closed the connection without an HTTP response/],
        ['no-such-name.invalid:1', /no address found for no-such-name\.invalid/],
      ] as const) {
        const { code, stdout, stderr } = await runCommand([...command, '--address', address], KEYS);
        assert.deepEqual([code, stdout], [1, ''], command[0]);
        assert.match(stderr, said, command[0]);
        assert.match(stderr, /--address/);
      }
    }
  });
});

it('a Hubfile with a mistake does not say where the gateway is, so the message names --address', async (test) => {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-help-'));
  test.after(() => rmSync(directory, { recursive: true }));
  const hubfile = join(directory, 'Hubfile');
  writeFileSync(hubfile, 'localhost {\n\trespnd hi\n}\n');
  for (const command of ['stop', 'top', 'cache stats']) {
    const { code, stderr } = await runCommand([...command.split(' '), '--config', hubfile]);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /does not say where the gateway is; pass its admin address with --address/,
    );
    assert.match(stderr, /Hubfile:2:2: error: unknown directive "respnd"/);
  }
});

describe('--json', () => {
  it('is an option of every command that prints data', async () => {
    for (const command of [
      ...['version', 'environ', 'validate', 'reload', 'top', 'publish', 'subscribe'],
      ...['token inspect', 'list-certificates', 'history stats', 'history compact'],
      'history verify',
    ]) {
      const { stdout } = await runCommand([...command.split(' '), '--help']);
      assert.match(stdout, /^ +--json /m, command);
    }
    const { stdout } = await runCommand(['version', '--json']);
    assert.equal(JSON.parse(stdout).node, process.version);
  });

  it('works for environ and token inspect', async () => {
    const environ = JSON.parse((await runCommand(['environ', '--json'])).stdout) as Record<
      string,
      string
    >;
    assert.equal(environ['node.version'], process.version);
    const secrets = {
      HUB_JWT: 'a',
      DB_PW: 'b',
      UNNAMED: '$2a$12$abc',
      OTHER: 'eyJhbGci',
      PLACE: 'http://u:p@a/',
    };
    const { stdout: shown } = await runCommand(['environ', '--json'], { ...secrets, PLAIN: 'yes' });
    const values = JSON.parse(shown) as Record<string, string>;
    for (const name of Object.keys(secrets)) assert.equal(values[name], '[redacted]', name);
    assert.equal(values['PLAIN'], 'yes');
    const config = join(root, 'Hubfile.example');
    const { code, stdout } = await runCommand(
      [
        ...['token', 'inspect', 'x', '--json', '--config', config],
        ...['--url', 'https://localhost:8443/.well-known/hub'],
      ],
      KEYS,
    );
    assert.equal(code, 1);
    const told = JSON.parse(stdout) as {
      readonly accepted: boolean;
      readonly checks: readonly unknown[];
    };
    assert.equal(told.accepted, false);
    assert.ok(told.checks.length > 0);
  });
});

describe('hubgate completion powershell', () => {
  it('names every command, its options and their choices', async () => {
    const { code, stdout } = await runCommand(['completion', 'powershell']);
    assert.equal(code, 0);
    assert.match(stdout, /^Register-ArgumentCompleter -Native -CommandName hubgate/m);
    assert.match(stdout, /'token inspect' = @\{ Words = @\(.*'--action'/);
    assert.match(stdout, /'--action' = @\('publish', 'subscribe'\)/);
    assert.match(stdout, /\$first = @\('init', 'run', 'validate'/);
    const opened = [...stdout.matchAll(/[{(]/g)].length;
    assert.equal([...stdout.matchAll(/[})]/g)].length, opened);
  });
});
