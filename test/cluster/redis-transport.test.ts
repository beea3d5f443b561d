import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { type HistoryEntry, type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import type { Update } from '../../src/hub/update.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { findPrimary } from '../../src/transports/redis/primary.ts';
import {
  openRedisTransport,
  type RedisTransportOptions,
} from '../../src/transports/redis/redis-transport.ts';
import { RecordedLog } from '../support/recorded-log.ts';
import { startRedis, startSentinel } from '../support/redis-server.ts';
import { afterSending, pauseProcess } from '../support/paused-process.ts';
import { startRelay } from '../support/relay.ts';
import { TestClock } from '../support/test-clock.ts';
import { onBoard } from '../support/board.ts';
import { follow } from '../support/follow.ts';

describe('a history in Redis whose replies are lost', () => {
  it('stores nothing twice when an append is retried', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const transport = await open(test, { urls: urlsOf(relay.port) });
    const seen = collect(transport);
    await transport.append(update('before'));
    relay.loseAnswers();
    const appends = ['a', 'b', 'c'].map((id) => transport.append(update(id)));
    await until(() => redis.command('XLEN', '{test}:log') === '4');
    relay.cut();
    relay.heal();
    await Promise.all(appends);
    await transport.append(update('after'));
    assert.deepEqual(ids(seen), ['before', 'a', 'b', 'c', 'after']);
    assert.equal(redis.command('XLEN', '{test}:log'), '5');
  });

  it('stores nothing twice when the first attempt arrives after the second', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const transport = await open(test, { urls: urlsOf(relay.port) });
    const seen = collect(transport);
    await transport.append(update('before'));
    // The second connection of a session is the one that appends.
    const held = relay.holdRequestsOf(1);
    const appends = ['a', 'b', 'c'].map((id) => transport.append(update(id)));
    await until(() => held.bytes > 0);
    relay.cut();
    relay.heal();
    await Promise.all(appends);
    await transport.append(update('after'));
    const commands = (): string => redis.command('INFO', 'commandstats');
    const before = evaluations(commands());
    held.arrive();
    await until(() => evaluations(commands()) > before);
    await transport.append(update('last'));
    assert.deepEqual(ids(seen), ['before', 'a', 'b', 'c', 'after', 'last']);
    assert.equal(redis.command('XLEN', '{test}:log'), '6');
  });

  it('reports an unknown outcome when Redis does not return in time', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const clock = quickClock();
    const transport = await open(test, { urls: urlsOf(relay.port), clock });
    collect(transport);
    relay.loseAnswers();
    const append = transport.append(update('a'));
    const refused = assert.rejects(append, { code: 'transport-uncertain' });
    await until(() => redis.command('XLEN', '{test}:log') === '1');
    relay.cut();
    await refused;
    await assert.rejects(transport.append(update('b')), { code: 'transport-failed' });
    await assert.rejects(transport.check(), { code: 'transport-failed' });
  });
});

describe('a history in Redis with large updates', () => {
  it('is opened without reading them', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const here = await open(test, { urls: urlsOf(redis.port) });
    for (let nth = 0; nth < 48; nth += 1) await here.append(large(`before${nth}`));
    const away = await open(test, { urls: urlsOf(relay.port) });
    assert.ok(relay.answered < 256 * 1024, `${relay.answered} bytes to open it`);
    const seen = collect(away);
    await here.append(update('live'));
    await until(() => seen.length === 1);
    assert.deepEqual(ids(seen), ['live']);
  });

  it('is delivered in limited amounts after an absence', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const here = await open(test, { urls: urlsOf(redis.port) });
    const away = await open(test, { urls: urlsOf(relay.port) });
    const turns: (readonly HistoryEntry[])[] = [];
    follow(away, (entries) => turns.push(entries));
    relay.cut();
    const missed = Array.from({ length: 48 }, (_, nth) => `missed${nth}`);
    await Promise.all(missed.map((id) => here.append(large(id))));
    relay.heal();
    await until(() => turns.flat().length === missed.length);
    assert.deepEqual(ids(turns.flat()), missed);
    const most = Math.max(...turns.map(({ length }) => length));
    assert.ok(most <= 16, `${most} at once`);
  });
});

describe('a history in Redis that becomes unavailable', () => {
  it('logs why, if Redis refuses a part of what it is asked', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const log = new RecordedLog();
    const transport = await open(test, { urls: urlsOf(redis.port), log });
    redis.command('ACL', 'SETUSER', 'default', '-llen');
    const append = transport.append(update('a'));
    const { fields } = await log.says(
      'Redis is unreachable; the hub refuses publications until it is back',
    );
    assert.match(String(fields['reason']), /can't run this command/);
    redis.command('ACL', 'SETUSER', 'default', '+llen');
    await append;
  });

  it('gives up a connection whose password is not answered', async (test) => {
    const redis = await startRedis(test, test, ['requirepass secret']);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const url = `redis://:secret@127.0.0.1:${relay.port}`;
    const transport = await open(test, { urls: [new Secret(url)], clock: quickClock() });
    relay.cut();
    relay.heal();
    relay.loseAnswersOf(3);
    while (!(await works(transport))) await nextTurn();
  });

  it('keeps a connection if this process was paused while the reply arrived', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const place = { urls: urlsOf(redis.port), sentinel: null, cluster: false, trustPoolFile: null };
    const connection = await (await findPrimary(place, 'key', systemClock))();
    test.after(() => connection.close());
    const reply = connection.command(200, 'PING');
    await afterSending();
    pauseProcess(1000);
    assert.equal(await reply, 'PONG');
  });

  it('keeps its connections to a server that closes idle ones, although nobody publishes', async (test) => {
    const redis = await startRedis(test, test, ['timeout 2']);
    if (redis === null) return;
    await open(test, { urls: urlsOf(redis.port), clock: quickClock() });
    const idle = connect(redis.port, '127.0.0.1');
    await once(idle, 'connect');
    const clients = (): readonly string[] =>
      [...redis.command('CLIENT', 'LIST').matchAll(/ addr=(\S+) /g)].map(
        ([, address = '']) => address,
      );
    const before = clients();
    await once(idle.resume(), 'close');
    assert.equal(clients().filter((address) => before.includes(address)).length, 3);
  });

  it('gives up a server that has become a replica, although nobody publishes', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const log = new RecordedLog();
    const presenceClock = new TestClock();
    const transport = await open(test, { urls: urlsOf(redis.port), presenceClock, log });
    await transport.presence.enter('urn:s', [subscription('s')]);
    // Some services leave the connections of clients open when they change the roles of their servers.
    redis.command('REPLICAOF', '127.0.0.1', '1');
    presenceClock.advance(5000);
    const lost = await log.says(
      'Redis is unreachable; the hub refuses publications until it is back',
    );
    assert.match(String(lost.fields['reason']), /READONLY/);
    redis.command('REPLICAOF', 'NO', 'ONE');
    await log.says('Redis is back');
    assert.equal((await onBoard(transport.presence)).length, 1);
  });

  it('refuses at once, although its last stored update was never read back', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const transport = await open(test, { urls: urlsOf(relay.port), clock: quickClock() });
    const seen = collect(transport);
    // The third connection of a session is the one that reads.
    relay.loseAnswersOf(2);
    const refused = assert.rejects(transport.append(update('a')), { code: 'transport-uncertain' });
    await until(() => redis.command('XLEN', '{test}:log') === '1');
    relay.cut();
    await refused;
    for (const id of ['b', 'c']) {
      await assert.rejects(transport.append(update(id)), {
        code: 'transport-failed',
        message: 'Redis is unreachable',
      });
    }
    relay.heal();
    await until(() => seen.length === 1);
    assert.deepEqual(ids(seen), ['a']);
  });

  it('makes a client wait whose cursor it has not read yet, for a limited time, and skips nothing', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const [behind, here] = [
      await open(test, { urls: urlsOf(relay.port), clock: quickClock() }),
      await open(test, { urls: urlsOf(redis.port) }),
    ];
    const seen = collect(behind);
    await here.append(update('a'));
    await until(() => seen.length === 1);
    // The third connection of a session is the one that reads.
    relay.loseAnswersOf(2);
    await here.append(update('b'));
    await assert.rejects(behind.find('b'), {
      code: 'transport-failed',
      message: 'This node is behind the history in Redis',
    });
    relay.cut();
    relay.heal();
    while ((await behind.find('b').catch(() => null)) !== 2) await nextTurn();
    assert.deepEqual(ids(seen), ['a', 'b']);
  });

  it('delivers what was acknowledged in the meantime, once and in order', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const [away, here] = [
      await open(test, { urls: urlsOf(relay.port) }),
      await open(test, { urls: urlsOf(redis.port) }),
    ];
    const seen = collect(away);
    await here.append(update('a'));
    await until(() => seen.length === 1);
    relay.cut();
    const more = Array.from({ length: 500 }, (_, index) => `m${index}`);
    await Promise.all(more.map((id) => here.append(update(id))));
    relay.heal();
    await until(() => seen.length === 501);
    assert.deepEqual(ids(seen), ['a', ...more]);
    assert.deepEqual(
      seen.map(({ position }) => position),
      seen.map((_, index) => index + 1),
    );
  });

  it('reports all signals of other nodes before it delivers the updates that followed them', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const [away, here] = [
      await open(test, { urls: urlsOf(relay.port) }),
      await open(test, { urls: urlsOf(redis.port) }),
    ];
    const seen: string[] = [];
    follow(away, (entries) => seen.push(...entries.map(({ update: { id } }) => id)));
    away.signals?.receive((message) => seen.push(message));
    collect(here);
    relay.cut();
    const signals = Array.from({ length: 1_300 }, (_, index) => `signal ${index}`);
    for (const signal of signals) void here.signals?.send(signal);
    await until(() => redis.command('XLEN', '{test}:signals') === String(signals.length));
    await here.append(update('a'));
    relay.heal();
    await until(() => seen.includes('a'));
    // Signals that are sent again after a lost connection come later than others.
    assert.equal(seen.indexOf('a'), seen.length - 1);
    assert.deepEqual(new Set(seen), new Set([...signals, 'a']));
    // While it is connected, and busy.
    const more = Array.from({ length: 700 }, (_, index) => `more ${index}`);
    relay.pause();
    for (const signal of more) void here.signals?.send(signal);
    await until(() => redis.command('XLEN', '{test}:signals') === String(2_000));
    await here.append(update('b'));
    relay.resume();
    await until(() => seen.includes('b'));
    assert.equal(seen.indexOf('b'), seen.length - 1);
    assert.deepEqual(new Set(seen), new Set([...signals, 'a', ...more, 'b']));
  });

  it('keeps everything that it has acknowledged when Redis is killed and has an append-only file', async (test) => {
    const redis = await startRedis(test, test, ['appendonly yes', 'appendfsync always']);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port) });
    const seen = collect(transport);
    const acknowledged: string[] = [];
    const publishing = Promise.all(
      Array.from({ length: 8 }, async (_, publisher) => {
        for (let count = 0; count < 200; count += 1) {
          const id = `${publisher}-${count}`;
          try {
            await transport.append(update(id));
            acknowledged.push(id);
          } catch {
            await new Promise((resolve) => setTimeout(resolve, 5));
          }
        }
      }),
    );
    await until(() => acknowledged.length > 300);
    await redis.kill();
    await redis.restart();
    await publishing;
    await until(() => isSubset(acknowledged, ids(seen)));
    const positions = seen.map(({ position }) => position);
    assert.deepEqual(
      positions,
      positions.toSorted((a, b) => a - b),
    );
    assert.equal(new Set(ids(seen)).size, seen.length, 'nothing came twice');
    const kept: HistoryEntry[] = [];
    for (let from = 0; from < transport.position; from = kept.at(-1)?.position ?? Infinity) {
      kept.push(...(await transport.read(from, 1000)));
    }
    assert.deepEqual(kept, seen, 'a replay is what was delivered');
  });
});

describe('a history in Redis that loses its end', () => {
  it('returns to the last common update, and delivers what has replaced the rest', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port) });
    const seen = collect(transport);
    for (const id of ['a', 'b', 'c']) await transport.append(update(id));
    redis.command('SAVE');
    for (const id of ['lost', 'lost too']) await transport.append(update(id));
    assert.equal(await transport.find('lost'), 4);
    await redis.kill();
    await redis.restart();
    await until(() => transport.lastEventId === 'c');
    assert.equal(await transport.find('lost'), null, 'a client with that cursor is told earliest');
    for (const id of ['d', 'e', 'f']) await transport.append(update(id));
    assert.deepEqual(ids(seen), ['a', 'b', 'c', 'lost', 'lost too', 'd', 'e', 'f']);
    assert.deepEqual(
      seen.map(({ position }) => position),
      [1, 2, 3, 4, 5, 6, 7, 8],
    );
    const replay = async (after: number) => ids(await transport.read(after, 100));
    assert.deepEqual(await replay(0), ['a', 'b', 'c', 'd', 'e', 'f']);
    assert.deepEqual(await replay(2), ['c', 'd', 'e', 'f']);
    assert.deepEqual(await replay(4), ['d', 'e', 'f'], 'behind one that was lost');
    assert.deepEqual(await replay(6), ['e', 'f']);
    assert.equal(await transport.find('d'), 6);
  });

  it('delivers what replaces it, though an update is stored again at the place that it had before', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const [retryRelay, lateRelay] = [
      await startRelay(test, redis.port),
      await startRelay(test, redis.port),
    ];
    const retrying = await open(test, { urls: urlsOf(retryRelay.port) });
    const late = await open(test, { urls: urlsOf(lateRelay.port) });
    const other = await open(test, { urls: urlsOf(redis.port) });
    const seen = collect(late);
    await other.append(update('a'));
    redis.command('SAVE');
    await other.append(update('lost'));
    retryRelay.loseAnswers();
    const again = retrying.append(update('again'));
    await until(() => seen.length === 3);
    retryRelay.cut();
    lateRelay.cut();
    await redis.kill();
    await redis.restart();
    await until(() => other.lastEventId === 'a');
    while (!(await works(other))) await nextTurn();
    await other.append(update('instead'));
    retryRelay.heal();
    await again;
    lateRelay.heal();
    await other.append(update('after'));
    await until(() => late.lastEventId === 'after');
    assert.deepEqual(ids(seen), ['a', 'lost', 'again', 'instead', 'again', 'after']);
  });

  it('writes nothing as long as one of its keys is of another type', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port) });
    const seen = collect(transport);
    await transport.append(update('a'));
    await transport.append(update('a'));
    await transport.append({ ...update('event'), presence: true });
    for (const name of ['log', 'ids', 'repeated', 'meta', 'events']) {
      const key = `{test}:${name}`;
      redis.command('RENAME', key, 'aside');
      redis.command('SET', key, 'of somebody else');
      for (const presence of [true, false]) {
        const refused = transport.append({ ...update('refused'), ...(presence && { presence }) });
        await assert.rejects(refused, { code: /^transport-(?:failed|uncertain)$/ }, name);
      }
      redis.command('RENAME', 'aside', key);
      while (!(await works(transport))) await nextTurn();
    }
    await transport.append(update('b'));
    await transport.append(update('b'));
    await until(() => seen.length === 5);
    assert.deepEqual(ids(seen), ['a', 'a', 'event', 'b', 'b']);
    assert.equal(redis.command('XLEN', '{test}:log'), '5');
  });

  it('continues where it was when single keys are evicted', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const [one, two] = [
      await open(test, { urls: urlsOf(redis.port) }),
      await open(test, { urls: urlsOf(redis.port) }),
    ];
    const [seen, alsoSeen] = [collect(one), collect(two)];
    for (const id of ['a', 'b', 'c']) await one.append(update(id));
    redis.command('DEL', '{test}:meta');
    await two.append(update('d'));
    await one.append(update('e'));
    redis.command('DEL', '{test}:log');
    await one.append(update('f'));
    await until(() => alsoSeen.length === 6);
    for (const entries of [seen, alsoSeen]) {
      assert.deepEqual(ids(entries), ['a', 'b', 'c', 'd', 'e', 'f']);
    }
    // Nobody may continue after what is gone.
    assert.deepEqual(await one.evicted(), { updates: 5, events: 5 });
    assert.deepEqual([await one.find('b'), await one.find('f')], [null, 6]);
    const late = await open(test, { urls: urlsOf(redis.port) });
    assert.deepEqual([late.position, late.lastUpdateId], [6, 'f']);
  });

  it('starts over when everything is lost', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port) });
    const seen = collect(transport);
    for (const id of ['a', 'b']) await transport.append(update(id));
    await redis.kill();
    await redis.restart();
    await until(() => transport.lastEventId === null);
    await transport.append(update('c'));
    assert.deepEqual(
      seen.map(({ position, update: { id } }) => [position, id]),
      [
        [1, 'a'],
        [2, 'b'],
        [3, 'c'],
      ],
    );
    assert.deepEqual(ids(await transport.read(0, 10)), ['c']);
  });
});

describe('a history in Redis with replicas', () => {
  it('neither acknowledges nor delivers an update that only the primary has', async (test) => {
    const [primary, replica] = [await startRedis(test, test), await startRedis(test, test)];
    if (primary === null || replica === null) return;
    keepAlive(test);
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    await until(() => replica.command('INFO', 'replication').includes('master_link_status:up'));
    const transport = await open(test, { urls: urlsOf(primary.port), replicas: 1 });
    const seen = collect(transport);
    await transport.append(update('a'));
    await replica.kill();
    await assert.rejects(transport.append(update('b')), { code: 'transport-uncertain' });
    assert.deepEqual(ids(seen), ['a']);
    await replica.restart();
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    await until(() => seen.length === 2);
    await transport.append(update('c'));
    assert.deepEqual(ids(seen), ['a', 'b', 'c']);
  });

  it('believes a loss only if the replicas have it, too', async (test) => {
    const [primary, replica] = [await startRedis(test, test), await startRedis(test, test)];
    if (primary === null || replica === null) return;
    keepAlive(test);
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    await until(() => replica.command('INFO', 'replication').includes('master_link_status:up'));
    const log = new RecordedLog();
    const transport = await open(test, { urls: urlsOf(primary.port), replicas: 1, log });
    const seen = collect(transport);
    for (const id of ['a', 'b']) await transport.append(update(id));
    // The replica is promoted, and the old primary comes back without its data.
    replica.command('REPLICAOF', 'NO', 'ONE');
    await primary.kill();
    await primary.restart();
    const isRefused = () =>
      log.lines.some(({ fields }) => /and 0 of 1 replicas/.test(String(fields['error'])));
    await until(() => isRefused() || transport.lastEventId !== 'b');
    assert.equal(transport.lastEventId, 'b');
    await assert.rejects(transport.find('b'), { code: 'transport-failed' });
    // Somebody makes it a replica of the new one.
    primary.command('REPLICAOF', '127.0.0.1', String(replica.port));
    await log.says('Redis is back');
    // A replica refuses writes, so the connection may be given up again at any moment.
    let found: number | null = null;
    while (found === null) {
      await nextTurn();
      found = await transport.find('b').catch(() => null);
    }
    assert.equal(found, 2);
    assert.deepEqual(ids(seen), ['a', 'b'], 'nothing comes twice');
    // Now both have lost everything.
    primary.command('REPLICAOF', 'NO', 'ONE');
    primary.command('FLUSHALL');
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    await until(() => transport.lastEventId === null);
    while (!(await works(transport))) await nextTurn();
    await transport.append(update('c'));
    assert.deepEqual(ids(seen), ['a', 'b', 'c']);
  });

  it('does not say that an update was not stored, whatever ends the wait for the replicas', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port), replicas: 1 });
    const appendStored = async (id: string, disturb: () => Promise<unknown>): Promise<void> => {
      const before = redis.command('XLEN', '{test}:log');
      const append = assert.rejects(transport.append(update(id)), { code: 'transport-uncertain' });
      await until(() => redis.command('XLEN', '{test}:log') !== before);
      await disturb();
      await append;
      while (!(await works(transport))) await nextTurn();
    };
    // The primary becomes a replica for a moment.
    await appendStored('a', async () => {
      redis.command('REPLICAOF', '127.0.0.1', '1');
      redis.command('REPLICAOF', 'NO', 'ONE');
    });
    // Another request finds that the session is of no further use.
    await appendStored('b', async () => {
      redis.command('SCRIPT', 'FLUSH');
      await assert.rejects(async () => transport.counts?.count('key', 1, 1000), /NOSCRIPT/);
    });
    assert.equal(redis.command('XLEN', '{test}:log'), '2');
  });

  it('follows a failover that a sentinel decides, and loses nothing acknowledged', async (test) => {
    const [primary, replica] = [await startRedis(test, test), await startRedis(test, test)];
    if (primary === null || replica === null) return;
    keepAlive(test);
    replica.command('REPLICAOF', '127.0.0.1', String(primary.port));
    await until(() => replica.command('INFO', 'replication').includes('master_link_status:up'));
    const sentinel = await startSentinel(test, test, primary);
    if (sentinel === null) return;
    await until(() =>
      sentinel.command('SENTINEL', 'REPLICAS', 'hub').includes(String(replica.port)),
    );
    const place = { urls: urlsOf(sentinel.port), sentinel: 'hub', replicas: 1 };
    const nodes = [await open(test, place), await open(test, place)];
    const seen = nodes.map(collect);
    const acknowledged: string[] = [];
    let failing = 0;
    const publishing = new AbortController();
    const publishers = nodes.map(async (node, index) => {
      for (let count = 0; !publishing.signal.aborted; count += 1) {
        const id = `${index}-${count}`;
        try {
          await node.append(update(id));
          acknowledged.push(id);
        } catch {
          failing += 1;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    });
    await until(() => acknowledged.length > 100);
    await primary.kill();
    await until(() => failing > 0 && replica.command('ROLE').startsWith('master'));
    // Otherwise a node could still be sent to the old one, which comes back empty.
    const primaryOfHub = () => sentinel.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'hub');
    await until(() => primaryOfHub().includes(String(replica.port)));
    // The one that is left has no replica, so it acknowledges nothing until it gets one.
    await primary.restart();
    // Sentinel would do that too, after ten seconds.
    primary.command('REPLICAOF', '127.0.0.1', String(replica.port));
    await until(() => replica.command('INFO', 'replication').includes('state=online'));
    const before = acknowledged.length;
    await until(() => acknowledged.length > before + 100);
    publishing.abort();
    await Promise.all(publishers);
    await until(() => seen.every((entries) => isSubset(acknowledged, ids(entries))));
    const [one, two] = seen.map(ids);
    assert.deepEqual(one, two, 'nobody sees another order');
    assert.equal(new Set(one).size, one?.length, 'nothing came twice');
  });
});

describe('a history in Redis and its nodes', () => {
  it('leaves data of a later version unchanged', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    const transport = await open(test, { urls: urlsOf(redis.port) });
    await transport.append(update('a'));
    redis.command('HSET', '{test}:meta', 'version', '2');
    await assert.rejects(open(test, { urls: urlsOf(redis.port) }), { code: 'history-too-new' });
    await assert.rejects(transport.append(update('b')), {
      code: 'transport-failed',
      message: /later version of hubgate/,
    });
  });

  it('removes subscribers from the board that left while Redis was down', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const away = await open(test, { urls: urlsOf(relay.port) });
    const here = await open(test, { urls: urlsOf(redis.port) });
    await away.presence.enter('urn:gone', [subscription('gone')]);
    await away.presence.enter('urn:stays', [subscription('stays')]);
    relay.cut();
    await assert.rejects(away.check());
    await assert.rejects(away.presence.leave('urn:gone'), { code: 'transport-failed' });
    relay.heal();
    while (
      !(await away.check().then(
        () => true,
        () => false,
      ))
    )
      await nextTurn();
    const names = (await onBoard(here.presence)).map(({ subscriber }) => subscriber);
    assert.deepEqual(names, ['stays']);
  });

  it('reports revocations to the other nodes, including those that were disconnected', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const [one, two] = [
      await open(test, { urls: urlsOf(redis.port) }),
      await open(test, { urls: urlsOf(relay.port) }),
    ];
    const [atOne, atTwo]: [string[], string[]] = [[], []];
    one.signals?.receive((message) => atOne.push(message));
    two.signals?.receive((message) => atTwo.push(message));
    void one.signals?.send('first');
    await until(() => atTwo.length === 1);
    relay.cut();
    void one.signals?.send('second');
    void two.signals?.send('third');
    relay.heal();
    await until(() => atTwo.length === 2 && atOne.length === 1);
    assert.deepEqual([atOne, atTwo], [['third'], ['first', 'second']]);
  });

  it('removes the subscriptions of a dead node, and notifies exactly one of the others', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const relay = await startRelay(test, redis.port);
    const clocks = [new TestClock(), new TestClock()];
    const [one, two] = await Promise.all(
      clocks.map((clock) => open(test, { urls: urlsOf(redis.port), presenceClock: clock })),
    );
    const dying = await open(test, { urls: urlsOf(relay.port) });
    assert.ok(one !== undefined && two !== undefined);
    const told: unknown[] = [];
    for (const { presence } of [one, two]) {
      presence.watch(async ({ records, active }) => {
        if (!active) told.push(...records.map(({ id }) => id));
      });
    }
    await one.presence.enter('urn:s', [subscription('s')]);
    const gone = Array.from({ length: 700 }, (_, index) => `g${index}`);
    await Promise.all(gone.map((id) => dying.presence.enter(`urn:${id}`, [subscription(id)])));
    assert.equal((await onBoard(two.presence)).length, 701);
    relay.cut();
    // Its lease runs out by the clock of the server, which is not turned but told.
    const processes = redis.command('ZRANGE', '{test}:processes', '0', '-1').split('\n');
    const dead = processes.find((process) =>
      redis.command('ZRANGE', '{test}:owned', '0', '-1').includes(`${process} urn:g0`),
    );
    redis.command('ZADD', '{test}:processes', '0', String(dead));
    for (const clock of clocks) clock.advance(5000);
    await until(() => told.length >= 700);
    for (const clock of clocks) clock.advance(5000);
    assert.deepEqual(
      (await onBoard(two.presence)).map(({ id }) => id),
      [subscription('s').id],
    );
    assert.equal(told.length, 700);
  });

  it('evicts old updates by the clock of the server', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    keepAlive(test);
    const transport = await open(test, { urls: urlsOf(redis.port), maxAgeMs: 1 });
    collect(transport);
    await transport.append(update('old'));
    const [second] = redis.command('TIME').split('\n');
    await until(() => redis.command('TIME').split('\n')[0] !== second);
    await transport.append(update('new'));
    assert.deepEqual(ids(await transport.read(0, 10)), ['new']);
    assert.equal(await transport.find('old'), null);
  });
});

type Options = Partial<RedisTransportOptions> & Pick<RedisTransportOptions, 'urls'>;

async function open(test: TestContext, options: Options): Promise<Transport> {
  const transport = await openRedisTransport({
    ...{ sentinel: null, cluster: false, trustPoolFile: null, stream: 'test' },
    ...{ maxLength: 0, maxAgeMs: 0, replicas: 0, random: Math.random },
    ...{ clock: systemClock, log: silentLogger, ...options },
  });
  transport.tail(NO_TAIL);
  test.after(() => transport.close());
  return transport;
}

/** An update of a quarter of a MiB. */
function large(id: string): Update {
  return { ...update(id), data: 'x'.repeat(256 * 1024) };
}

function urlsOf(port: number): readonly Secret[] {
  return [new Secret(`redis://127.0.0.1:${port}`)];
}

function collect(transport: Transport): HistoryEntry[] {
  const seen: HistoryEntry[] = [];
  follow(transport, (entries) => seen.push(...entries));
  return seen;
}

/** The transport's own timers keep no process alive. */
function keepAlive(test: TestContext): void {
  const alive = setInterval(() => {}, 1000);
  test.after(() => clearInterval(alive));
}

/** Limits of a command and of a blocking read; the server does not answer faster because a clock does. */
const LIMITS_MS: readonly number[] = [3000, 8000];

/** A clock on which the waiting of ten seconds takes one. */
function quickClock(): Clock {
  return {
    now: systemClock.now,
    monotonic: () => systemClock.monotonic() * 10,
    after: (delayMs, task) =>
      systemClock.after(LIMITS_MS.includes(delayMs) ? delayMs : delayMs / 10, task),
  };
}

async function works(transport: Transport): Promise<boolean> {
  return transport.check().then(
    () => true,
    () => false,
  );
}

/** Scripts that a server has executed, as it counts them. */
function evaluations(commandStatistics: string): number {
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(commandStatistics)?.[1] ?? 0);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 5));
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

function isSubset(some: readonly string[], all: readonly string[]): boolean {
  const known = new Set(all);
  return some.every((id) => known.has(id));
}

function ids(entries: readonly HistoryEntry[]): string[] {
  return entries.map(({ update: { id } }) => id);
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
