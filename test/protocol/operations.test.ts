import assert from 'node:assert/strict';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { open as openDatabase } from 'lmdb';
import { Hub } from '../../src/hub/hub.ts';
import { compileMatcher } from '../../src/hub/matcher.ts';
import { profiles } from '../../src/hub/profile.ts';
import { hubBase } from '../../src/hub/topic.ts';
import type { Transport } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { createMemoryTransport } from '../../src/transports/memory/memory-transport.ts';
import { processAround, wish } from '../support/core-hub.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { openStream } from '../support/http.ts';
import { FORM, ISSUER, PUBLISHER_KEY, signToken, startHub } from '../support/hub-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const API = '/.well-known/hub/subscriptions';

describe('history on disk (K.1)', () => {
  it('K-578 K-585 K-586 L32: is available after a restart, before anything new is published', async (test) => {
    const history = await temporaryDirectory(test);
    const before = await startHub(test, { history, subscriptions: true });
    await before.post('topic=a&id=1');
    await before.post('topic=a&id=2&private=on');
    await before.post('topic=a&id=3');
    await before.hub.close();

    const restarted = await startHub(test, { history, subscriptions: true });
    const header = await restarted.subscriber('*');
    const { headers } = await restarted.get(API, { headers: [header] });
    assert.match(String(headers.link), /last-event-id="3"/);
    const granted = await openStream(test, `${restarted.url}?match=a&last_event_id=1`, {
      headers: [header],
    });
    assert.equal(granted.headers['hub-last-event-id'], '1');
    assert.deepEqual(await granted.untilId('3'), ['2', '3']);
    const anonymous = await openStream(test, `${restarted.url}?match=a&last_event_id=1`);
    assert.deepEqual(await anonymous.untilId('3'), ['3']);
  });

  it('K-579 K-580 L38: is in a directory that only its owner can read', async (test) => {
    const history = join(await temporaryDirectory(test), 'made', 'here');
    await startHub(test, { history });
    assert.equal((await stat(history)).mode & 0o777, 0o700);
    assert.equal((await stat(join(history, 'history.mdb'))).mode & 0o777, 0o600);
  });

  for (const kind of ['memory', 'lmdb'] as const) {
    it(`K-581 K-582 K-583 L31 L38: ${kind} always keeps exactly the newest updates, never a random number`, async (test) => {
      const transport = await openTransport(test, kind, 5);
      for (let id = 1; id <= 5; id += 1) await transport.append(update(String(id)));
      assert.deepEqual(await idsOf(transport), ['1', '2', '3', '4', '5']);
      for (let id = 6; id <= 12; id += 1) {
        await transport.append(update(String(id)));
        const kept = Array.from({ length: 5 }, (_, index) => String(id - 4 + index));
        assert.deepEqual(await idsOf(transport), kept);
      }
    });

    it(`K-584: ${kind} has the same order for live and replaying subscribers`, async (test) => {
      const history = kind === 'lmdb' ? { history: await temporaryDirectory(test) } : {};
      const hub = await startHub(test, history);
      const live = await openStream(test, `${hub.url}?match=a&match=end`);
      await Promise.all(
        Array.from({ length: 100 }, (_, id) => hub.post({ topic: 'a', id: String(id) })),
      );
      await hub.post('topic=end&id=end');
      const order = await live.untilId('end');
      assert.equal(order.length, 101);
      const replay = await openStream(test, `${hub.url}?match=a&match=end&last_event_id=earliest`);
      assert.deepEqual(await replay.untilId('end'), order);
    });
  }

  it('K-587: ends a replay at a record that it cannot read, and logs this', async (test) => {
    const history = await temporaryDirectory(test);
    const before = await startHub(test, { history });
    for (const id of ['1', '2', '3']) await before.post({ topic: 'a', id });
    await before.hub.close();
    const root = openDatabase({ path: join(history, 'history.mdb'), maxDbs: 3 });
    await root.openDB({ name: 'log', encoding: 'binary' }).put(2, Buffer.from('garbage'));
    await root.close();

    const hub = await startHub(test, { history });
    const stream = await openStream(test, `${hub.url}?match=*&last_event_id=earliest`);
    await stream.untilEnd();
    assert.doesNotMatch(stream.text, /garbage|undefined|id: [23]/);
    assert.ok(hub.log.some(({ level, message }) => level === 'error' && /Replay/.test(message)));
    const live = await openStream(test, `${hub.url}?match=*`);
    await hub.post('topic=a&id=4');
    assert.deepEqual(await live.untilId('4'), ['4']);
  });
});

describe('history in memory (K.2)', () => {
  it('K-588 K-589 L38: is "earliest" before the first update, and is lost when the hub closes', async (test) => {
    for (let start = 0; start < 2; start += 1) {
      const hub = await startHub(test);
      assert.equal(await hub.hub.lastEventId(), 'earliest');
      await hub.post('topic=a&id=1');
      assert.equal(await hub.hub.lastEventId(), '1');
      await hub.hub.close();
    }
  });
});

describe('both histories (K.3)', () => {
  for (const kind of ['memory', 'lmdb'] as const) {
    it(`K-590: after close, ${kind} accepts neither updates nor subscribers`, async (test) => {
      const history = kind === 'lmdb' ? { history: await temporaryDirectory(test) } : {};
      const hub = await startHub(test, history);
      const stream = await openStream(test, `${hub.url}?match=a`);
      await hub.hub.close();
      await stream.untilEnd();
      assert.ok(stream.complete);
      assert.equal((await hub.post('topic=a')).status, 500);
      for (const search of ['match=a', 'match=a&last_event_id=earliest']) {
        assert.equal((await hub.get(`/.well-known/hub?${search}`)).status, 503);
      }
    });
  }

  it('is logged for powers of two of the subscribers that it fails', async (test) => {
    const hub = await startHub(test, {}, { mounted: true });
    await hub.hub.close();
    for (let each = 0; each < 10; each += 1) await hub.get('/.well-known/hub?match=a');
    const lines = hub.log.filter(
      ({ level, message }) => level === 'error' && /store/.test(message),
    );
    assert.deepEqual(
      lines.map(({ fields }) => fields['times']),
      [undefined, 2, 4, 8],
    );
  });

  it('K-591: a subscriber that has left is not in the list', async (test) => {
    const hub = await startHub(test, { subscriptions: true });
    const headers = [await hub.subscriber('*')];
    const watcher = await openStream(test, `${hub.url}?match=*`, { headers });
    for (let round = 0; round < 3; round += 1) {
      const stream = await openStream(test, `${hub.url}?match=${round}`);
      stream.close();
      const gone = new RegExp(`"match":"${round}".*"active":false`);
      await watcher.until(({ text }) => gone.test(text));
    }
    const { body } = await hub.get(API, { headers });
    assert.deepEqual(
      JSON.parse(body).subscriptions.map(({ match }: { match: string }) => match),
      ['*'],
    );
  });

  it('K-592: a client that does not read delays neither the others nor the publisher', async (test) => {
    const hub = await startHub(test);
    const { hostname, port, host } = new URL(hub.url);
    const stalled = connect(Number(port), hostname);
    test.after(() => stalled.destroy());
    stalled.write(`GET /.well-known/hub?match=a HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    await once(stalled, 'readable');
    const quick = await openStream(test, `${hub.url}?match=a`);
    const ids = Array.from({ length: 40 }, (_, index) => String(index));
    const data = 'x'.repeat(256 * 1024);
    for (const id of ids) assert.equal((await hub.post({ topic: 'a', id, data })).status, 200);
    assert.deepEqual(await quick.untilId('39'), ids);
    assert.equal(quick.ended, false);
  });

  it('K-593 L39: a reload keeps the streams and their history', async (test) => {
    const port = await freePort();
    const site = (heartbeat: string): string =>
      `http://127.0.0.1:${port} {\n\thub {\n\t\tanonymous\n\t\ttransport memory\n\t\theartbeat ${heartbeat}\n` +
      `\t\tissuer ${ISSUER} {\n\t\t\tpublisher {\n\t\t\t\tjwt ${PUBLISHER_KEY}\n\t\t\t}\n\t\t}\n\t}\n}\n`;
    const { reload } = await startGateway(test, site('30s'));
    const url = `http://127.0.0.1:${port}/.well-known/hub`;
    const type = 'urn:hub:authorization-detail';
    const details = [{ type, actions: ['publish'], topics: [{ match: '*' }] }];
    const token = await signToken(PUBLISHER_KEY, {
      iss: ISSUER,
      aud: url,
      authorization_details: details,
    });
    const publish = async (id: string): Promise<void> => {
      const { status } = await fetch(url, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, [FORM[0]]: FORM[1] },
        body: `topic=a&id=${id}`,
      });
      assert.equal(status, 200);
    };
    const stream = await openStream(test, `${url}?match=a`);
    await publish('before');
    assert.deepEqual(await reload(site('20s')), { endingStreams: 0 });
    await publish('after');
    assert.deepEqual(await stream.untilId('after'), ['before', 'after']);
    const replay = await openStream(test, `${url}?match=a&last_event_id=before`);
    assert.deepEqual(await replay.untilId('after'), ['after']);
    stream.close();
    replay.close();
  });
});

describe('counters and refusals of the core (K.5, E.1)', () => {
  const base = hubBase(null, '/.well-known/hub');
  const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base };
  const options = wish(
    { matchers: [compileMatcher({ match: 'a', matchType: 'exact' }, base, null)] },
    { announced: true },
  );

  it('K-598 K-599 K-600: connected can fall, the totals cannot; subscription events do not count as updates', async (test) => {
    const transport = createMemoryTransport({ size: 10 });
    const hub = new Hub({ transport, names, ...processAround(systemClock) });
    test.after(() => hub.close());
    const first = await hub.subscribe(options);
    await hub.subscribe(options);
    await hub.publish(update('1'));
    assert.deepEqual(hub.counts, { connected: 2, subscribers: 2, updates: 1, legacyTokens: 0 });
    first.abandon();
    await transport.close();
    await assert.rejects(hub.publish(update('2')), { code: 'transport-closed' });
    assert.deepEqual(hub.counts, { connected: 1, subscribers: 2, updates: 1, legacyTokens: 0 });
  });

  it('B-159 E-361: a subscriber is not registered if its arrival cannot be stored', async (test) => {
    const transport = createMemoryTransport({ size: 10 });
    const hub = new Hub({ transport, names, ...processAround(systemClock) });
    test.after(() => hub.close());
    await transport.close();
    await assert.rejects(hub.subscribe(options), { code: 'transport-closed' });
    assert.deepEqual((await hub.subscriptionPage(null, 1)).records, []);
    assert.equal(hub.counts.connected, 0);
    assert.equal(hub.lastEventId, 'earliest');
  });
});

function update(id: string): Update {
  return { id, topics: ['a'], data: '', private: false, type: null, retry: null };
}

async function openTransport(
  test: TestContext,
  kind: 'memory' | 'lmdb',
  size: number,
): Promise<Transport> {
  if (kind === 'memory') return createMemoryTransport({ size });
  const transport = await openLmdbTransport({
    path: await temporaryDirectory(test),
    size,
    maxAgeMs: 0,
    durability: 'commit',
    clock: systemClock,
    log: silentLogger,
  });
  test.after(() => transport.close());
  return transport;
}

async function idsOf(transport: Transport): Promise<string[]> {
  return (await transport.read(0, 100)).map(({ update }) => update.id);
}
