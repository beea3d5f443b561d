import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

const ROUNDS = rounds(2, 4);
const ROUND_MS = 120_000;
const PUBLISHERS = 8;
/** Acknowledged before the process is ended; different in each round. */
const ACKNOWLEDGED = { least: 20, most: 60 };
const KEY = 'the key of the publishers, long enough';

/** When the first signal is sent. */
const MOMENTS = [
  ['before the first line of output', opens],
  ['when it serves', (gateway: TestProcess) => gateway.says('Listening on')],
] as const;

interface Running {
  readonly gateway: TestProcess;
  readonly hub: string;
}

describe(`a second SIGTERM at any moment after the first, ${ROUNDS} rounds`, () => {
  for (const [moment, until] of MOMENTS) {
    it(`${moment}: the process exits with a code, not by a signal`, {
      timeout: ROUNDS * ROUND_MS,
    }, async (test) => {
      const place = await temporaryDirectory(test);
      const codes: (number | null)[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const directory = join(place, String(round));
        await mkdir(directory);
        const gateway = await begin(test, directory, 1 + (round % 2));
        await until(gateway.process, directory);
        gateway.process.child.kill('SIGTERM');
        // From none at all to some ten milliseconds.
        for (let turns = 0; turns < (round % 8) ** 3; turns += 1) await nextTurn();
        codes.push(await gateway.process.end('SIGTERM'));
        assert.equal(gateway.process.child.signalCode, null, gateway.process.output);
      }
      assert.ok(codes.every((code) => code === 0 || code === 2));
      test.diagnostic(`${codes.filter((code) => code === 2).length} of ${ROUNDS} ended with 2`);
    });
  }
});

describe(`a process that ends while it writes to LMDB, ${ROUNDS} rounds`, () => {
  it('the main process is killed: no worker remains, and the next start serves at once', {
    timeout: ROUNDS * ROUND_MS,
  }, async (test) => {
    const directory = await temporaryDirectory(test);
    for (let round = 0; round < ROUNDS; round += 1) {
      const { gateway, hub } = await start(test, directory, 2);
      const load = await publishing(hub, round);
      // Its workers have its pipes: they are closed when the last of them has ended.
      await gateway.end('SIGKILL');
      await load.ended;
    }
    const { gateway, hub } = await start(test, directory, 2);
    assert.equal(await publish(hub), 200);
    assert.equal(await gateway.end(), 0);
  });

  for (const workers of [1, 2]) {
    it(`a second signal under load ends it with code 2, and other processes continue: ${workers} workers`, {
      timeout: ROUNDS * ROUND_MS,
    }, async (test) => {
      const directory = await temporaryDirectory(test);
      const other = await start(test, directory, 1);
      for (let round = 0; round < ROUNDS; round += 1) {
        const { gateway, hub } = await start(test, directory, workers);
        const load = await publishing(hub, round);
        const beside = await publishing(other.hub, round);
        gateway.child.kill('SIGTERM');
        if (round % 2 === 1) await gateway.says('"Stopping"');
        const code = await gateway.end('SIGTERM');
        // Both signals may be one to the system, or the stop may be faster than the second.
        assert.ok(code === 2 || code === 0, `${code} ${gateway.child.signalCode}`);
        assert.equal(gateway.child.signalCode, null);
        await load.ended;
        beside.stop();
        await beside.ended;
        assert.equal(await publish(other.hub), 200);
      }
      assert.equal(await other.gateway.end(), 0);
    });
  }
});

async function start(test: TestContext, directory: string, workers: number): Promise<Running> {
  const { process: gateway, hub } = await begin(test, directory, workers);
  await gateway.says('Listening on');
  return { gateway, hub };
}

async function begin(test: TestContext, directory: string, workers: number) {
  const port = await freePort();
  const site = `http://localhost:${port}`;
  const file = join(directory, `${port}.hubfile`);
  await writeFile(
    file,
    `{
	workers ${workers}
	admin off
	storage ${directory}/storage
	grace_period 5s
}
${site} {
	hub {
		issuer me {
			publisher {
				jwt "${KEY}"
			}
		}
		resource_identifier http://hub.example/.well-known/hub
		anonymous
		subscriptions
		transport lmdb {
			path ${directory}/history
		}
	}
}
`,
  );
  const process = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  return { process, hub: `${site}/.well-known/hub` };
}

/** Resolves when the program begins to open things: from then on it handles signals itself. */
async function opens(_gateway: TestProcess, directory: string): Promise<void> {
  while (!existsSync(join(directory, 'storage'))) await nextTurn();
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Publishes until the gateway does not answer any more; resolves once enough is acknowledged. */
async function publishing(hub: string, round: number) {
  const { least, most } = ACKNOWLEDGED;
  const enough = least + ((round * 7) % (most - least));
  const stop = new AbortController();
  let acknowledged = 0;
  let reached: () => void = () => {};
  const isReached = new Promise<void>((resolve) => (reached = resolve));
  const publishers = Array.from({ length: PUBLISHERS }, async () => {
    while (!stop.signal.aborted) {
      const status = await publish(hub).catch(() => null);
      if (status === null) return;
      if (status === 200) acknowledged += 1;
      if (acknowledged >= enough) reached();
    }
  });
  const ended = Promise.all(publishers);
  await Promise.race([isReached, ended]);
  assert.ok(acknowledged >= enough, `${acknowledged} of ${enough} were acknowledged`);
  return { ended, stop: () => stop.abort() };
}

async function publish(hub: string): Promise<number> {
  const token = await signToken(KEY, {
    iss: 'me',
    aud: 'http://hub.example/.well-known/hub',
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['publish'],
        topics: [{ match: '*' }],
      },
    ],
  });
  const { status } = await send(hub, {
    method: 'POST',
    headers: [
      ['Authorization', `Bearer ${token}`],
      ['Content-Type', 'application/x-www-form-urlencoded'],
    ],
    body: new URLSearchParams({ topic: 'news', data: 'x'.repeat(2000) }).toString(),
  });
  return status;
}
