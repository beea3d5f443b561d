import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import { type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { openRedisHistory } from '../../src/transports/redis/redis-history.ts';
import {
  openRedisTransport,
  type RedisTransportOptions,
} from '../../src/transports/redis/redis-transport.ts';
import { onBoard } from '../support/board.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { documentedBlocks } from '../support/documented-blocks.ts';
import { type RedisServer, startRedis } from '../support/redis-server.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { follow } from '../support/follow.ts';

/** What docs/scaling.md gives the user of a hub, for the stream of the tests. */
const [rights] = documentedBlocks('docs/scaling.md')
  .filter(({ language, text }) => language === 'text' && text.startsWith('user hub '))
  .map(({ text }) => text.trim().replace('{chat}', '{test}').replace('PASSWORD', 'secret'));

describe('common Redis deployments', () => {
  it('work with a password, and with a user that has only the necessary permissions', async (test) => {
    assert.ok(rights !== undefined);
    const operator = 'user operator on >secret ~* &* +@all';
    const redis = await startRedis(test, test, [rights, operator, 'user default off']);
    if (redis === null) return;
    const url = (name: string): string => `redis://hub:${name}@127.0.0.1:${redis.port}`;
    const place = { urls: [new Secret(url('secret'))], sentinel: null, cluster: false };
    await serves(test, { ...place, maxLength: 4 });
    const history = await openRedisHistory(
      { ...place, trustPoolFile: null, stream: 'test' },
      { clock: systemClock, create: false },
    );
    const { updates, events } = await history.stats();
    assert.deepEqual([updates, events], [4, 1]);
    await history.close();
    const asOperator = ['--user', 'operator', '--pass', 'secret', '--no-auth-warning'];
    assert.equal(redis.command(...asOperator, 'ACL', 'LOG'), '');
    await assert.rejects(
      open(test, { urls: [new Secret(url('wrong'))] }),
      (error: Error) => /WRONGPASS/.test(error.message) && !error.message.includes('wrong@'),
    );
  });

  it('work over TLS, verified with the configured authorities', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-redis-tls-'));
    removeWith(test, directory);
    const authority = createClientAuthority(directory, 'root');
    const { cert, key } = authority.issue('localhost', 'serverAuth');
    const [certFile, keyFile] = [join(directory, 'redis.crt'), join(directory, 'redis.key')];
    await writeFile(certFile, cert);
    await writeFile(keyFile, key);
    const redis = await startRedis(test, test, [
      'port 0',
      'tls-port {port}',
      `tls-cert-file ${certFile}`,
      `tls-key-file ${keyFile}`,
      `tls-ca-cert-file ${authority.file}`,
      'tls-auth-clients no',
    ]);
    if (redis === null) return;
    const urls = [new Secret(`rediss://localhost:${redis.port}`)];
    await serves(test, { urls, trustPoolFile: authority.file });
    await assert.rejects(open(test, { urls }), /self-signed|unable to verify/i);
  });

  it('work as a cluster: the gateway finds the node of the slot, and follows when another takes it over', async (test) => {
    const nodes: RedisServer[] = [];
    for (let count = 0; count < 3; count += 1) {
      const node = await startRedis(test, test, [
        'cluster-enabled yes',
        'cluster-node-timeout 2000',
        'cluster-require-full-coverage no',
      ]);
      if (node === null) return;
      nodes.push(node);
    }
    const [first, second, replica] = nodes;
    assert.ok(first !== undefined && second !== undefined && replica !== undefined);
    // ADDSLOTSRANGE is of Redis 7.
    const slots = Array.from({ length: 16_384 }, (_, slot) => String(slot));
    first.command('CLUSTER', 'ADDSLOTS', ...slots.slice(0, 8192));
    second.command('CLUSTER', 'ADDSLOTS', ...slots.slice(8192));
    for (const node of [second, replica]) {
      first.command('CLUSTER', 'MEET', '127.0.0.1', String(node.port));
    }
    const owner = Number(first.command('CLUSTER', 'KEYSLOT', '{test}:log')) < 8192 ? first : second;
    await until(() => nodes.every((node) => knownBy(node) === 3));
    replica.command('CLUSTER', 'REPLICATE', owner.command('CLUSTER', 'MYID'));
    await until(() => /master_link_status:up/.test(replica.command('INFO', 'replication')));
    await until(() => /cluster_state:ok/.test(first.command('CLUSTER', 'INFO')));

    // Every node is asked for the slot's, so any will do.
    const urls = nodes.map(({ port }) => new Secret(`redis://127.0.0.1:${port}`));
    const [one, other] = [
      await open(test, { urls, cluster: true, replicas: 1 }),
      await open(test, { urls: urls.toReversed(), cluster: true, replicas: 1 }),
    ];
    const seen: string[] = [];
    follow(other, (entries) => seen.push(...entries.map(({ update: { id } }) => id)));
    const stored: string[] = [];
    const publish = async (id: string): Promise<void> => {
      try {
        await one.append(update(id));
        stored.push(id);
      } catch {
        // Not acknowledged: the publisher would try again.
      }
    };
    for (let count = 0; count < 20; count += 1) await publish(`before-${count}`);
    assert.equal(stored.length, 20);
    // It is given up after five seconds, and the other nodes may not know the replica yet.
    const askAgain = setInterval(() => replica.command('CLUSTER', 'FAILOVER'), 6_000);
    test.after(() => clearInterval(askAgain));
    replica.command('CLUSTER', 'FAILOVER');
    await until(() => /role:master/.test(replica.command('INFO', 'replication')));
    clearInterval(askAgain);
    await until(() => /master_link_status:up/.test(owner.command('INFO', 'replication')));
    for (let count = 0; !stored.includes(`after-${count - 1}`) || count < 20; count += 1) {
      await publish(`after-${count}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await until(() => stored.every((id) => seen.includes(id)));
    assert.deepEqual(
      seen.filter((id) => stored.includes(id)),
      stored,
    );
    assert.equal(new Set(seen).size, seen.length);
  });

  it('work as a cluster of which the first node that is asked is cut off', async (test) => {
    const config = ['cluster-enabled yes', 'cluster-config-file nodes.conf'];
    const [cutOff, whole] = [
      await startRedis(test, test, config),
      await startRedis(test, test, config),
    ];
    if (cutOff === null || whole === null) return;
    // It takes itself for the owner of the slot, but not for a part of a cluster that works.
    cutOff.command('CLUSTER', 'ADDSLOTS', cutOff.command('CLUSTER', 'KEYSLOT', '{test}'));
    whole.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
    await until(() => /cluster_state:ok/.test(whole.command('CLUSTER', 'INFO')));
    const urls = [cutOff, whole].map(({ port }) => new Secret(`redis://127.0.0.1:${port}`));
    const transport = await open(test, { urls, cluster: true });
    await transport.append(update('a'));
    assert.equal(await transport.find('a'), 1);
  });
});

function knownBy(node: RedisServer): number {
  return node
    .command('CLUSTER', 'NODES')
    .split('\n')
    .filter((line) => line.includes('connected')).length;
}

/** Updates, cursors, presence and signals between two nodes. */
async function serves(test: TestContext, options: Options): Promise<void> {
  const [one, other] = [await open(test, options), await open(test, options)];
  const seen: string[] = [];
  follow(other, (entries) => seen.push(...entries.map(({ update: { id } }) => id)));
  for (const id of ['a', 'b', 'c']) await one.append(update(id));
  await until(() => seen.length === 3);
  assert.deepEqual(seen, ['a', 'b', 'c']);
  assert.equal(await other.find('b'), 2);
  await one.appendOnce(['c', 'd'].map(update));
  await one.append({ ...update('event'), presence: true });
  await one.append(update('e'));
  await until(() => seen.length === 6);
  assert.equal((await one.counts?.count('key', 1, 1000))?.current, 0);
  await one.check();
  await one.presence.enter('urn:s', [subscription('s')]);
  assert.deepEqual(await onBoard(other.presence), [subscription('s')]);
  await one.presence.leave('urn:s');
  assert.deepEqual(await onBoard(other.presence), []);
  const told: string[] = [];
  other.signals?.receive((message) => told.push(message));
  void one.signals?.send('hello');
  await until(() => told.includes('hello'));
}

type Options = Partial<RedisTransportOptions> & Pick<RedisTransportOptions, 'urls'>;

async function open(test: TestContext, options: Options): Promise<Transport> {
  const transport = await openRedisTransport({
    ...{ sentinel: null, cluster: false, trustPoolFile: null, stream: 'test' },
    ...{ maxLength: 0, maxAgeMs: 0, replicas: 0, random: Math.random },
    ...{ clock: systemClock, log: silentLogger, ...options },
  });
  transport.tail(NO_TAIL);
  // Its own timers keep no process alive.
  const alive = setInterval(() => {}, 1000);
  test.after(() => {
    clearInterval(alive);
    return transport.close();
  });
  return transport;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
}

function update(id: string): Update {
  return { id, topics: ['topic'], data: '', private: false, type: null, retry: null };
}

function subscription(subscriber: string): SubscriptionRecord {
  return {
    id: `/hub/subscriptions/exact/m/${subscriber}`,
    type: 'subscription',
    subscriber,
    match: 'm',
    match_type: 'exact',
    active: true,
  };
}
