import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { messageOf } from '../../src/kernel/error.ts';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli } from '../support/process.ts';
import { programPath } from '../support/program.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEEPER = fileURLToPath(new URL('../support/socket-keeper.py', import.meta.url));
const KEY = 'a-secret-of-the-test-that-is-long-enough';
const ISSUER = 'https://issuer.example';
const REQUESTERS = 4;
const STREAMS = 40;
/** What each version answers under load before the next one takes over. */
const REQUESTS_EACH = 300;

describe('replacing the running version under load (fd/3)', () => {
  it('fails no request, loses and duplicates no update: streams resume from their cursor', async (test) => {
    const python = programPath(test, 'python3');
    if (python === null) return;
    const { site, start, warnings } = await keepSocket(test, python);
    const hub = `${site}/.well-known/hub`;

    let running = await start('one');
    const versions = new Map<string, number>();
    const failures: string[] = [];
    const over = new AbortController();
    /** Resolves when the version has answered so many requests. */
    const answered = async (version: string): Promise<void> => {
      while ((versions.get(version) ?? 0) < REQUESTS_EACH)
        await new Promise((resolve) => setImmediate(resolve));
    };
    const requesters = Array.from({ length: REQUESTERS }, async () => {
      while (!over.signal.aborted) {
        const answer = await send(site).catch((error: unknown) => ({
          status: 0,
          body: messageOf(error),
        }));
        if (answer.status === 200) versions.set(answer.body, (versions.get(answer.body) ?? 0) + 1);
        else failures.push(`GET ${answer.status} ${answer.body}`);
      }
    });
    const published: string[] = [];
    const token = await signToken(KEY, grant(hub));
    const publisher = (async () => {
      while (!over.signal.aborted) {
        const answer = await send(hub, {
          method: 'POST',
          headers: [
            ['Authorization', `Bearer ${token}`],
            ['Content-Type', 'application/x-www-form-urlencoded'],
          ],
          body: 'topic=news&data=x',
        }).catch((error: unknown) => ({ status: 0, body: messageOf(error) }));
        if (answer.status === 200) published.push(answer.body);
        else failures.push(`POST ${answer.status} ${answer.body}`);
      }
    })();
    const followers = Array.from({ length: STREAMS }, () => follow(test, hub));

    await answered('one');
    for (const version of ['two', 'three']) {
      const next = await start(version);
      const old = running;
      running = next;
      process.kill(old.pid, 'SIGTERM');
      await old.exited();
      await answered(version);
    }
    over.abort();
    await Promise.all([...requesters, publisher]);

    assert.deepEqual(failures, []);
    assert.deepEqual([...versions.keys()].sort(), ['one', 'three', 'two']);
    const last = published.at(-1) ?? '';
    for (const follower of followers) {
      const ids = await follower.until(last);
      const differs = published.findIndex((id, index) => ids[index] !== id);
      const found = ids.indexOf(published[differs] ?? '');
      const where = `update ${differs} of ${published.length} is at ${found}; connections began at ${follower.begins.join()}\n${await warnings()}`;
      assert.equal(differs, -1, where);
      assert.equal(ids.length, published.length);
      assert.equal(follower.begins.length, 3, 'one to each version');
    }
  });
});

interface Follower {
  /** The number of ids at the beginning of each connection. */
  readonly begins: number[];
  /** Resolves to all ids in order when this one has come. */
  until(id: string): Promise<readonly string[]>;
}

/** Follows a topic over lost connections, as a browser does. */
function follow(test: TestContext, hub: string): Follower {
  const ids: string[] = [];
  let wanted: string | null = null;
  let tell: (ids: readonly string[]) => void = () => {};
  const complete = new Promise<readonly string[]>((resolve) => (tell = resolve));
  const follower: Follower = {
    begins: [],
    until(id) {
      wanted = id;
      return complete;
    },
  };
  void (async () => {
    for (;;) {
      const cursor = ids.at(-1) ?? 'earliest';
      const target = `${hub}?match=news&last_event_id=${cursor}`;
      const stream = await openStream(test, target).catch(messageOf);
      if (typeof stream === 'string' || stream.status !== 200) {
        tell([`refused: ${typeof stream === 'string' ? stream : stream.status}`]);
        return;
      }
      follower.begins.push(ids.length);
      let taken = 0;
      while (!stream.ended) {
        ids.push(...stream.ids.slice(taken));
        taken = stream.ids.length;
        if (wanted !== null && ids.includes(wanted)) return tell(ids);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      ids.push(...stream.ids.slice(taken));
    }
  })();
  return follower;
}

interface Version {
  readonly pid: number;
  exited(): Promise<void>;
}

/** A process that holds the socket, and starts gateways that share it, their storage and history. */
async function keepSocket(
  test: TestContext,
  python: string,
): Promise<{
  readonly site: string;
  start(version: string): Promise<Version>;
  /** What all versions have logged at the level warn or error. */
  warnings(): Promise<string>;
}> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-upgrade-'));
  removeWith(test, directory);
  const keeper = spawn(python, [KEEPER], { stdio: ['pipe', 'pipe', 'inherit'] });
  test.after(() => keeper.stdin.end());
  const lines = createInterface({ input: keeper.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => String((await lines.next()).value);
  const site = `http://localhost:${await nextLine()}`;
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{
	admin {$ADMIN}
	storage ${directory}/storage
	grace_period 20s
	log {
		output file ${directory}/{$VERSION}.log
	}
}
${site} {
	bind fd/3
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt ${KEY}
			}
		}
		anonymous
	}
	respond {$VERSION}
}
`,
  );
  const started: string[] = [];
  return {
    site,
    async warnings() {
      const logs = started.map((version) => readFile(join(directory, `${version}.log`), 'utf8'));
      const lines = (await Promise.all(logs)).join('').split('\n');
      return lines.filter((line) => !/"level":"(info|debug)"/.test(line)).join('\n');
    },
    async start(version) {
      started.push(version);
      const admin = `localhost:${await freePort()}`;
      const env = { ADMIN: admin, VERSION: version };
      const args = [process.execPath, cli, 'run', '--no-watch', '--config', file];
      keeper.stdin.write(`${JSON.stringify({ args, env })}\n`);
      const pid = Number(await nextLine());
      test.after(() => endQuietly(pid));
      while (!(await isReady(admin))) await new Promise((resolve) => setTimeout(resolve, 20));
      return {
        pid,
        async exited() {
          while (await isReachable(admin)) await new Promise((resolve) => setTimeout(resolve, 20));
        },
      };
    },
  };
}

async function isReady(admin: string): Promise<boolean> {
  const answer = await fetch(`http://${admin}/hub/health/ready`).catch(() => null);
  return answer?.ok === true;
}

async function isReachable(admin: string): Promise<boolean> {
  return (await fetch(`http://${admin}/hub/health/live`).catch(() => null)) !== null;
}

function endQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended before.
  }
}

function grant(hub: string): Record<string, unknown> {
  const type = 'urn:hub:authorization-detail';
  return {
    iss: ISSUER,
    aud: hub,
    authorization_details: [{ type, actions: ['publish'], topics: [{ match: '*' }] }],
  };
}
