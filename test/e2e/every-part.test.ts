import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { sourcesOf } from '../support/built-sources.ts';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, packageDirectory, root } from '../support/installed-package.ts';
import { hasPebble, startPebble } from '../support/pebble.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { commandOf, startProcess, type TestProcess } from '../support/process.ts';
import { startRedis } from '../support/redis-server.ts';
import { WebSocket, WebSocketServer } from 'ws';

/*
 * Every file of the packed program is loaded and used here, through the program. V8 writes down which
 * files each process has loaded. A file that no test below loads fails the last test.
 */

const KEY = 'a-secret-of-the-test-that-is-long-enough';
const dist = join(packageDirectory, 'dist');
/** What programs and browsers load of the package; the library has tests of its own. */
const NOT_OF_THE_PROGRAM = /^(?:index|hub|client\.min|client\/.*|debugger\/.*)\.js$/;

let coverage = '';
let place = '';
let environment: NodeJS.ProcessEnv = {};

before(async () => {
  place = await mkdtemp(join(tmpdir(), 'hubgate-parts-'));
  coverage = join(place, 'coverage');
  const home = join(place, 'home');
  await mkdir(home);
  environment = {
    PATH: process.env['PATH'],
    HOME: home,
    NODE_V8_COVERAGE: coverage,
    NO_COLOR: '1',
  };
});

after(() => rm(place, { recursive: true, force: true }));

describe('every part of the packed program works', () => {
  it('commands that need no gateway', async () => {
    const site = `localhost:${await freePort()}`;
    const init = ['--site', site, '--upstream', 'localhost:3000', '--yes'];
    const hubfile = join(place, 'written', 'Hubfile');
    await mkdir(join(place, 'written'));
    await command(['init', ...init, '--output', hubfile]);
    const written = ['--config', hubfile, '--envfile', join(place, 'written', envFileOf(hubfile))];
    await command(['validate', ...written]);
    assert.match(await command(['adapt', ...written]), /"sites"/);
    await command(['fmt', hubfile]);
    const { version } = JSON.parse(readFileSync(join(packageDirectory, 'package.json'), 'utf8'));
    assert.ok((await command(['version'])).includes(version));
    assert.ok((await command(['environ'])).includes(version));
    assert.match(await command(['completion', 'bash']), /complete/);
    const [, key = ''] =
      /^HUB_PUBLISHER_JWT_KEY="?([^"\n]+)/m.exec(readFileSync(written[3] ?? '', 'utf8')) ?? [];
    const origin = `https://${site}`;
    const pair = ['--iss', origin, '--aud', `${origin}/.well-known/hub`, '--key', key];
    const token = (await command(['token', ...pair, '--publish', '*'])).trim();
    assert.match(
      await command(['token', 'inspect', '--action', 'publish', ...written, token]),
      /publish everything/,
    );
    assert.match(await command(['trust', '--print', ...written]), /authority|certutil|root\.crt/);
    assert.match(await command(['untrust', ...written]), /has no authority/);
  });

  it('a gateway with workers, a stored history, passwords, live pages, and all commands that query it', async (test) => {
    const hashes = {
      bcrypt: await hashOf('bcrypt'),
      argon2id: await hashOf('argon2id'),
    };
    const [port, admin] = [await freePort(), await freePort()];
    const origin = `http://localhost:${port}`;
    const app = await appWith(test, '<!doctype html><title>Page</title><p>hello');
    await mkdir(join(place, 'files'));
    writeFileSync(join(place, 'files', 'a.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>');
    const config = join(place, 'Hubfile');
    const issuer = `issuer https://issuer.example {
			publisher {
				jwt ${KEY}
			}
			subscriber {
				jwt ${KEY}
			}
		}
		anonymous`;
    writeFileSync(
      config,
      `{
	admin 127.0.0.1:${admin}
	storage ${place}/storage
	grace_period 1s
	workers 2
}
${origin} {
	hub {
		${issuer}
		debugger
		transport lmdb {
			path ${place}/history
		}
	}
	discovery {
		changes public
		live
	}
	basic_auth /bcrypt {
		ada ${hashes.bcrypt}
	}
	basic_auth /argon2id {
		ada ${hashes.argon2id}
	}
	respond /bcrypt in
	respond /argon2id in
	handle_path /files/* {
		root ${place}/files
		file_server
	}
	reverse_proxy 127.0.0.1:${app}
}
`,
    );
    const gateway = await run(test, config);
    const { body: page } = await send(`${origin}/`, { headers: [['Accept', 'text/html']] });
    const [, script = ''] = /src="([^"]*live[^"]*)"/.exec(page) ?? [];
    assert.equal((await send(origin + script)).body, builtText('client/live/live.js'));
    const { body: debug } = await send(`${origin}/.well-known/hub/debug/`);
    const scripts = [...debug.matchAll(/src="([^"]+)"/g)].map(([, source = '']) => source);
    const served = await Promise.all(
      scripts.map(
        async (source) =>
          (await send(new URL(source, `${origin}/.well-known/hub/debug/`).href)).body,
      ),
    );
    assert.ok(served.includes(builtText('debugger/debugger.js')));
    const { headers } = await send(`${origin}/files/a.svg`);
    assert.equal(headers['content-type'], 'image/svg+xml');
    for (const path of ['/bcrypt', '/argon2id']) {
      const authorization = `Basic ${Buffer.from('ada:a password').toString('base64')}`;
      assert.equal((await send(origin + path)).status, 401);
      const allowed = await send(origin + path, { headers: [['Authorization', authorization]] });
      assert.equal(allowed.body, 'in', path);
    }

    const hub = `${origin}/.well-known/hub`;
    const token = await tokenFor(hub);
    const stream = await openStream(test, `${hub}?match=news`);
    await command(['publish', '--hub', hub, '--token', token, '--topic', 'news', '--data', 'one']);
    await stream.until(({ text }) => text.includes('data: one'));
    const seen = ['--match', 'news', '--last-event-id', 'earliest', '--count', '1'];
    assert.match(await command(['subscribe', '--hub', hub, '--token', token, ...seen]), /one/);
    const { body: metrics } = await send(`http://127.0.0.1:${admin}/metrics`);
    assert.match(metrics, /^hubgate_/m);
    assert.match(await command(['top', '--once', '--json', '--config', config]), /"hubs"/);
    assert.match(await command(['top', '--once', '--interval', '1', '--config', config]), /hub/i);
    await command(['list-certificates', '--json', '--config', config]);
    assert.match(await command(['history', 'stats', '--config', config]), /1/);
    await command(['reload', '--config', config]);
    await command(['stop', '--config', config]);
    assert.equal(await gateway.exited(), 0);
  });

  it('libraries that few configurations need', async (test) => {
    const port = await freePort();
    const origin = `http://localhost:${port}`;
    const config = join(place, 'libraries.Hubfile');
    writeFileSync(
      config,
      `{
	admin off
	storage ${place}/storage
	grace_period 1s
}
${origin} {
	hub {
		issuer https://issuer.example {
			publisher {
				jwt ${KEY}
			}
		}
		anonymous
		cookie_name hub_token
		transport memory
		protocol_version_compatibility 8 {
			topics
			templates
		}
	}
	@get expression method('GET') && path('/cel')
	respond @get "an expression"
	@word path_regexp ^/w(or)d$
	respond @word "{re.1}"
}
`,
    );
    const yaml = join(place, 'libraries.yaml');
    const output = ['--to', 'yaml', '--show-secrets', '--output', yaml];
    await command(['adapt', '--config', config, ...output]);
    await command(['validate', '--config', yaml, '--adapter', 'yaml']);
    const gateway = await run(test, config);
    assert.equal((await send(`${origin}/cel`)).body, 'an expression');
    assert.equal((await send(`${origin}/word`)).body, 'or');
    for (const match of [
      'match_urlpattern=https://a.example/*',
      'topic=https://a.example/%7Bid%7D',
    ]) {
      const url = `${origin}/.well-known/hub?${match}`;
      assert.equal((await send(url, { method: 'HEAD' })).status, 200, match);
    }
    assert.equal(await gateway.end('SIGTERM'), 0);
    const discovery = 'discovery {\n\t\tcookie {\n\t\t\tdomain co.uk\n\t\t}\n\t}\n\t@word';
    writeFileSync(config, readFileSync(config, 'utf8').replace('@word', discovery));
    await assert.rejects(command(['validate', '--config', config]), /no cookie for all of co\.uk/);
  });

  it('a gateway without a configuration, with a history in memory', async (test) => {
    const app = await appWith(test, 'hello');
    const port = await freePort();
    const flags = ['--dev', '--from', `localhost:${port}`, '--to', `localhost:${app}`];
    const gateway = start(test, ['reverse-proxy', ...flags]);
    await gateway.says(`localhost:${port}`);
    await gateway.says('Listening on');
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('a WebSocket of the app', async (test) => {
    const app = new WebSocketServer({ host: '127.0.0.1', port: 0 });
    test.after(() => app.close());
    await once(app, 'listening');
    app.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    // A server that listens on a port has an address with that port.
    const { port: upstream } = app.address() as AddressInfo;
    const port = await freePort();
    const config = join(place, 'websocket.Hubfile');
    writeFileSync(config, `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${upstream}\n}\n`);
    const gateway = await run(test, config);
    const socket = new WebSocket(`ws://localhost:${port}/`);
    await once(socket, 'open');
    socket.send('echo');
    const [data] = await once(socket, 'message');
    assert.equal(String(data), 'echo');
    socket.close();
    await once(socket, 'close');
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('a history in Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const port = await freePort();
    const config = join(place, 'redis.Hubfile');
    writeFileSync(
      config,
      hubOn(port, `transport redis {\n\t\t\turl ${redis.url}\n\t\t\tstream test\n\t\t}`),
    );
    const gateway = await run(test, config);
    await publishesTo(test, `http://localhost:${port}/.well-known/hub`);
    assert.match(await command(['history', 'stats', '--config', config]), /1/);
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('a history in PostgreSQL', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const port = await freePort();
    const config = join(place, 'postgres.Hubfile');
    const history = `transport postgres {\n\t\t\turl ${postgres.url}\n\t\t}`;
    writeFileSync(config, hubOn(port, `${history}\n\t\toutbox ${postgres.url}`));
    await postgres.query(await command(['outbox', 'sql']));
    assert.match(await command(['history', 'init', '--config', config]), /CREATE SCHEMA/);
    const gateway = await run(test, config);
    await publishesTo(test, `http://localhost:${port}/.well-known/hub`);
    assert.match(await command(['history', 'stats', '--config', config]), /1/);
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('tokens of 0.x under the condition deprecated_claim', async (test) => {
    const port = await freePort();
    const config = join(place, 'legacy.Hubfile');
    writeFileSync(config, hubOn(port, 'transport memory', 'protocol_version_compatibility 8'));
    const gateway = startProcess(
      test,
      ['--conditions=deprecated_claim', cli, 'run', '--config', config, '--adapter', 'hubfile'],
      environment,
    );
    await gateway.says('"deprecated_claim":"on"');
    assert.equal(await gateway.end('SIGTERM'), 0);
  });

  it('certificates by ACME: over HTTP, over TLS and over DNS', async (test) => {
    if (!hasPebble(test)) return;
    for (const [name, challenge] of [
      ['a.example.com', 'disable_tlsalpn_challenge'],
      ['b.example.com', 'disable_http_challenge'],
      ['*.example.com', 'dns'],
    ] as const) {
      const [httpPort, httpsPort] = [await freePort(), await freePort()];
      const pebble = await startPebble(test, { httpPort, httpsPort });
      const records = join(place, 'set-record.sh');
      writeFileSync(records, SET_RECORD, { mode: 0o755 });
      const issuer =
        challenge === 'dns'
          ? `dns exec ${records} {\n\t\t\tenv RECORDS ${pebble.records}\n\t\t}\n\t\tresolvers ${pebble.nameServer}`
          : `issuer acme ${pebble.directory} {\n\t\t\ttrusted_roots ${pebble.rootFile}\n\t\t\t${challenge}\n\t\t}`;
      const config = join(place, 'acme.Hubfile');
      writeFileSync(
        config,
        `{
	admin off
	storage ${place}/${challenge}
	http_port ${httpPort}
	https_port ${httpsPort}
	acme_ca ${pebble.directory}
	acme_ca_root ${pebble.rootFile}
}
${name} {
	tls {
		${issuer}
	}
	respond hello
}
`,
      );
      const gateway = await run(test, config);
      await gateway.says('Certificate obtained');
      assert.equal(await gateway.end('SIGTERM'), 0);
    }
  });

  it('every file of it is used', async (test) => {
    // The executable uses copies of these files, in a folder of its own.
    if (process.env['HUBGATE_EXECUTABLE'] !== undefined) return test.skip('not of the executable');
    const loaded = new Set(
      readdirSync(coverage).flatMap((name) => {
        const { result } = JSON.parse(readFileSync(join(coverage, name), 'utf8')) as {
          readonly result: readonly { readonly url: string }[];
        };
        return result
          .filter(({ url }) => url.startsWith('file:'))
          .map(({ url }) => fileURLToPath(url));
      }),
    );
    const files = readdirSync(dist, { recursive: true })
      .map(String)
      .filter((name) => /\.c?js$/.test(name) && !NOT_OF_THE_PROGRAM.test(name));
    assert.ok(files.length > 50, `${files.length} files`);
    const left = files.filter((name) => !loaded.has(join(dist, name)));
    const described = left.map(async (name) => [name, await sourcesOf(join(root, 'dist', name))]);
    assert.deepEqual(await Promise.all(described), []);
  });
});

/** Gives pebble's name server the record that the challenge asks for. */
const SET_RECORD = `#!/bin/sh
[ "$HUBGATE_DNS_ACTION" = present ] && call=set-txt || call=clear-txt
exec curl -sS -d "{\\"host\\": \\"$HUBGATE_DNS_NAME.\\", \\"value\\": \\"$HUBGATE_DNS_VALUE\\"}" "$RECORDS/$call"
`;

function start(test: TestContext, args: readonly string[]): TestProcess {
  return startProcess(test, [cli, ...args], environment);
}

async function run(test: TestContext, config: string): Promise<TestProcess> {
  const gateway = start(test, ['run', '--no-watch', '--config', config, '--adapter', 'hubfile']);
  await gateway.says('Listening on');
  return gateway;
}

/** What a command prints; it must succeed. */
async function command(args: readonly string[], input = ''): Promise<string> {
  const [program, given] = commandOf([cli, ...args]);
  const child = spawn(program, given, {
    // A storage that is relative must not be one that somebody has left in the checkout.
    cwd: place,
    env: environment,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.end(input);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  assert.equal(code, 0, `hubgate ${args.join(' ')}\n${output}`);
  return output;
}

async function hashOf(algorithm: string): Promise<string> {
  return (await command(['hash-password', '--algorithm', algorithm], 'a password\n')).trim();
}

function envFileOf(hubfile: string): string {
  const names = readdirSync(join(hubfile, '..')).filter((name) => name !== 'Hubfile');
  assert.equal(names.length, 1);
  return names[0] ?? '';
}

function builtText(name: string): string {
  const file = join(dist, name);
  assert.ok(existsSync(file), name);
  return readFileSync(file, 'utf8');
}

async function appWith(test: TestContext, body: string): Promise<number> {
  const app = createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html').end(body);
  });
  const port = await freePort();
  await new Promise<void>((resolve) => app.listen(port, '127.0.0.1', resolve));
  test.after(() => void app.close());
  return port;
}

function hubOn(port: number, ...lines: readonly string[]): string {
  return `{
	admin off
	storage ${place}/storage
	grace_period 1s
}
http://localhost:${port} {
	hub {
		issuer https://issuer.example {
			publisher {
				jwt ${KEY}
			}
		}
		anonymous
		${lines.join('\n\t\t')}
	}
}
`;
}

function tokenFor(hub: string): Promise<string> {
  const detail = {
    type: 'urn:hub:authorization-detail',
    actions: ['publish'],
    topics: [{ match: '*' }],
  };
  return signToken(KEY, {
    iss: 'https://issuer.example',
    aud: hub,
    authorization_details: [detail],
  });
}

async function publishesTo(test: TestContext, hub: string): Promise<void> {
  const stream = await openStream(test, `${hub}?match=news`);
  const token = await tokenFor(hub);
  await command(['publish', '--hub', hub, '--token', token, '--topic', 'news', '--data', 'one']);
  await stream.until(({ text }) => text.includes('data: one'));
}
