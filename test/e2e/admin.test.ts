import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { askHealth, openStream, send } from '../support/http.ts';
import { cli, runCommand, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEY = 'a-secret-of-the-test-that-is-long-enough';

interface Running {
  readonly directory: string;
  readonly file: string;
  readonly address: string;
  readonly admin: string;
  readonly site: string;
  readonly process: TestProcess;
  /** A Hubfile with this admin option and these directives. */
  hubfile(directives: string, admin?: string): string;
}

async function start(
  test: TestContext,
  directives = 'respond first',
  gracePeriod = '1s',
): Promise<Running> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-admin-'));
  removeWith(test, directory);
  const [adminPort, port] = [await freePort(), await freePort()];
  const address = `127.0.0.1:${adminPort}`;
  const site = `http://localhost:${port}`;
  const hubfile = (lines: string, admin = address): string =>
    `{\n\tadmin ${admin}\n\tstorage ${directory}/storage\n\tgrace_period ${gracePeriod}\n}\n${site} {\n\t${lines}\n}\n`;
  const file = join(directory, 'Hubfile');
  await writeFile(file, hubfile(directives));
  const running = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await running.says('Admin API on');
  const admin = `http://${address}`;
  return { directory, file, address, admin, site, process: running, hubfile };
}

const hub = (more = ''): string =>
  `hub {\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\ttransport memory\n\t\t${more}\n\t}\n\trespond site`;

const post = (url: string, body: string, type: string) =>
  send(url, { method: 'POST', body, headers: [['Content-Type', type]] });

describe('the admin API (hubfile.md §6)', () => {
  it('shows the configuration with its defaults and without secrets', async (test) => {
    const { admin } = await start(test, hub());
    const { status, body, headers } = await send(`${admin}/config`);
    assert.equal(status, 200);
    assert.equal(headers['cache-control'], 'no-store');
    const config = JSON.parse(body);
    assert.equal(config.options.httpsPort, 443);
    assert.equal(config.sites[0].hub.issuers[0].publisher.key, '[redacted]');
    assert.equal(body.includes(KEY), false);
  });

  it('also accepts the names in `origins`, and mentions that option when it refuses a request', async (test) => {
    const { file, hubfile, address, admin, process } = await start(test);
    const named = { headers: [['Host', 'Hubgate:2029']] } as const;
    const refused = await send(`${admin}/metrics`, named);
    assert.equal(refused.status, 403);
    assert.match(refused.body, /does not have the name .*Hubgate:2029.*origins/);
    const metrics = await freePort();
    const options = `${address} {\n\t\torigins hubgate gateway:1\n\t}\n\tmetrics 127.0.0.1:${metrics}`;
    await writeFile(file, hubfile('respond first', options));
    process.child.kill('SIGHUP');
    await process.says('Configuration reloaded');
    assert.equal((await send(`${admin}/metrics`, named)).status, 200);
    for (const [host, status] of [
      ['gateway:1', 200],
      ['gateway:2', 403],
      ['evil.example', 403],
    ] as const) {
      const { status: answered } = await send(`${admin}/config`, { headers: [['Host', host]] });
      assert.equal(answered, status, host);
    }

    const watching = `http://127.0.0.1:${metrics}`;
    const foreign = { headers: [['Host', 'prometheus.example']] } as const;
    assert.match((await send(`${watching}/metrics`, foreign)).body, /^# HELP/);
    assert.equal((await askHealth(`${watching}/hub/health/ready`, foreign)).status, 200);
    for (const path of ['/config', '/config/last-error', '/load', '/stop', '/hub/revoke?jti=a']) {
      for (const method of ['GET', 'POST']) {
        assert.equal((await send(watching + path, { method })).status, 404, path);
      }
    }
  });

  it('has a listener for metrics on all interfaces, unless its address names one', async (test) => {
    const { file, hubfile, address, admin, process } = await start(test);
    const port = await freePort();
    const listen = async (metrics: string) => {
      await writeFile(file, hubfile('respond first', `${address}\n\tmetrics ${metrics}`));
      process.child.kill('SIGHUP');
    };
    const preview = await send(`${admin}/load/dry-run`, {
      method: 'POST',
      headers: [['Content-Type', 'text/hubfile']],
      body: hubfile('respond first', `${address}\n\tmetrics :${port}`),
    });
    assert.deepEqual(JSON.parse(preview.body).listeners.opened, [`metrics :${port}`]);
    await listen(`:${port}`);
    await process.says('Configuration reloaded');
    // Linux has all of 127.0.0.0/8, but `localhost` does not mean this one.
    for (const host of ['127.0.0.1', '127.0.0.2']) {
      assert.equal((await send(`http://${host}:${port}/health/ready`)).status, 200, host);
    }
    await listen(`127.0.0.1:${port}`);
    await process.says('Configuration reloaded', process.output.length);
    assert.equal((await send(`http://127.0.0.1:${port}/health/ready`)).status, 200);
    await assert.rejects(send(`http://127.0.0.2:${port}/health/ready`), { code: 'ECONNREFUSED' });
  });

  it('accepts IP addresses but no host names when it listens on all interfaces', async (test) => {
    const { address, file, hubfile, process, admin } = await start(test);
    await writeFile(file, hubfile('respond first', `0.0.0.0:${address.split(':')[1]}`));
    process.child.kill('SIGHUP');
    await process.says('Configuration reloaded');
    for (const [host, status] of [
      ['192.0.2.1:2029', 200],
      ['[2001:db8::1]', 200],
      ['localhost', 200],
      ['evil.example', 403],
      ['0x7f.1', 403],
    ] as const) {
      const answer = await send(`${admin}/config`, { headers: [['Host', host]] });
      assert.equal(answer.status, status, host);
    }
  });

  it('refuses other names, other origins and other sites', async (test) => {
    const { admin, address } = await start(test);
    for (const headers of [
      [['Host', 'evil.example']],
      [['Host', 'evil.example:80']],
      [['Origin', 'http://localhost:3000']],
      [['Origin', 'null']],
      [['Sec-Fetch-Site', 'cross-site']],
      [['Sec-Fetch-Site', 'same-site']],
    ] as const) {
      for (const [method, path] of [
        ['GET', '/config'],
        ['POST', '/stop'],
      ] as const) {
        const { status } = await send(admin + path, { method, headers });
        assert.equal(status, 403, headers.join());
      }
    }
    for (const headers of [
      [['Origin', `http://${address}`]],
      [['Host', 'localhost:80']],
      [['Sec-Fetch-Site', 'same-origin']],
    ] as const) {
      assert.equal((await send(`${admin}/config`, { headers })).status, 200, headers.join());
    }
  });

  it('loads a Hubfile, YAML and JSON, and keeps the old configuration if the new one is rejected', async (test) => {
    const { admin, site, directory, hubfile, address } = await start(test);
    const body = async (): Promise<string> => (await send(site)).body;
    assert.equal(
      (await post(`${admin}/load`, hubfile('respond second'), 'text/hubfile')).status,
      200,
    );
    assert.equal(await body(), 'second');
    const port = Number(new URL(site).port);
    const data = (text: string): string =>
      JSON.stringify({
        options: {
          admin: { host: '127.0.0.1', port: Number(address.split(':')[1]) },
          storage: `${directory}/storage`,
          gracePeriodMs: 1000,
        },
        sites: [
          {
            addresses: [{ scheme: 'http', host: 'localhost', port }],
            routes: [{ handler: { kind: 'respond', body: text } }],
          },
        ],
      });
    assert.equal((await post(`${admin}/load`, data('third'), 'application/json')).status, 200);
    assert.equal(await body(), 'third');
    // JSON is YAML.
    assert.equal(
      (await post(`${admin}/load`, data('fourth'), 'application/yaml; charset=utf-8')).status,
      200,
    );
    assert.equal(await body(), 'fourth');
    assert.equal((await send(`${admin}/config/last-error`)).status, 404);

    const refused = await post(`${admin}/load`, hubfile('nonsense'), 'text/hubfile');
    assert.equal(refused.status, 400);
    const [problem] = JSON.parse(refused.body);
    assert.deepEqual(
      [problem.severity, problem.code, problem.line, problem.column],
      ['error', 'unknown-directive', 7, 2],
    );
    assert.match(problem.text, /7:2: error: .*\n {4}nonsense\n {4}\^{8}/);
    assert.equal(await body(), 'fourth');
    const last = await send(`${admin}/config/last-error`);
    assert.equal(last.status, 200);
    assert.deepEqual(JSON.parse(last.body), JSON.parse(refused.body));
    assert.equal(
      (await post(`${admin}/load`, hubfile('respond fifth'), 'text/hubfile')).status,
      200,
    );
    assert.equal((await send(`${admin}/config/last-error`)).status, 404);
  });

  it('refuses a request that does not carry a configuration: 415, 413, 405, 404', async (test) => {
    const { admin, hubfile } = await start(test);
    assert.equal((await post(`${admin}/load`, hubfile('respond x'), 'text/plain')).status, 415);
    const large = '#'.repeat(4 * 1024 * 1024 + 1);
    assert.equal((await post(`${admin}/load`, large, 'text/hubfile')).status, 413);
    assert.equal((await send(`${admin}/load`)).status, 405);
    assert.equal((await send(`${admin}/nothing`)).status, 404);
    assert.equal((await send(`${admin}/constructor`)).status, 404);
  });

  it('moves when its address changes, and stays where it is when the new one is in use', async (test) => {
    const { admin, hubfile } = await start(test);
    const other = await start(test);
    const taken = await post(`${admin}/load`, hubfile('respond x', other.address), 'text/hubfile');
    assert.equal(taken.status, 400);
    assert.match(taken.body, /another hubgate/);
    assert.equal((await send(`${admin}/config`)).status, 200);
    const moved = `127.0.0.1:${await freePort()}`;
    assert.equal(
      (await post(`${admin}/load`, hubfile('respond x', moved), 'text/hubfile')).status,
      200,
    );
    assert.equal((await send(`http://${moved}/config`)).status, 200);
    await assert.rejects(send(`${admin}/config`));
  });

  it('stays where it is when the rest of the configuration cannot be served', async (test) => {
    const { admin, file, hubfile, process } = await start(test);
    const [next, other] = [await freePort(), await start(test)];
    const taken = new URL(other.site).port;
    await writeFile(
      file,
      `${hubfile('respond x', `127.0.0.1:${next}`)}http://localhost:${taken} {\n}\n`,
    );
    process.child.kill('SIGHUP');
    await process.says('the old one keeps serving');
    assert.equal((await send(`${admin}/config/last-error`)).status, 200);
    await assert.rejects(send(`http://127.0.0.1:${next}/config`), { code: 'ECONNREFUSED' });
  });

  it('makes run fail with a reason when the address is in use', async (test) => {
    const { directory, file } = await start(test);
    const { code, stderr } = await runCommand(['run', '--config', file]);
    assert.equal(code, 1);
    assert.match(stderr, /Cannot open the admin API on port \d+ of 127\.0\.0\.1[^]*admin off/);
    assert.ok(directory);
  });

  it('K-594 K-595 K-597: reports the health of all hubs and of each', async (test) => {
    const { admin } = await start(test, hub('name news'));
    for (const path of ['ready', 'live', 'news/ready', 'news/live', 'news/ready/', 'ready/']) {
      const { status, body, headers } = await askHealth(`${admin}/hub/health/${path}`);
      assert.equal(status, 200, path);
      assert.equal(headers['content-type'], 'application/json');
      assert.deepEqual(JSON.parse(body), { status: 'ok' });
    }
    for (const path of ['default/ready', 'nope/live', 'news/else', 'news', '']) {
      assert.equal((await send(`${admin}/hub/health/${path}`)).status, 404, path);
    }
    assert.equal((await send(`${admin}/hub/health/ready`, { method: 'POST' })).status, 405);
  });

  it('K-598 K-599 K-600: counts subscribers and updates', async (test) => {
    const { admin, site, process: running } = await start(test, hub());
    const metric = async (name: string): Promise<number> => {
      const { body } = await send(`${admin}/metrics`);
      const line = new RegExp(`^${name}\\{hub="default"\\} (\\d+)$`, 'm').exec(body);
      return Number(line?.[1]);
    };
    const url = `${site}/.well-known/hub`;
    const stream = await openStream(test, `${url}?match=a`);
    assert.equal(await metric('hub_subscribers_connected'), 1);
    const { stdout } = await runCommand([
      ...['token', '--iss', 'https://i.example', '--aud', url, '--key', KEY, '--publish', 'a'],
    ]);
    const publish = async (token: string): Promise<number> =>
      (
        await send(url, {
          method: 'POST',
          body: 'topic=a&id=one',
          headers: [
            ['Content-Type', 'application/x-www-form-urlencoded'],
            ['Authorization', `Bearer ${token}`],
          ],
        })
      ).status;
    assert.equal(await publish(stdout.trim()), 200);
    assert.equal(await publish('nonsense'), 401);
    await stream.untilId('one');
    assert.equal(await metric('hub_updates_total'), 1);
    stream.close();
    while ((await metric('hub_subscribers_connected')) !== 0);
    assert.equal(await metric('hub_subscribers_total'), 1);
    const { body, headers } = await send(`${admin}/metrics`);
    assert.match(String(headers['content-type']), /^text\/plain; version=0\.0\.4/);
    assert.match(body, /^hubgate_config_last_load_successful 1$/m);
    assert.match(body, /^process_resident_memory_bytes \d+$/m);
    assert.equal(running.child.exitCode, null);
  });

  it('closes the streams of a token that is revoked', async (test) => {
    const { admin, site } = await start(
      test,
      hub().replace('publisher {', `subscriber {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t\tpublisher {`),
    );
    const url = `${site}/.well-known/hub`;
    const { stdout } = await runCommand([
      ...['token', '--iss', 'https://i.example', '--aud', url, '--key', KEY, '--subscribe', 'a'],
    ]);
    const token = stdout.trim();
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());
    const stream = await openStream(test, `${url}?match=a`, {
      headers: [['Authorization', `Bearer ${token}`]],
    });
    const other = await openStream(test, `${url}?match=a`);
    const revoke = (query: string) => send(`${admin}/hub/revoke${query}`, { method: 'POST' });
    assert.equal((await revoke('')).status, 400);
    assert.equal((await revoke('?jti=unknown')).body.trim(), '{"ended":0}');
    assert.equal((await revoke(`?jti=${claims.jti}`)).body.trim(), '{"ended":1}');
    await stream.untilEnd();
    assert.equal(other.ended, false);
  });
});

describe('hubgate reload and stop', () => {
  it('reload loads a file with its imports, or prints the reason and fails', async (test) => {
    const { directory, file, address, site, hubfile } = await start(test);
    await writeFile(join(directory, 'part'), 'respond imported\n');
    await writeFile(file, hubfile('import part'));
    const done = await runCommand(['reload', '--config', file, '--address', address]);
    const said = `The gateway on ${address} has loaded ${file}\n`;
    assert.deepEqual([done.code, done.stderr], [0, said]);
    assert.match(done.stdout, /^site changed +http:\/\/\S+\n$/);
    const again = await runCommand(['reload', '--config', file, '--address', address]);
    assert.match(again.stdout, /^It changed no site, listener, stream or certificate/);
    const data = await runCommand(['reload', '--json', '--config', file, '--address', address]);
    assert.deepEqual(JSON.parse(data.stdout).sites, { added: [], removed: [], changed: [] });
    assert.equal((await send(site)).body, 'imported');
    await writeFile(file, hubfile('respnd x'));
    const { code, stderr } = await runCommand(['reload', '--config', file, '--address', address]);
    assert.equal(code, 1);
    assert.match(stderr, /Hubfile:7:2: error: unknown directive[^]*did you mean `respond`\?/);
    assert.equal((await send(site)).body, 'imported');
  });

  it('reload sends a single request, also to an older gateway, so that the configuration is built once', async (test) => {
    const { file } = await start(test);
    const asked: string[] = [];
    const older = createServer((request, response) => {
      asked.push(`${request.method} ${request.url?.split('?')[0]}`);
      response.setHeader('content-type', 'application/json');
      request.resume().once('end', () => response.end('{}'));
    }).listen(0, '127.0.0.1');
    test.after(() => older.close());
    await once(older, 'listening');
    const to = older.address();
    assert.ok(to !== null && typeof to === 'object');
    const address = `127.0.0.1:${to.port}`;
    const { code, stdout } = await runCommand(['reload', '--config', file, '--address', address]);
    assert.deepEqual([code, stdout, asked], [0, '', ['POST /load']]);
  });

  it('report that no gateway is running; a wrong address is a usage error', async (test) => {
    const { file } = await start(test);
    const none = `127.0.0.1:${await freePort()}`;
    for (const args of [['reload', '--config', file], ['stop']]) {
      const { code, stderr } = await runCommand([...args, '--address', none]);
      assert.equal(code, 1);
      assert.match(stderr, /No gateway answers/);
      assert.equal((await runCommand([...args, '--address', 'a/b'])).code, 64);
    }
  });

  it('find the admin address in the file, with the variables of --envfile', async (test) => {
    const { directory, file, address, site, hubfile, process } = await start(test);
    const variables = join(directory, 'variables');
    await writeFile(variables, `ADMIN=${address}\n`);
    await writeFile(file, hubfile('respond second', '{$ADMIN}'));
    const named = ['--config', file, '--envfile', variables];
    // The gateway reads it in its own environment.
    const refused = await runCommand(['reload', ...named]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^[^\n]*the environment variable ADMIN is not set/);
    assert.equal((await runCommand(['validate', ...named])).code, 0);
    await writeFile(file, hubfile('respond second'));
    const done = await runCommand(['reload', '--config', file]);
    assert.deepEqual(
      [done.code, done.stderr],
      [0, `The gateway on ${address} has loaded ${file}\n`],
    );
    assert.equal((await send(site)).body, 'second');
    const stopped = await runCommand(['stop', '--config', file]);
    assert.deepEqual(
      [stopped.code, stopped.stderr],
      [0, `The gateway on ${address} is stopping\n`],
    );
    assert.equal(await process.exited(), 0);
    await writeFile(file, hubfile('respond x', 'off'));
    assert.match((await runCommand(['stop', '--config', file])).stderr, /admin off/);
  });

  it('stop shuts the gateway down gracefully', async (test) => {
    const { address, process: running, site } = await start(test, hub());
    const stream = await openStream(test, `${site}/.well-known/hub?match=a`);
    const { code } = await runCommand(['stop', '--address', address]);
    assert.equal(code, 0);
    await stream.untilEnd();
    await running.says('Stopped');
    assert.equal(await running.exited(), 0);
  });

  it('stop --wait returns when the last request has finished', async (test) => {
    let hold: (response: ServerResponse) => void = () => {};
    const held = new Promise<ServerResponse>((resolve) => (hold = resolve));
    const app = createServer((_, response) => hold(response));
    await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
    test.after(() => void app.close());
    const { port } = app.address() as AddressInfo;
    const running = await start(test, `reverse_proxy 127.0.0.1:${port}`, '1m');
    const answer = send(running.site);
    const response = await held;
    let isOver = false;
    const stopped = runCommand(['stop', '--wait', '--address', running.address]).finally(() => {
      isOver = true;
    });
    await running.process.says('Stopping');
    assert.equal((await send(`${running.admin}/health/ready`)).status, 503);
    assert.equal(isOver, false);
    response.end('done');
    assert.equal((await answer).body, 'done');
    const { code, stderr } = await stopped;
    assert.deepEqual([code, stderr.split('\n').at(-2)], [0, 'The gateway has stopped']);
    assert.equal(await running.process.exited(), 0);
  });

  it('stop --wait does not wait for the gateway that takes the place of the stopped one', async (test) => {
    const [first, second] = [await start(test), await start(test)];
    // As if the second one took over the address between two requests of the command.
    let answering = Promise.resolve(first);
    const front = createTcpServer((client) => {
      void answering.then(({ address }) => {
        const gateway = connect({ host: '127.0.0.1', port: Number(address.split(':')[1]) });
        gateway.on('error', () => client.destroy());
        client.on('error', () => gateway.destroy());
        client.pipe(gateway).pipe(client);
      });
    });
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
    test.after(() => void front.close());
    const { port } = front.address() as AddressInfo;
    const stop = startProcess(test, [cli, 'stop', '--wait', '--address', `127.0.0.1:${port}`]);
    await first.process.says('Stopping');
    answering = first.process.exited().then(() => second);
    await stop.says('The gateway has stopped');
    assert.equal(await stop.exited(), 0);
    assert.equal((await send(`${second.admin}/health/ready`)).status, 200);
  });
});
