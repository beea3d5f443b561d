import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Grants } from '../../../src/hub/grants.ts';
import { Hub, type SubscribeOptions } from '../../../src/hub/hub.ts';
import { compileMatcher } from '../../../src/hub/matcher.ts';
import type { EventSink, SinkListener } from '../../../src/hub/send-buffer.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { StreamSettings } from '../../../src/hub/subscriber.ts';
import type { HistoryEntry, Transport } from '../../../src/hub/transport.ts';
import type { Update } from '../../../src/hub/update.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { type LogLine, recorder } from '../../support/hub-server.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';
import { TurnedScheduler } from '../../support/turned-scheduler.ts';

const base = 'https://hub.invalid/.well-known/hub';
const KIB = 1024;
/** A write counts 500 steps beside its bytes, and a slice has 100,000. */
const WRITES_IN_A_SLICE = 200;

describe('live path: no task blocks the event loop', () => {
  it('writes to 100,000 subscribers in slices, once to each', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const count = { writes: 0, inTurn: 0 };
    for (let i = 0; i < 100_000; i += 1) await connect({}, new CountingSink(count));
    await scheduler.all();
    await hub.publish(update('1'));
    const turns = await scheduler.all(() => {
      assert.ok(count.inTurn <= WRITES_IN_A_SLICE, `${count.inTurn} writes in one turn`);
      count.inTurn = 0;
    });
    assert.equal(count.writes, 100_000);
    assert.ok(turns >= 500, `${turns} turns`);
    const ended = hub.drain(0);
    await scheduler.all();
    await ended;
  });

  it('is fair between hubs: a small one does not wait for a large one', async (test) => {
    const scheduler = new TurnedScheduler();
    const [large, small] = [setUp(test, { scheduler }), setUp(test, { scheduler })];
    const count = { writes: 0, inTurn: 0 };
    for (let i = 0; i < 20_000; i += 1) await large.connect({}, new CountingSink(count));
    const few: RecordingSink[] = [];
    for (let i = 0; i < 10; i += 1) few.push(await small.connect({}));
    await scheduler.all();
    await large.hub.publish(update('1'));
    await small.hub.publish(update('1'));
    await scheduler.turn();
    await scheduler.turn();
    assert.ok(few.every((sink) => sink.ids().length === 1));
    assert.ok(count.writes < 20_000);
    await scheduler.all();
  });

  it('replays 200,000 entries in slices, and delivers to others in the meantime', async (test) => {
    const transport = createMemoryTransport({ size: 300_000 });
    for (let id = 0; id < 200_000; id += 1) await transport.append(update(String(id)));
    const { hub, scheduler, connect } = setUp(test, { transport });
    const live = await connect({ matchers: matchers('live') });
    const late = await connect({ matchers: matchers('nothing', 'live'), lastEventId: 'earliest' });
    const subscriber = late.subscription.subscriber;
    await scheduler.turn();
    let before = subscriber.position;
    let published = 0;
    let isOver = false;
    while (!isOver) {
      const id = `live${published}`;
      if (published < 100) await hub.publish(update(id, { topics: ['live'] }));
      published += 1;
      await scheduler.turn();
      await scheduler.turn();
      if (published <= 100)
        assert.equal(live.ids().at(-1), id, 'live delivery waits for no replay');
      const looked = subscriber.position - before;
      before = subscriber.position;
      assert.ok(looked <= 20_000, `${looked} entries in two turns`);
      isOver = subscriber.position >= 200_000 + 100;
    }
    await scheduler.all();
    assert.equal(late.ids().length, 100);
    await hub.publish(update('joined', { topics: ['live'] }));
    await scheduler.all();
    assert.equal(late.ids().at(-1), 'joined');
    assert.equal(late.ids().length, 101);
  });

  it('lets replays rest while updates are published, and only then', async (test) => {
    const transport = createMemoryTransport({ size: 300_000 });
    for (let id = 0; id < 20_000; id += 1) await transport.append(update(String(id)));
    const { hub, clock, scheduler, connect } = setUp(test, { transport });
    const replay = async (): Promise<{ rests: number; turns: number }> => {
      const sink = await connect({ matchers: matchers('topic'), lastEventId: 'earliest' });
      const before = scheduler.rests;
      const turns = await scheduler.all();
      assert.equal(sink.ids().length, 20_000);
      return { rests: scheduler.rests - before, turns };
    };
    assert.equal((await replay()).rests, 0);
    await hub.publish(update('live', { topics: ['live'] }));
    const { rests, turns } = await replay();
    assert.ok(rests >= 20, `${rests} rests`);
    assert.ok(rests * 3 <= turns, `${rests} rests in ${turns} turns`);
    const before = scheduler.rests;
    const many = Array.from({ length: 20 }, () =>
      connect({ matchers: matchers('topic'), lastEventId: 'earliest' }),
    );
    for (const sink of await Promise.all(many)) assert.equal(sink.ids().length, 0);
    await scheduler.all();
    for (const sink of await Promise.all(many)) assert.equal(sink.ids().length, 20_000);
    assert.ok(scheduler.rests - before <= 2 * rests, 'twenty replays rest no more often than one');
    clock.advance(1_000);
    assert.equal((await replay()).rests, 0);
  });

  it('lets replays rest while an update is being stored, but not without end', async (test) => {
    const transport = createMemoryTransport({ size: 300_000 });
    for (let id = 0; id < 20_000; id += 1) await transport.append(update(String(id)));
    const append = transport.append.bind(transport);
    let store = (): void => {};
    transport.append = async (entry) => {
      await new Promise<void>((resolve) => (store = resolve));
      await append(entry);
    };
    const { hub, scheduler, connect } = setUp(test, { transport });
    const published = hub.publish(update('slow', { topics: ['live'] }));
    const sink = await connect({ matchers: matchers('topic'), lastEventId: 'earliest' });
    for (let rests = 1; rests <= 4; rests += 1) {
      await scheduler.turn();
      assert.equal(scheduler.rests, rests);
      assert.equal(sink.ids().length, 0);
      // The rest ends.
      await scheduler.turn();
    }
    await scheduler.all();
    assert.equal(sink.ids().length, 20_000, 'an update that is never stored holds up no replay');
    store();
    await published;
  });

  it('tests patterns only until a slice ends, and still delivers', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sinks: RecordingSink[] = [];
    for (let i = 0; i < 60; i += 1) {
      const pattern = `/((?:a{0,9}){0,90}x${i})|(a+)b${i}`;
      sinks.push(await connect({ matchers: patterns(pattern.slice(0, 40), '/:any') }));
    }
    const plain = await connect({ matchers: matchers(`/${'a'.repeat(200)}`) });
    await scheduler.all();
    await hub.publish(update('1', { topics: [`/${'a'.repeat(200)}`] }));
    await scheduler.turn();
    await scheduler.all();
    assert.ok(sinks.every((sink) => sink.ids().length === 1));
    assert.deepEqual(plain.ids(), ['1']);
  });

  it('checks grants in slices, even if a token has many matchers and an update many topics', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const grant = (i: number): string => `/none${i}/(a{0,50}){0,20}b`;
    const grants: Grants = {
      publish: [],
      subscribe: Array.from({ length: 100 }, (_, i) => ({ matchers: patterns(grant(i)) })),
    };
    const sink = await connect({ matchers: matchers('*'), grants });
    const granted = await connect({
      matchers: matchers('*'),
      grants: { publish: [], subscribe: [{ matchers: matchers('last') }] },
    });
    await scheduler.all();
    const topics = Array.from(
      { length: 999 },
      (_, i) => `https://example.com/${i}/${'a'.repeat(50)}`,
    );
    await hub.publish(update('1', { topics: [...topics, 'last'], private: true }));
    const turns = await scheduler.all();
    assert.ok(turns > 1, 'one turn is not enough for 100,000 questions');
    assert.deepEqual(sink.ids(), []);
    assert.deepEqual(granted.ids(), ['1']);
  });

  it('keeps the order of updates while they wait for each other', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sinks: RecordingSink[] = [];
    for (let i = 0; i < 3_000; i += 1) sinks.push(await connect({}));
    await scheduler.all();
    const ids = Array.from({ length: 50 }, (_, i) => String(i));
    for (const id of ids) {
      await hub.publish(update(id));
      if (Number(id) % 7 === 0) await scheduler.turn();
    }
    const joined = await connect({});
    await hub.publish(update('last'));
    await scheduler.all();
    for (const sink of sinks) assert.deepEqual(sink.ids(), [...ids, 'last']);
    assert.deepEqual(joined.ids(), ['last'], 'who comes sees only what comes after');
  });
});

describe('live path: the cost of a delivery', () => {
  it('frames an event once for each kind of framing, and sends the same bytes to all subscribers', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sinks = { chunked: [] as RecordingSink[], plain: [] as RecordingSink[] };
    for (let i = 0; i < 100; i += 1) {
      for (const framing of ['chunked', 'plain'] as const) {
        sinks[framing].push(await connect({}, new RecordingSink(false, framing)));
      }
    }
    await scheduler.all();
    await hub.publish(update('1'));
    await scheduler.all();
    for (const framing of ['chunked', 'plain'] as const) {
      const written = sinks[framing].map(({ writes }) => writes);
      assert.ok(written.every((writes) => writes.length === 1));
      assert.equal(new Set(written.map(([bytes]) => bytes)).size, 1);
    }
    assert.equal(sinks.plain[0]?.text(), 'id: 1\ndata: x\n\n');
    assert.equal(sinks.chunked[0]?.text(), 'f\r\nid: 1\ndata: x\n\n\r\n');
  });

  it('combines the updates of one turn once for all subscribers that receive the same', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const groups = [matchers('*'), matchers('even')];
    const sinks: RecordingSink[][] = [[], []];
    for (let i = 0; i < 200; i += 1) {
      const group = i % 2;
      const sink = new RecordingSink(false, 'chunked');
      sinks[group]?.push(await connect({ matchers: groups[group] ?? [] }, sink));
    }
    await scheduler.all();
    for (let id = 0; id < 10; id += 1) {
      await hub.publish(update(String(id), { topics: [id % 2 === 0 ? 'even' : 'odd'] }));
    }
    await scheduler.all();
    for (const [group, members] of sinks.entries()) {
      const pieces = members.map(({ writes }) => writes);
      assert.ok(pieces.every((writes) => writes.length === 1));
      assert.equal(new Set(pieces.map(([bytes]) => bytes)).size, 1, 'combined once');
      assert.equal(members[0]?.ids().length, group === 0 ? 10 : 5);
    }
  });

  it('delivers an event of any size to subscribers that have kept up', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sinks: RecordingSink[] = [];
    for (let i = 0; i < 20; i += 1) sinks.push(await connect({ maxBufferBytes: 1024 * KIB }));
    await scheduler.all();
    const data = Array.from({ length: 90_000 }, () => '  "a": 1,').join('\n');
    await hub.publish(update('large', { data }));
    await hub.publish(update('next'));
    await scheduler.all();
    for (const sink of sinks) {
      assert.equal(sink.ended, false);
      assert.deepEqual(sink.ids(), ['large', 'next']);
    }
  });

  it('encodes an event of a million lines in slices, live and in a replay', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    await connect({}, new CountingSink({ writes: 0, inTurn: 0 }));
    await scheduler.all();
    await hub.publish(update('lines', { data: '\n'.repeat(KIB * KIB) }));
    const live = await scheduler.all();
    assert.ok(live > 30, `${live} turns`);
    await connect({ lastEventId: 'earliest' }, new CountingSink({ writes: 0, inTurn: 0 }));
    const replay = await scheduler.all();
    assert.ok(replay > 30, `${replay} turns`);
  });

  it('counts the updates waiting after a large event that is being sent, but not that event', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sink = await connect({ maxBufferBytes: 1024 * KIB }, new RecordingSink(true));
    await scheduler.all();
    const data = 'x'.repeat(600 * KIB);
    for (const id of ['a', 'b', 'c', 'd']) {
      assert.equal(sink.ended, false, `ended before ${id}`);
      await hub.publish(update(id, { data }));
      await scheduler.all();
    }
    await hub.publish(update('e', { data }));
    while (sink.bufferedBytes > 0) {
      sink.drain(true);
      await scheduler.all();
    }
    assert.ok(sink.ended);
    assert.deepEqual(sink.ids(), ['a', 'b', 'c'], 'with d more than a mebibyte waits');
  });

  it('sends 64 KiB at a time to a connection, so that a slow client that reads stays connected', async (test) => {
    const { hub, scheduler, clock, connect } = setUp(test);
    const sink = await connect({ dispatchTimeoutMs: 2000 }, new RecordingSink(true, 'chunked'));
    await scheduler.all();
    await hub.publish(update('1', { data: 'x'.repeat(4 * 1024 * KIB) }));
    await scheduler.all();
    let pieces = 0;
    while (sink.bufferedBytes > 0) {
      pieces += 1;
      const handed = sink.writes.at(-1)?.length ?? 0;
      assert.ok(handed <= 64 * KIB, `${handed} bytes at once`);
      clock.advance(1500);
      assert.equal(sink.destroyed, false, `cut off after ${pieces} pieces`);
      sink.drain(true);
      await scheduler.all();
    }
    assert.ok(pieces >= 64);
    assert.match(sink.text(), /^40000e\r\nid: 1\ndata: x+\n\n\r\n$/);
  });

  it('reports why it ended a stream', async (test) => {
    const { hub, scheduler, clock, connect, log } = setUp(test);
    await connect({ dispatchTimeoutMs: 1000 }, new RecordingSink(true));
    const full = await connect({ maxBufferBytes: 100 }, new RecordingSink(true));
    await scheduler.all();
    for (let id = 0; id < 20; id += 1) {
      await hub.publish(update(String(id)));
      await scheduler.all();
    }
    assert.equal(full.subscription.subscriber.ended, 'slow');
    clock.advance(1200);
    assert.deepEqual(
      log.filter(({ level }) => level === 'warn').map(({ fields }) => fields['why']),
      [
        'more than max_subscriber_buffer is waiting for the client',
        'the client has read nothing for dispatch_timeout',
      ],
    );
  });

  it('reads large updates from the history in small pages that all subscribers share', async (test) => {
    const transport = createMemoryTransport({ size: 1000 });
    for (let id = 0; id < 40; id += 1) {
      await transport.append(update(String(id), { data: 'x'.repeat(512 * KIB) }));
    }
    const pages: number[] = [];
    const counting: Transport = Object.create(transport, {
      read: {
        value: async (after: number, limit: number): Promise<readonly HistoryEntry[]> => {
          const entries = await transport.read(after, limit);
          pages.push(entries.length);
          return entries;
        },
      },
      position: { get: () => transport.position },
      lastEventId: { get: () => transport.lastEventId },
    });
    const { scheduler, connect } = setUp(test, { transport: counting });
    const sinks: RecordingSink[] = [];
    for (let i = 0; i < 20; i += 1) sinks.push(await connect({ lastEventId: 'earliest' }));
    await scheduler.all();
    for (const sink of sinks) assert.equal(sink.ids().length, 40);
    assert.ok(Math.max(...pages.slice(2)) <= 1, `pages of ${pages.join(' ')} entries`);
    assert.ok(pages.length <= 45, `${pages.length} readings for 20 clients`);
  });
});

describe('live path: clients that reconnect after a node fails', () => {
  it('reads only a few pages per turn for 200 clients with different cursors', async (test) => {
    const memory = createMemoryTransport({ size: 200_000 });
    for (let id = 0; id < 20_000; id += 1) await memory.append(update(String(id)));
    const count = { reads: 0, inTurn: 0 };
    const transport: Transport = Object.create(memory, {
      position: { get: () => memory.position },
      lastEventId: { get: () => memory.lastEventId },
      read: {
        value: (after: number, limit: number, bytes: number) => {
          count.reads += 1;
          count.inTurn += 1;
          return memory.read(after, limit, bytes);
        },
      },
    });
    const { scheduler, connect } = setUp(test, { transport });
    for (let client = 0; client < 200; client += 1) {
      await connect({ lastEventId: String(client * 100), matchers: matchers('nothing') });
    }
    await scheduler.all(() => {
      assert.ok(count.inTurn <= 6, `${count.inTurn} pages in one turn`);
      count.inTurn = 0;
    });
    assert.ok(count.reads > 200);
  });

  it('reads the history only once for the same pages of 10,000 clients', async (test) => {
    const memory = createMemoryTransport({ size: 1_000 });
    const asked = { find: 0, read: 0 };
    // As over a network: what is asked is answered in a later turn.
    const later = async <T>(name: keyof typeof asked, answer: () => Promise<T>): Promise<T> => {
      asked[name] += 1;
      await new Promise((resolve) => setImmediate(resolve));
      return answer();
    };
    const transport: Transport = {
      ...memory,
      get position() {
        return memory.position;
      },
      find: (id) => later('find', () => memory.find(id)),
      read: (...range) => later('read', () => memory.read(...range)),
    };
    const { hub, scheduler, connect } = setUp(test, { transport });
    for (let id = 0; id < 300; id += 1) await hub.publish(update(String(id)));
    await scheduler.all();
    // They had received more or less of the last ten.
    const sinks = await Promise.all(
      Array.from({ length: 10_000 }, (_, client) =>
        connect({ lastEventId: String(190 + (client % 10)) }),
      ),
    );
    assert.ok(asked.find <= 10, `${asked.find} look-ups`);
    asked.find = 0;
    const unknown = Array.from({ length: 1_000 }, () => connect({ lastEventId: 'evicted' }));
    await Promise.all(unknown);
    assert.ok(asked.find <= 3, `${asked.find} look-ups of what is not there`);
    for (let turn = 0; turn < 50; turn += 1) {
      await scheduler.all();
      await new Promise((resolve) => setImmediate(resolve));
    }
    for (const [client, sink] of sinks.entries()) {
      assert.equal(sink.ids().length, 109 - (client % 10));
      assert.equal(sink.ids().at(-1), '299');
    }
    assert.ok(asked.read <= 60, `${asked.read} reads`);
  });
});

describe('live path: subscribers that connect during a revocation', () => {
  it('uses the predicate that is in force when the stream is registered', async (test) => {
    const { hub, connect } = setUp(test);
    hub.revocation.reauthorise(({ issuerKey }) => issuerKey === 'kept', 0);
    await connect({ issuerKey: 'kept' });
    await assert.rejects(connect({ issuerKey: 'gone' }), { code: 'not-admitted' });
    assert.equal(hub.counts.connected, 1);
  });

  it('refuses only subscribers that were revoked or logged out while they connected', async (test) => {
    const { hub, connect } = setUp(test);
    const { revocationEpoch } = hub.admission;
    hub.revocation.revoke('token');
    hub.revocation.signOut('session');
    await assert.rejects(connect({ revocationEpoch, tokenId: 'token' }), { code: 'not-admitted' });
    await assert.rejects(connect({ revocationEpoch, session: 'session' }), {
      code: 'not-admitted',
    });
    await connect({ revocationEpoch, tokenId: 'other', session: 'another' });
    await connect({
      revocationEpoch: hub.admission.revocationEpoch,
      tokenId: 'token',
      session: 'session',
    });
    for (let i = 0; i < 1001; i += 1) hub.revocation.revoke(`t${i}`);
    await assert.rejects(connect({ revocationEpoch, tokenId: null }), { code: 'not-admitted' });
  });

  it('a logout of very many streams ends them in slices, and none receives anything from that turn on', async (test) => {
    const { hub, scheduler, connect } = setUp(test);
    const sinks = await Promise.all(Array.from({ length: 1_000 }, () => connect({ session: 's' })));
    await scheduler.all();
    const ended = (): number => sinks.filter((sink) => sink.ended).length;
    assert.equal(hub.revocation.signOut('s'), 1_000);
    assert.ok(ended() <= 100, `${ended()} ended in one turn`);
    // Another login of the browser, whose mark is the same, while the others still end.
    const next = await connect({ revocationEpoch: hub.admission.revocationEpoch, session: 's' });
    await hub.publish(update('after'));
    await scheduler.all();
    assert.equal(ended(), 1_000);
    assert.deepEqual(next.ids(), ['after']);
    assert.equal(hub.counts.connected, 1);
    for (const sink of sinks) assert.deepEqual(sink.ids(), []);
  });

  it('a logout checks only the streams of its session', async (test) => {
    const { hub, connect } = setUp(test);
    let looked = 0;
    for (let i = 0; i < 500; i += 1) {
      const options = { session: `s${i}` };
      await connect(
        Object.defineProperty({ ...options }, 'session', {
          enumerable: true,
          get: () => {
            looked += 1;
            return `s${i}`;
          },
        }),
      );
    }
    looked = 0;
    assert.equal(hub.revocation.signOut('s7'), 1);
    assert.ok(looked <= 4, `${looked} streams looked at`);
  });
});

interface Counts {
  writes: number;
  inTurn: number;
}

class CountingSink implements EventSink {
  readonly framing = 'plain';
  readonly bufferedBytes = 0;
  readonly #count: Counts;
  #listener: SinkListener | null = null;

  constructor(count: Counts) {
    this.#count = count;
  }

  write(): boolean {
    this.#count.writes += 1;
    this.#count.inTurn += 1;
    return true;
  }

  listen(listener: SinkListener): void {
    this.#listener = listener;
  }

  end(): void {
    this.#listener?.closed();
  }

  destroy(): void {
    this.#listener?.closed();
  }
}

function setUp(
  test: TestContext,
  options: { scheduler?: TurnedScheduler; transport?: Transport } = {},
) {
  const clock = new TestClock();
  const scheduler = options.scheduler ?? new TurnedScheduler();
  const transport = options.transport ?? createMemoryTransport({ size: 100 });
  const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base };
  const log: LogLine[] = [];
  const around = { ...processAround(clock), scheduler, log: recorder(log) };
  const hub = new Hub({ transport, names, ...around });
  test.after(() => hub.close());
  const connect = async <S extends EventSink = RecordingSink>(
    overrides: Partial<SubscribeOptions & StreamSettings>,
    sink?: S,
  ) => {
    const subscription = await hub.subscribe(
      wish({ matchers: matchers('*'), ...overrides }, overrides),
    );
    const opened = sink ?? new RecordingSink();
    subscription.open(opened);
    // Without a sink of its own it has a recording one, which is what S stands for then.
    return Object.assign(opened as S, { subscription });
  };
  return { hub, clock, scheduler, log, connect };
}

function matchers(...topics: string[]): SubscribeOptions['matchers'] {
  return topics.map((match) => compileMatcher({ match, matchType: 'exact' }, base, null));
}

function patterns(...texts: string[]): SubscribeOptions['matchers'] {
  return texts.map((match) => compileMatcher({ match, matchType: 'urlpattern' }, base, null));
}

function update(id: string, fields: Partial<Update> = {}): Update {
  return { id, topics: ['topic'], data: 'x', private: false, type: null, retry: null, ...fields };
}
