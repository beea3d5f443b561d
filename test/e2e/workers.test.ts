import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { freePort } from '../support/free-port.ts';
import { askHealth, openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const WORKERS = 3;
/** Enough for every worker to have some, and to lack some. */
const STREAMS = 30;
const FIRST_CONNECTIONS = 200;

interface Place {
  readonly gateway: TestProcess;
  readonly site: string;
  readonly hub: string;
  readonly admin: string;
  /** Writes the Hubfile again and waits until the gateway has said this. */
  edit(more: string, says: string): Promise<void>;
  /** The same with another option of the hub. */
  reload(option: string, says: string): Promise<void>;
  publish(id: string): Promise<void>;
  open(jti: string): Promise<Stream>;
  workers(): Promise<readonly number[]>;
}

describe('several workers (hubfile.md §2)', { skip: process.platform !== 'linux' }, () => {
  it('act as one hub: updates, subscriptions, counts and revocations', async (test) => {
    const place = await start(test);
    const streams: Stream[] = [];
    for (let i = 0; i < STREAMS; i += 1) {
      streams.push(await place.open(i % 2 === 0 ? 'even' : 'odd'));
    }
    for (const id of ['1', '2', '3']) await place.publish(id);
    for (const stream of streams) await stream.untilId('3');
    for (const stream of streams) assert.deepEqual(stream.ids, ['1', '2', '3']);

    const token = await grant(place.hub, 'reader', ['*']);
    const listed = await send(`${place.hub}/subscriptions`, {
      headers: [['Authorization', `Bearer ${token}`]],
    });
    assert.equal(JSON.parse(listed.body).subscriptions.length, STREAMS);
    const metrics = (await send(`${place.admin}/metrics`)).body;
    assert.match(metrics, new RegExp(`^hub_subscribers_connected\\{.*\\} ${STREAMS}$`, 'm'));
    assert.match(metrics, /^hub_updates_total\{.*\} 3$/m);
    assert.equal((await askHealth(`${place.admin}/hub/health/ready`)).status, 200);

    const revoked = await send(`${place.admin}/hub/revoke?jti=odd`, { method: 'POST' });
    assert.deepEqual(JSON.parse(revoked.body), { ended: STREAMS / 2 });
    for (const [i, stream] of streams.entries()) {
      if (i % 2 === 1) await stream.untilEnd();
      else assert.equal(stream.ended, false);
    }
  });

  it('reload together or not at all', async (test) => {
    const place = await start(test);
    const stream = await place.open('a');
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    test.after(() => taken.close());
    const address = taken.address();
    assert.ok(address !== null && typeof address === 'object');
    const answers = async (): Promise<ReadonlySet<string>> => {
      const bodies = new Set<string>();
      // Who takes a connection is chance: with so many, every worker has its share.
      for (let i = 0; i < 10 * WORKERS; i += 1) bodies.add((await send(`${place.site}/x`)).body);
      return bodies;
    };
    assert.deepEqual(await answers(), new Set(['first']));
    await place.edit(
      `\trespond /x second\n}\nhttp://127.0.0.1:${address.port} {\n\tbind 127.0.0.1\n`,
      'the old one keeps serving',
    );
    assert.deepEqual(await answers(), new Set(['first']));
    await place.edit('\trespond /x third\n', 'Configuration reloaded');
    assert.deepEqual(await answers(), new Set(['third']));
    // What has failed once succeeds when it can: all workers share the port.
    taken.close();
    await once(taken, 'close');
    const other = `http://127.0.0.1:${address.port}`;
    await place.edit(
      `}\n${other} {\n\tbind 127.0.0.1\n\trespond fourth\n`,
      'Configuration reloaded',
    );
    for (let i = 0; i < 10 * WORKERS; i += 1) {
      assert.equal((await send(`${other}/`)).body, 'fourth');
    }
    await place.publish('still');
    await stream.untilId('still');
  });

  it('are replaced when one dies, while the others continue', async (test) => {
    const place = await start(test);
    const before = await place.workers();
    assert.equal(before.length, WORKERS);
    const streams: Stream[] = [];
    for (let i = 0; i < STREAMS; i += 1) streams.push(await place.open('a'));
    process.kill(before[0] ?? 0, 'SIGKILL');
    await place.gateway.says('A worker was replaced');
    assert.equal((await place.workers()).length, WORKERS);
    const alive = streams.filter(({ ended }) => !ended);
    assert.ok(alive.length > 0 && alive.length < STREAMS, `${alive.length} of ${STREAMS}`);
    const next: Stream[] = [];
    for (let i = 0; i < WORKERS; i += 1) next.push(await place.open('a'));
    await place.publish('after');
    for (const stream of [...alive, ...next]) await stream.untilId('after');
  });

  for (const workers of [1, 2]) {
    it(`answer all of the first connections: ${workers} workers`, async (test) => {
      const port = await freePort();
      const file = await tinyHubfile(test, port, workers);
      const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
      // All come at the moment at which the port is open.
      await untilOpen(port, gateway);
      const answers = await Promise.all(Array.from({ length: FIRST_CONNECTIONS }, () => ask(port)));
      assert.deepEqual(new Set(answers), new Set(['hello']));
    });
  }

  it('lose only the requests of the one that is killed', async (test) => {
    const port = await freePort();
    const file = await tinyHubfile(test, port, 2);
    const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
    await gateway.says('Listening on');
    // Odd while a worker is being killed: a request that has not seen that was another worker's.
    let epoch = 0;
    let answered = 0;
    const failures: { readonly began: number; readonly ended: number; readonly error: unknown }[] =
      [];
    const load = new AbortController();
    const clients = Array.from({ length: 16 }, async () => {
      while (!load.signal.aborted) {
        const began = epoch;
        try {
          assert.equal(await ask(port), 'hello');
          answered += 1;
        } catch (error) {
          failures.push({ began, ended: epoch, error });
        }
      }
    });
    for (let killed = 0; killed < 4; killed += 1) {
      const before = gateway.output.length;
      const [pid = 0] = await childrenOf(gateway);
      epoch += 1;
      process.kill(pid, 'SIGKILL');
      await gone(pid);
      epoch += 1;
      await gateway.says('A worker was replaced', before);
    }
    load.abort();
    // Everyone has been answered or refused: none waits.
    await Promise.all(clients);
    assert.ok(answered > 1_000, String(answered));
    assert.deepEqual(
      failures.filter(({ began, ended }) => began === ended && began % 2 === 0),
      [],
    );
    assert.ok(failures.length <= 4 * 16, `${failures.length} of ${answered} failed`);
  });

  it('do not keep the others from answering and from stopping when one hangs', async (test) => {
    const place = await start(test);
    const [hanging = 0] = await place.workers();
    assert.equal((await askHealth(`${place.admin}/health/ready`)).status, 200);
    process.kill(hanging, 'SIGSTOP');
    const { status, body } = await send(`${place.admin}/health/ready`);
    assert.equal(status, 503);
    assert.match(body, /the event loop is late/);
    assert.equal((await send(`${place.admin}/metrics`)).status, 200);
    for (const path of ['/hub/revoke?jti=a', '/cache/purge?all']) {
      const { status, headers, body } = await send(`${place.admin}${path}`, { method: 'POST' });
      assert.deepEqual([status, headers['retry-after']], [503, '1']);
      assert.match(body, /A worker has not confirmed the order/);
    }
    place.gateway.child.kill('SIGTERM');
    await place.gateway.says('Workers that hang are killed');
    await place.gateway.exited();
    assert.throws(() => process.kill(hanging, 0), { code: 'ESRCH' });
  });

  it('stop although a reload waits for one that hangs', async (test) => {
    const place = await start(test);
    const [hanging = 0] = await place.workers();
    process.kill(hanging, 'SIGSTOP');
    const edited = place.edit('\trespond /x second\n', 'the old one keeps serving');
    place.gateway.child.kill('SIGHUP');
    // The answer waits for the worker for two seconds, so that the reload waits, too.
    assert.equal((await send(`${place.admin}/health/ready`)).status, 503);
    place.gateway.child.kill('SIGTERM');
    await place.gateway.says('Workers that hang are killed');
    await edited;
    assert.equal(await place.gateway.exited(), 0);
    assert.throws(() => process.kill(hanging, 0), { code: 'ESRCH' });
  });

  it('get a configuration after all if one of them ends while it is loaded', async (test) => {
    const place = await start(test);
    const [ending = 0] = await place.workers();
    process.kill(ending, 'SIGSTOP');
    await place.edit('\trespond /x second\n', '');
    // Long enough on nearly any machine for the load to wait for the worker. If it does not, it succeeds at once.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    process.kill(ending, 'SIGKILL');
    while ((await send(`${place.site}/x`)).body !== 'second') await setImmediate();
  });

  it('answer and stop when another one hangs while it starts', async (test) => {
    const place = await start(test);
    const before = await place.workers();
    process.kill(before[0] ?? 0, 'SIGKILL');
    let starting: number | undefined;
    while (starting === undefined) {
      starting = (await place.workers()).find((pid) => !before.includes(pid));
    }
    // The main process waits in `fork` until the child runs its program: a child that stops before stops both.
    const main = await commandLineOf(place.gateway.child.pid ?? 0);
    while ((await commandLineOf(starting)) === main) await setImmediate();
    process.kill(starting, 'SIGSTOP');
    assert.equal((await send(`${place.admin}/health/ready`)).status, 200);
    place.gateway.child.kill('SIGTERM');
    await place.gateway.says('Workers that hang are killed');
    await place.gateway.exited();
  });

  it('exit with the main process, however it ends', async (test) => {
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      const place = await start(test);
      const workers = await place.workers();
      const stream = await place.open('a');
      const code = await place.gateway.end(signal);
      assert.equal(code, signal === 'SIGTERM' ? 0 : null);
      await stream.untilEnd();
      for (const pid of workers) await gone(pid);
    }
  });

  it('keep the number chosen at startup; a memory transport refuses them', async (test) => {
    const place = await start(test);
    await place.edit('\trespond /x y\n', 'Configuration reloaded');
    assert.equal((await place.workers()).length, WORKERS);
    const file = await hubfile(test, place.site, place.admin, '', 'transport memory');
    const refused = startProcess(test, [cli, 'validate', '--config', file]);
    assert.equal(await refused.exited(), 1);
    assert.match(refused.output, /Hubfile:19:3: error: with several workers/);
  });

  it('are one per processor by default from four on, and refuse to load a memory transport', async (test) => {
    process.env['HUBGATE_PROCESSORS'] = '4';
    test.after(() => (process.env['HUBGATE_PROCESSORS'] = '2'));
    const place = await start(test, '');
    assert.match(place.gateway.output, /Running 4 workers on 4 CPUs \(one per CPU, at most 8/);
    assert.equal((await place.workers()).length, 4);
    const stream = await place.open('a');
    await place.publish('1');
    await stream.untilId('1');
    await place.reload('heartbeat 40s\n\t\ttransport memory', 'the old one keeps serving');
    await place.gateway.says('each of the 4 running workers would have a memory transport');
    await place.publish('2');
    await stream.untilId('2');
  });

  it('are not there by default on fewer processors, or with a history in memory', async (test) => {
    const options = '\tworkers 1\n';
    for (const [processors, workers, option] of [
      ['3', '', 'heartbeat 40s'],
      ['8', '', 'transport memory'],
      ['8', options, 'heartbeat 40s'],
    ] as const) {
      process.env['HUBGATE_PROCESSORS'] = processors;
      test.after(() => (process.env['HUBGATE_PROCESSORS'] = '2'));
      const place = await start(test, workers, option);
      assert.match(place.gateway.output, new RegExp(`Running 1 worker on ${processors} CPUs`));
    }
  });
});

/** `workers` is the line of the global options, `option` one of the hub. */
async function start(
  test: TestContext,
  workers = `\tworkers ${WORKERS}\n`,
  option = 'heartbeat 40s',
): Promise<Place> {
  const site = `http://localhost:${await freePort()}`;
  const admin = `http://localhost:${await freePort()}`;
  const hub = `${site}/.well-known/hub`;
  const file = await hubfile(test, site, admin, '\trespond /x first\n', option, workers);
  const gateway = startProcess(test, [cli, 'run', '--config', file]);
  await gateway.says('Admin API on');
  const publisher = await grant(hub, 'publisher', ['*'], 'publish');
  return {
    gateway,
    site,
    hub,
    admin,
    async edit(more, says) {
      const said = gateway.output.length;
      await writeFile(file, text(file, site, admin, more, option, workers));
      await gateway.says(says, said);
    },
    async reload(other, says) {
      const said = gateway.output.length;
      await writeFile(file, text(file, site, admin, '', other, workers));
      await gateway.says(says, said);
    },
    async publish(id) {
      const answer = await send(hub, {
        method: 'POST',
        headers: [
          ['Authorization', `Bearer ${publisher}`],
          ['Content-Type', 'application/x-www-form-urlencoded'],
        ],
        body: new URLSearchParams({ topic: 'news', id }).toString(),
      });
      assert.equal(answer.status, 200);
    },
    async open(jti) {
      const headers = [['Authorization', `Bearer ${await grant(hub, jti, ['news'])}`] as const];
      const stream = await openStream(test, `${hub}?match=news`, { headers });
      assert.equal(stream.status, 200, stream.text);
      return stream;
    },
    workers: () => childrenOf(gateway),
  };
}

async function hubfile(
  test: TestContext,
  site: string,
  admin: string,
  more: string,
  option: string,
  workers = `\tworkers ${WORKERS}\n`,
): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-workers-'));
  removeWith(test, directory);
  const file = join(directory, 'Hubfile');
  await writeFile(file, text(file, site, admin, more, option, workers));
  return file;
}

function text(
  file: string,
  site: string,
  admin: string,
  more: string,
  option: string,
  workers: string,
): string {
  const jwt = `\n\t\t\t\tjwt "${KEY}"\n\t\t\t}\n`;
  return `{
${workers}	admin ${new URL(admin).host}
	storage ${file}.storage
	auto_https off
	grace_period 2s
}
${site} {
	hub {
		issuer me {
			publisher {${jwt}			subscriber {${jwt}		}
		subscriptions
		${option}
	}
${more}}
`;
}

/** A token of the issuer. */
function grant(
  hub: string,
  jti: string,
  topics: readonly string[],
  action = 'subscribe',
): Promise<string> {
  return signToken(KEY, {
    ...{ iss: 'me', aud: hub, jti },
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: [action],
        topics: topics.map((match) => ({ match })),
      },
    ],
  });
}

/** A site without anything, so that what is measured is the gateway. */
async function tinyHubfile(test: TestContext, port: number, workers: number): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-workers-'));
  removeWith(test, directory);
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{\n\tworkers ${workers}\n\tadmin off\n\tstorage ${directory}/storage\n\tgrace_period 1s\n}\nhttp://127.0.0.1:${port} {\n\tbind 127.0.0.1\n\trespond hello\n}\n`,
  );
  return file;
}

/** The body of an answer on a connection of its own. */
async function ask(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(`GET / HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`);
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  if (!text.startsWith('HTTP/1.1 200')) throw new Error(`The connection ended: ${text}`);
  return text.slice(text.indexOf('\r\n\r\n') + 4);
}

/** Tries until a connection is made. */
async function untilOpen(port: number, gateway: TestProcess): Promise<void> {
  for (;;) {
    const probe = connect(port, '127.0.0.1');
    const open = await new Promise<boolean>((resolve) => {
      probe.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    probe.destroy();
    if (open) return;
    const { exitCode, signalCode } = gateway.child;
    assert.deepEqual([exitCode, signalCode], [null, null], gateway.output);
  }
}

async function childrenOf({ child: { pid = 0 } }: TestProcess): Promise<readonly number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  return children.split(' ').filter(Boolean).map(Number);
}

/** The arguments of a process; until a child has called `exec`, those of its parent. */
function commandLineOf(pid: number): Promise<string> {
  return readFile(`/proc/${pid}/cmdline`, 'utf8');
}

/** Resolves when there is no such process. */
async function gone(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return;
    }
    // Nobody tells of the end of a process that is not a child of this one.
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
