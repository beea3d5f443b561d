import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { type RedisServer, startRedis } from '../support/redis-server.ts';
import { type Relay, startRelay } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

/** Of each transport. */
const ROUNDS = rounds(1, 20);
const NODES = 3;
const STEPS = 40;
const KEY = 'the key of publishers and subscribers, long enough';
const HUB_PATH = '/.well-known/hub';
const RESOURCE = `https://hub.example${HUB_PATH}`;
const POLL_MS = 100;
/** Longer than a heartbeat, after which nothing may have changed: 7 s. */
const CALM_POLLS = 70;

interface Record {
  readonly id: string;
  readonly match: string;
  readonly active: boolean;
}

describe('presence when gateways end: the last event of each subscription matches the API', () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    it(`on one Redis: killed, stopped, paused, disconnected, Redis down; round ${round}`, async (test) => {
      const redis = await startRedis(test, test);
      if (redis === null) return;
      const cluster = await start(test, round, redis);
      await cluster.happen();
      redisContinues(redis);
      await cluster.quiet();
    });

    it(`on one LMDB history: killed and stopped; round ${round}`, async (test) => {
      const cluster = await start(test, round, null);
      await cluster.happen();
      await cluster.quiet();
    });
  }
});

class Gateway {
  readonly hub: string;
  readonly relay: Relay | null;
  readonly #begin: () => TestProcess;
  #process: TestProcess | null = null;
  /** What goes on with the process; one after the other. */
  #course: Promise<unknown> = Promise.resolve();

  constructor(hub: string, relay: Relay | null, begin: () => TestProcess) {
    this.hub = hub;
    this.relay = relay;
    this.#begin = begin;
  }

  /** Resolves when it serves; where it cannot, it is tried again when all is well. */
  begins(): Promise<void> {
    return this.#next(async () => {
      if (this.#process !== null) return;
      const process = this.#begin();
      this.#process = process;
      await process.says('Listening on').catch(() => (this.#process = null));
    });
  }

  /** It begins again some time later. */
  ends(signal: 'SIGTERM' | 'SIGKILL'): void {
    void this.#next(async () => {
      this.#process?.child.kill('SIGCONT');
      const code = await this.#process?.end(signal);
      if (signal === 'SIGTERM' && code !== undefined) assert.equal(code, 0, this.#process?.output);
      this.#process = null;
    });
  }

  halts(): void {
    this.#process?.child.kill('SIGSTOP');
  }

  continues(): void {
    this.#process?.child.kill('SIGCONT');
  }

  #next(task: () => Promise<void>): Promise<void> {
    const next = this.#course.then(task);
    // A failure is thrown to whoever waits for the end of the course.
    this.#course = next;
    next.catch(() => {});
    return next;
  }
}

async function start(test: TestContext, round: number, redis: RedisServer | null) {
  const directory = await temporaryDirectory(test);
  const token = await signToken(KEY, {
    ...{ iss: 'me', aud: RESOURCE },
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['publish', 'subscribe'],
        topics: [{ match: '*' }],
      },
    ],
  });
  const headers = [['Authorization', `Bearer ${token}`]] as const;
  const gateways: Gateway[] = [];
  for (let node = 0; node < NODES; node += 1) {
    const relay = redis === null ? null : await startRelay(test, redis.port);
    const port = await freePort();
    const file = join(directory, `Hubfile${node}`);
    const transport = relay === null ? `lmdb {\n\t\t\tpath ${directory}/history` : redisOf(relay);
    await writeFile(file, hubfile(`${directory}/${node}`, port, transport));
    const begin = () => startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
    gateways.push(new Gateway(`http://localhost:${port}${HUB_PATH}`, relay, begin));
  }
  await Promise.all(gateways.map((gateway) => gateway.begins()));

  const streams = new Map<string, Stream>();
  const opening = new Set<Promise<void>>();
  const opens = (gateway: Gateway, match: string): void => {
    const url = `${gateway.hub}?match=${match}`;
    const opened = openStream(test, url, { headers })
      .then((stream) => void (stream.status === 200 && streams.set(match, stream)))
      // Of a gateway that has gone.
      .catch(() => {})
      .finally(() => opening.delete(opened));
    opening.add(opened);
  };
  const present = (): string[] =>
    [...streams].flatMap(([match, stream]) => (stream.ended ? [] : [match]));

  const random = randomOf(round);
  const pick = <Item>(items: readonly Item[]): Item => {
    const item = items[Math.floor(random() * items.length)];
    assert.ok(item !== undefined);
    return item;
  };
  /** What the gateway's API lists; null where it does not answer so. */
  const listed = async ({ hub }: Gateway): Promise<string[] | null> => {
    const answer = await send(`${hub}/subscriptions`, { headers }).catch(() => null);
    if (answer?.status !== 200) return null;
    const { subscriptions } = JSON.parse(answer.body) as { readonly subscriptions: Record[] };
    return subscriptions.map(({ match }) => match).toSorted();
  };
  return {
    async happen(): Promise<void> {
      const everywhere = (gateway: Gateway, step: number): (() => unknown)[] => [
        ...['s', 't', 'u', 'v', 'w', 'x'].map((name) => () => opens(gateway, `${name}${step}`)),
        () => streams.get(pick([...streams.keys(), '']))?.close(),
        () => streams.get(pick([...streams.keys(), '']))?.close(),
        () => gateway.ends('SIGKILL'),
        () => gateway.ends('SIGTERM'),
        () => void gateway.begins(),
        () => void gateway.begins(),
      ];
      const onRedis = (gateway: Gateway): (() => unknown)[] =>
        redis === null
          ? []
          : [
              () => gateway.halts(),
              () => gateway.continues(),
              () => gateway.relay?.cut(),
              () => gateway.relay?.loseAnswers(),
              () => gateway.relay?.heal(),
              () => redisHalts(redis),
              () => redisContinues(redis),
            ];
      for (let step = 0; step < STEPS; step += 1) {
        const gateway = pick(gateways);
        pick([...everywhere(gateway, step), ...onRedis(gateway)])();
        for (let polls = 0; polls < step % 4; polls += 1) await poll();
      }
    },
    /** Resolves when streams, events and every API have said the same for longer than a heartbeat. */
    async quiet(): Promise<void> {
      for (const gateway of gateways) {
        gateway.continues();
        gateway.relay?.heal();
      }
      await Promise.all(gateways.map((gateway) => gateway.begins()));
      await Promise.all(opening);
      const [first] = gateways;
      assert.ok(first !== undefined);
      const fromTheFirst = `${first.hub}?match=*&last_event_id=earliest`;
      let reader = await openStream(test, fromTheFirst, { headers });
      // Until it has found Redis again.
      while (reader.status !== 200) {
        assert.equal(reader.status, 503);
        await poll();
        reader = await openStream(test, fromTheFirst, { headers });
      }
      // Its own subscription is there too.
      streams.set('*', reader);
      // Whoever reads a failure wants to know what was said last.
      let seen = '';
      test.after(() => test.diagnostic(seen));
      for (let calm = 0; calm < CALM_POLLS; ) {
        await poll();
        const now = { present: present().toSorted(), told: toldBy(reader) };
        const lists = await Promise.all(gateways.map(listed));
        const text = JSON.stringify([now, lists]);
        const isOne = [now.told, ...lists].every(
          (list) => JSON.stringify(list) === JSON.stringify(now.present),
        );
        calm = isOne && text === seen ? calm + 1 : 0;
        seen = text;
      }
      for (const [id, told] of courses(reader)) {
        // A gateway may be killed when a subscription stands on the board, and before it can say so.
        const isTwice = told.some((active, index) => active === told[index - 1]);
        assert.ok(!isTwice, `${id} was told as what it was already: ${told.join()}`);
      }
    },
  };
}

/** What each subscription was told as, in order. */
function courses(reader: Stream): ReadonlyMap<string, readonly boolean[]> {
  const told = new Map<string, boolean[]>();
  for (const { id, active } of records(reader)) told.set(id, [...(told.get(id) ?? []), active]);
  return told;
}

function toldBy(reader: Stream): string[] {
  const last = new Map(records(reader).map(({ id, match, active }) => [id, { match, active }]));
  return [...last.values()].flatMap(({ match, active }) => (active ? [match] : [])).toSorted();
}

function records(reader: Stream): readonly Record[] {
  return [...reader.text.matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json = '{}']) => JSON.parse(json) as Record,
  );
}

function redisHalts(redis: RedisServer): void {
  process.kill(pidOf(redis), 'SIGSTOP');
}

function redisContinues(redis: RedisServer): void {
  process.kill(pidOf(redis), 'SIGCONT');
}

const pids = new WeakMap<RedisServer, number>();

/** Asked once: while it is halted it would not answer. */
function pidOf(redis: RedisServer): number {
  const known = pids.get(redis);
  if (known !== undefined) return known;
  const pid = Number(/process_id:(\d+)/.exec(redis.command('INFO', 'server'))?.[1]);
  pids.set(redis, pid);
  return pid;
}

function redisOf({ port }: Relay): string {
  return `redis {\n\t\t\turl redis://127.0.0.1:${port}\n\t\t\tstream test`;
}

function hubfile(storage: string, port: number, transport: string): string {
  return `{
	admin off
	storage ${storage}
	grace_period 2s
}
http://localhost:${port} {
	hub {
		issuer me {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		resource_identifier ${RESOURCE}
		subscriptions
		transport ${transport}
		}
	}
}
`;
}

function poll(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

/** The same in each run. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return state / 2 ** 32;
  };
}
