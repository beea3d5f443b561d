import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, runCommand, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const HUB = (lines: string): string =>
  `	hub {
		issuer https://issuer.example {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		transport lmdb
		cookie_name hub_token
		${lines}
	}
`;

for (const workers of [1, 2]) {
  describe(`hubgate reload --dry-run: ${workers} workers (hubfile.md §6)`, {
    skip: workers > 1 && process.platform !== 'linux',
  }, () => {
    it('lists the affected sites, listeners, streams, histories and certificates, and changes nothing', async (test) => {
      const place = await start(test, workers);
      const { port, gateway, open, anonymous, dryRun, state } = place;
      const streams = [...(await open(3)), ...(await anonymous(2))];
      const before = await state();
      const said = gateway.output.length;
      const [other, secure] = [await freePort(), await freePort()];

      await place.write(`http://127.0.0.1:${port} {\n\tbind 127.0.0.1\n${HUB('')}\trespond new\n}
http://localhost:${other} {\n\tbind 127.0.0.1\n${HUB('')}}
https://new.example.com:${secure} {\n}
https://b.localhost:${secure} {\n\ttls internal\n}
`);
      const first = await dryRun('--json');
      assert.equal(first.code, 0, first.stdout);
      const { warnings, listeners, ...rest } = JSON.parse(first.stdout);
      assert.deepEqual(rest, {
        sites: {
          added: [
            `http://localhost:${other}`,
            `https://new.example.com:${secure}`,
            `https://b.localhost:${secure}`,
          ],
          removed: [`http://127.0.0.1:${place.second}`],
          changed: [`http://127.0.0.1:${port}`],
        },
        streams: [
          {
            hub: `http://127.0.0.1:${port}`,
            count: 2,
            why: 'anonymous access is no longer configured',
          },
        ],
        certificates: [{ name: 'new.example.com', authorities: ['127.0.0.1:1'] }],
        histories_left_behind: [],
        caches_emptied: [`http://127.0.0.1:${port}`],
      });
      assert.deepEqual(listeners, {
        opened: [`http://127.0.0.1:${other}`, `https://*:${secure}`],
        closed: [],
        changed: [],
        handed_over: [{ from: `http://127.0.0.1:${place.second}`, to: `http://*:${place.second}` }],
      });
      assert.ok(Array.isArray(warnings));

      assert.deepEqual(await state(), before);
      assert.ok(streams.every(({ ended }) => !ended));
      await assert.rejects(send(`http://127.0.0.1:${other}/`), { code: 'ECONNREFUSED' });
      assert.equal(gateway.output.slice(said), '', 'nothing is said of what is not done');
      assert.equal((await send(`http://127.0.0.1:${port}/`)).body, 'old');

      const done = await place.reload('--json');
      assert.equal(done.code, 0, done.stderr);
      assert.deepEqual(
        JSON.parse(done.stdout),
        JSON.parse(first.stdout),
        'as the load itself says',
      );
      assert.equal((await send(`http://127.0.0.1:${port}/`)).body, 'new');
    });

    it('counts the streams of a hub that would be removed, and names its history', async (test) => {
      const place = await start(test, workers);
      const streams = [...(await place.open(3)), ...(await place.anonymous(1))];
      await place.write(`http://127.0.0.1:${place.port} {\n\tbind 127.0.0.1\n\trespond old\n}\n`);
      const { code, stdout, stderr } = await place.dryRun();
      assert.equal(code, 0, stderr);
      assert.match(stdout, /^streams end +4 of http:\/\/127\.0\.0\.1:\d+: their hub, /m);
      assert.match(stdout, /^history left behind +http:\/\/127\.0\.0\.1:\d+$/m);
      assert.match(stdout, /^listener closed +http:\/\/127\.0\.0\.1:\d+$/m);
      assert.ok(streams.every(({ ended }) => !ended));
    });

    it('keeps the caches of routes that stay as they are, and names the others', async (test) => {
      const place = await start(test, workers);
      const app = createHttpServer((_request, response) => {
        response.writeHead(200, { 'Cache-Control': 'public, max-age=3600' }).end('hello');
      });
      app.listen(0, '127.0.0.1');
      test.after(() => app.close());
      await once(app, 'listening');
      const address = app.address();
      assert.ok(address !== null && typeof address === 'object');
      const origin = `http://127.0.0.1:${place.port}`;
      const route = (path: string, option: string): string =>
        `handle ${path} {\ncache\nreverse_proxy 127.0.0.1:${address.port} {\n${option}\n}\n}\n`;
      const site = (routes: string): string => `${origin} {\nbind 127.0.0.1\n${routes}}\n`;
      /** How a path was answered, by so many connections that each worker has had some. */
      const states = async (path: string): Promise<string[]> => {
        const found = new Set<string>();
        for (let i = 0; i < 40 * (workers - 1) + 1; i += 1) {
          const { headers } = await send(origin + path, { headers: [['Connection', 'close']] });
          found.add(/hubgate; (hit|fwd)/.exec(String(headers['cache-status']))?.[1] ?? '');
        }
        return [...found].sort();
      };
      await place.write(site(route('/a*', '') + route('/b*', '')));
      assert.equal((await place.reload()).code, 0);
      for (const path of ['/a', '/b']) await states(path);
      await place.write(
        site(route('/new', '') + route('/b*', 'header_up X-New yes') + route('/a*', '')),
      );
      const preview = await place.dryRun();
      assert.match(preview.stdout, /^cache emptied +http:\S+ \/b\*$/m);
      assert.doesNotMatch(preview.stdout, /cache emptied.*\/a/);
      assert.equal((await place.reload()).code, 0);
      assert.deepEqual(await states('/a'), ['hit']);
      assert.equal((await states('/b'))[0], 'fwd');
      await place.write(site(route('/a*', 'header_up X-New yes')));
      assert.equal((await place.reload()).code, 0);
      assert.equal((await states('/a'))[0], 'fwd', 'a changed upstream');
      const flat = (neighbour: string, own: string): string =>
        site(`cache /a*\nreverse_proxy /a* 127.0.0.1:${address.port} {\n${own}\n}\n${neighbour}\n`);
      await place.write(flat('respond /c old', ''));
      assert.equal((await place.reload()).code, 0);
      await states('/a');
      await place.write(flat('respond /c new', ''));
      assert.doesNotMatch((await place.dryRun()).stdout, /cache emptied/);
      assert.equal((await place.reload()).code, 0);
      assert.deepEqual(await states('/a'), ['hit'], 'a changed neighbour without a block');
      await place.write(flat('respond /c new', 'header_up X-New yes'));
      assert.match((await place.dryRun()).stdout, /^cache emptied/m);
    });

    it('says when nothing would change, and why the configuration would be rejected', async (test) => {
      const place = await start(test, workers);
      const same = await place.dryRun();
      assert.equal(same.code, 0, same.stderr);
      assert.match(same.stdout, /would change no site, listener, stream or certificate/);
      const copy = await place.dryRun(
        '--config',
        await place.copy('grace_period 1s', 'grace_period 2s'),
      );
      assert.match(copy.stdout, /would change no site, listener, stream or certificate/);
      const more = await place.copy(`workers ${workers}`, 'workers 3');
      const later = new RegExp(`workers changes from ${workers} to 3 at the next start`);
      for (const args of [['--dry-run'], []]) {
        const { code, stderr } = await place.reload('--config', more, ...args);
        assert.equal(code, 0, stderr);
        assert.match(stderr, later);
      }

      const taken = createServer().listen(0, '127.0.0.1');
      test.after(() => taken.close());
      await new Promise((resolve) => taken.once('listening', resolve));
      const address = taken.address();
      assert.ok(address !== null && typeof address === 'object');
      await place.write(`http://127.0.0.1:${address.port} {\n\tbind 127.0.0.1\n\trespond new\n}\n`);
      const refused = await place.dryRun();
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, new RegExp(`${address.port}`));
      await place.write('http://127.0.0.1:1 {\n\trespnd new\n}\n');
      assert.equal((await place.dryRun('--json')).code, 1);
      const error = await send(`http://localhost:${place.admin}/config/last-error`);
      assert.equal(error.status, 404, 'no load has failed');
    });
  });
}

async function start(test: TestContext, workers: number) {
  const directory = await temporaryDirectory(test);
  const file = join(directory, 'Hubfile');
  const storage = join(directory, 'storage');
  const [port, second, admin] = [await freePort(), await freePort(), await freePort()];
  const options = `{
	workers ${workers}
	admin localhost:${admin}
	storage ${storage}
	auto_https disable_redirects
	http_port ${second}
	acme_ca https://127.0.0.1:1/directory
	grace_period 1s
}
`;
  const sites = `http://127.0.0.1:${port} {
	bind 127.0.0.1
${HUB('anonymous')}	cache
	respond old
}
http://127.0.0.1:${second} {
	bind 127.0.0.1
	respond second
}
`;
  await writeFile(file, options + sites);
  const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await gateway.says('Admin API on');
  const hub = `http://127.0.0.1:${port}/.well-known/hub`;
  const stream = async (headers: readonly (readonly [string, string])[]): Promise<Stream> => {
    const opened = await openStream(test, `${hub}?match=news`, { headers });
    assert.equal(opened.status, 200, opened.text);
    return opened;
  };
  const token = await signToken(KEY, {
    ...{ iss: 'https://issuer.example', aud: hub, jti: 'a' },
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['subscribe'],
        topics: [{ match: 'news' }],
      },
    ],
  });
  const several = async (count: number, headers: readonly (readonly [string, string])[]) => {
    const streams: Stream[] = [];
    for (let i = 0; i < count; i += 1) streams.push(await stream(headers));
    return streams;
  };
  return {
    ...{ port, second, admin, gateway },
    open: (count: number) => several(count, [['Authorization', `Bearer ${token}`]]),
    anonymous: (count: number) => several(count, []),

    write: (text: string) => writeFile(file, options + text),
    /** The path of a copy under another name, in which one option differs. */
    async copy(before: string, after: string) {
      const path = join(directory, 'Hubfile.new');
      await writeFile(path, (options + sites).replace(before, after));
      return path;
    },
    reload: (...args: string[]) => runCommand(['reload', '--config', file, ...args]),
    dryRun: (...args: string[]) => runCommand(['reload', '--dry-run', '--config', file, ...args]),
    /** What can be seen of the gateway from outside. */
    async state() {
      const api = `http://localhost:${admin}`;
      const metrics = (await send(`${api}/metrics`)).body.split('\n');
      return {
        config: (await send(`${api}/config`)).body,
        error: (await send(`${api}/config/last-error`)).status,
        loads: metrics.filter((line) => /config|reload|subscribers/.test(line)),
        storage: (await readdir(storage, { recursive: true })).sort(),
      };
    },
  };
}
