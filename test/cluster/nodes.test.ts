import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { type RedisServer, startRedis, startSentinel } from '../support/redis-server.ts';
import { type Relay, startRelay } from '../support/relay.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

const SUBSCRIBERS = rounds(50, 300);
const KEY = 'the key of publishers and subscribers, long enough';
const RESOURCE = 'https://hub.example/.well-known/hub';

describe(`three gateways that form one hub, ${SUBSCRIBERS} subscribers that move between them`, () => {
  it('on one Redis: gateways and Redis are killed, a network is cut; each subscriber gets exactly what was stored', async (test) => {
    const redis = await startRedis(test, test, ['appendonly yes', 'appendfsync always']);
    if (redis === null) return;
    const relay = await startRelay(test, redis.port);
    const cluster = await startCluster(test, [
      `redis {\n\t\t\turl ${redis.url}`,
      `redis {\n\t\t\turl ${redis.url}`,
      `redis {\n\t\t\turl redis://127.0.0.1:${relay.port}`,
    ]);
    await cluster.publishing(100);
    await cluster.kill(0);
    await cluster.publishing(100);
    await redis.kill();
    await redis.restart();
    await cluster.publishing(100);
    await cutFor(relay, cluster);
    await cluster.restart(0);
    await cluster.publishing(100);
    await cluster.checkAll();
  });

  it('on a primary that fails over: nothing acknowledged is missing with durability replicated', async (test) => {
    const [primary, replica] = [await startRedis(test, test), await startRedis(test, test)];
    if (primary === null || replica === null) return;
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    const sentinel = await startSentinel(test, test, primary);
    if (sentinel === null) return;
    await knows(sentinel, replica);
    const transport = `redis {\n\t\t\turl ${sentinel.url}\n\t\t\tsentinel hub\n\t\t\tdurability replicated 1`;
    const cluster = await startCluster(test, [transport, transport, transport]);
    await cluster.publishing(100);
    await primary.kill();
    while (!replica.command('ROLE').startsWith('master')) await pause(50);
    // Until Sentinel has noticed that, it names the old primary, which would come back empty.
    await isPrimary(sentinel, replica);
    await primary.restart();
    primary.command('REPLICAOF', '127.0.0.1', String(replica.port));
    await cluster.publishing(200);
    await cluster.checkAll();
  });

  it('on one PostgreSQL: gateways and the server are killed, a network is cut; each subscriber gets exactly what was stored', async (test) => {
    const postgres = await startPostgres(test, test);
    if (postgres === null) return;
    const relay = await startRelay(test, postgres.port);
    const block = (port: number): string =>
      `postgres {\n\t\t\turl postgres://postgres@127.0.0.1:${port}/postgres`;
    const cluster = await startCluster(test, [
      block(postgres.port),
      block(postgres.port),
      block(relay.port),
    ]);
    await cluster.publishing(100);
    await cluster.kill(0);
    await cluster.publishing(100);
    await postgres.kill();
    await postgres.restart();
    await cluster.publishing(100);
    await cutFor(relay, cluster);
    await cluster.restart(0);
    await cluster.publishing(100);
    await cluster.checkAll();
  });

  it('on a PostgreSQL whose replica is promoted: nothing acknowledged is missing with durability replicated', async (test) => {
    const primary = await startPostgres(test, test, {
      settings: ["synchronous_standby_names = 'replica'"],
    });
    if (primary === null) return;
    const replica = await primary.replica();
    const hosts = `127.0.0.1:${primary.port},127.0.0.1:${replica.port}`;
    const url = `postgres://postgres@${hosts}/postgres?target_session_attrs=read-write`;
    const transport = `postgres {\n\t\t\turl ${url}\n\t\t\tdurability replicated`;
    const cluster = await startCluster(test, [transport, transport, transport]);
    await cluster.publishing(100);
    await primary.kill();
    await replica.promote();
    // It acknowledges nothing until it has a replica of its own.
    await replica.replica();
    await cluster.publishing(200);
    await cluster.checkAll();
  });
});

async function knows(sentinel: RedisServer, replica: RedisServer): Promise<void> {
  const port = String(replica.port);
  while (!sentinel.command('SENTINEL', 'REPLICAS', 'hub').includes(port)) await pause(50);
}

async function isPrimary(sentinel: RedisServer, server: RedisServer): Promise<void> {
  const asked = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'hub'];
  while (!sentinel.command(...asked).includes(String(server.port))) await pause(50);
}

/** The node behind the relay hears nothing while the others go on. */
async function cutFor(relay: Relay, cluster: Cluster): Promise<void> {
  relay.cut();
  await cluster.publishing(100);
  relay.heal();
}

interface Cluster {
  /** Resolves when that many more updates were acknowledged. */
  publishing(more: number): Promise<void>;
  kill(node: number): Promise<void>;
  restart(node: number): Promise<void>;
  /** Stops publishing and checks what every subscriber has seen. */
  checkAll(): Promise<void>;
}

async function startCluster(test: TestContext, transports: readonly string[]): Promise<Cluster> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-cluster-'));
  removeWith(test, directory);
  const ports = await Promise.all(transports.map(() => freePort()));
  const nodes: (TestProcess | null)[] = [];
  const start = async (node: number): Promise<void> => {
    const file = join(directory, `Hubfile${node}`);
    await writeFile(file, hubfile(directory, ports[node] ?? 0, node, transports[node] ?? ''));
    const started = startProcess(test, [
      ...[cli, 'run', '--no-watch', '--config', file, '--adapter', 'hubfile'],
    ]);
    nodes[node] = started;
    await started.says('Listening on');
  };
  await Promise.all(transports.map((_, node) => start(node)));
  const token = await signToken(KEY, {
    ...{ iss: 'me', aud: RESOURCE },
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['publish'],
        topics: [{ match: '*' }],
      },
    ],
  });
  const end = new AbortController();
  test.after(() => end.abort());
  const anyHub = (): string => {
    const living = ports.filter((_, node) => nodes[node] !== null);
    return `http://127.0.0.1:${living[Math.floor(Math.random() * living.length)]}/.well-known/hub`;
  };
  const acknowledged: string[] = [];
  const publish = async (id: string): Promise<boolean> => {
    try {
      const answer = await send(anyHub(), {
        method: 'POST',
        headers: [
          ['Authorization', `Bearer ${token}`],
          ['Content-Type', 'application/x-www-form-urlencoded'],
        ],
        body: new URLSearchParams({ topic: 'news', id }).toString(),
      });
      assert.ok(answer.status === 200 || answer.status === 503, `${answer.status}`);
      return answer.status === 200;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      // The connection broke: whether it was stored is not known.
      return false;
    }
  };
  const publishers = Array.from({ length: 8 }, async (_, publisher) => {
    for (let count = 0; !end.signal.aborted; count += 1) {
      const id = `${publisher}-${count}`;
      if (await publish(id)) acknowledged.push(id);
      await pause(20);
    }
  });
  const subscribers = Array.from({ length: SUBSCRIBERS }, () => new Wanderer(anyHub));
  test.after(() => subscribers.forEach((subscriber) => subscriber.stop()));
  return {
    async publishing(more) {
      const wanted = acknowledged.length + more;
      while (acknowledged.length < wanted) await pause(10);
    },
    async kill(node) {
      const killed = nodes[node];
      nodes[node] = null;
      await killed?.end('SIGKILL');
    },
    restart: start,
    async checkAll() {
      end.abort();
      await Promise.all(publishers);
      while (!(await publish('last'))) await pause(50);
      const reader = new Wanderer(anyHub, 0);
      test.after(() => reader.stop());
      for (const one of [reader, ...subscribers]) {
        while (!one.ids.includes('last')) await pause(10);
      }
      const kept = new Set(reader.ids);
      assert.deepEqual(
        acknowledged.filter((id) => !kept.has(id)),
        [],
        'what was acknowledged is kept',
      );
      assert.equal(kept.size, reader.ids.length, 'each once');
      for (const { ids } of subscribers) assert.deepEqual(ids, reader.ids);
    },
  };
}

/** A subscriber that leaves now and then, and comes back to any node with its cursor. */
class Wanderer {
  readonly ids: string[] = [];
  readonly #anyHub: () => string;
  readonly #restlessness: number;
  #stopped = false;
  #response: IncomingMessage | undefined;

  constructor(anyHub: () => string, restlessness = 0.02) {
    this.#anyHub = anyHub;
    this.#restlessness = restlessness;
    void this.#wander();
  }

  stop(): void {
    this.#stopped = true;
    this.#response?.destroy();
  }

  async #wander(): Promise<void> {
    while (!this.#stopped) {
      await this.#stay();
      await pause(20 + Math.random() * 100);
    }
  }

  #stay(): Promise<void> {
    const query = new URLSearchParams({
      match: 'news',
      last_event_id: this.ids.at(-1) ?? 'earliest',
    });
    return new Promise((resolve) => {
      const request = get(`${this.#anyHub()}?${query.toString()}`, { agent: false });
      request.on('error', () => resolve());
      request.on('response', (response) => {
        this.#response = response;
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          // What was parsed already still comes after a client has left.
          if (response.destroyed) return;
          const events = (text + chunk).split('\n\n');
          text = events.pop() ?? '';
          for (const event of events) {
            const id = /^id: (.*)$/m.exec(event)?.[1];
            if (id !== undefined) this.ids.push(id);
            if (Math.random() < this.#restlessness) {
              response.destroy();
              return;
            }
          }
        });
        response.on('error', () => resolve());
        response.on('close', () => resolve());
      });
    });
  }
}

function hubfile(directory: string, port: number, node: number, transport: string): string {
  const jwt = `{\n\t\t\t\tjwt "${KEY}"\n\t\t\t}`;
  return `{
	admin off
	auto_https off
	storage ${directory}/storage${node}
}
http://127.0.0.1:${port} {
	hub {
		issuer me {
			publisher ${jwt}
			subscriber ${jwt}
		}
		anonymous
		resource_identifier ${RESOURCE}
		transport ${transport}
			stream cluster
		}
	}
}
`;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
