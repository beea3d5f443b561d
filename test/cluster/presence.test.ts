import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { PresencePublisher } from '../../src/hub/presence-publisher.ts';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import { profiles } from '../../src/hub/profile.ts';
import { type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Scheduler } from '../../src/kernel/scheduler.ts';
import { onBoard } from '../support/board.ts';
import { type PresenceStore, presenceStores } from '../support/presence-stores.ts';
import { type Relay, startRelay } from '../support/relay.ts';
import { TestClock } from '../support/test-clock.ts';
import { follow } from '../support/follow.ts';
import { rounds } from '../support/rounds.ts';

const NODES = 3;
const ROUNDS = rounds(2, 40);
const STEPS = 25;
/** Of subscribers by which a node's name is found. */
const FIRST = 'first';
const names = { profile: profiles.hub, hubPath: '/hub', base: 'https://hub.example/hub' };

/** A node with its own way to the store; its heartbeat goes when the test turns its clock. */
interface Node {
  readonly transport: Transport;
  readonly relay: Relay;
  readonly clock: TestClock;
  /** Its name on the board. */
  readonly process: string;
}

for (const [name, startStore] of presenceStores) {
  describe(`presence in ${name}: the last event of each subscription in the history matches the board`, () => {
    it('of a node that was silent for longer than its lease: one leave event, one return event', async (test) => {
      const place = await start(test, startStore);
      if (place === null) return;
      const [silent, other] = place.nodes;
      assert.ok(silent !== undefined && other !== undefined);
      const many = Array.from({ length: 1_200 }, (_, index) => `s${index}`);
      await Promise.all(many.map((id) => enter(silent, id)));
      await place.lapse(silent);
      other.clock.advance(5_000);
      await place.until(async () => (await place.events()).length === 2 * many.length);
      silent.clock.advance(5_000);
      await place.until(async () => (await place.events()).length === 3 * many.length);
      await place.agrees();
      const events = await place.events();
      for (const id of many) {
        const told = events.filter(({ subscriber }) => subscriber === id).map(isActive);
        assert.deepEqual(told, [true, false, true]);
      }
    });

    it('of a node whose lease has ended, and that gets a subscriber before its next heartbeat', async (test) => {
      const place = await start(test, startStore);
      if (place === null) return;
      const [silent, other] = place.nodes;
      assert.ok(silent !== undefined && other !== undefined);
      await Promise.all(['a', 'b'].map((id) => enter(silent, id)));
      await place.lapse(silent);
      other.clock.advance(5_000);
      await place.until(async () => (await onBoard(other.transport.presence)).length === 0);
      await enter(silent, 'late');
      silent.clock.advance(5_000);
      await place.until(async () => (await onBoard(other.transport.presence)).length === 3);
      await place.quiet();
      await place.agrees();
    });

    it('of streams that connect and disconnect while their node has no store', async (test) => {
      const place = await start(test, startStore);
      if (place === null) return;
      const [away] = place.nodes;
      assert.ok(away !== undefined);
      await Promise.all(['stays', 'goes'].map((id) => enter(away, id)));
      away.relay.cut();
      await place.until(async () => !(await works(away)));
      await leave(away, 'goes');
      await enter(away, 'comes');
      await enter(away, 'short');
      await leave(away, 'short');
      away.relay.heal();
      await place.until(async () => (await place.events()).length === 4);
      await place.agrees();
      assert.deepEqual(
        (await place.events())
          .map(({ subscriber, active }) => `${subscriber} ${active}`)
          .toSorted(),
        ['comes true', 'goes false', 'goes true', 'stays true'],
      );
    });

    it('of a subscriber that leaves while it is entered again', async (test) => {
      const place = await start(test, startStore);
      if (place === null) return;
      const [silent, other] = place.nodes;
      assert.ok(silent !== undefined && other !== undefined);
      const many = Array.from({ length: 1_200 }, (_, index) => `s${index}`);
      await Promise.all(many.map((id) => enter(silent, id)));
      await place.lapse(silent);
      other.clock.advance(5_000);
      await place.until(async () => (await onBoard(other.transport.presence)).length === 0);
      silent.clock.advance(5_000);
      await Promise.all(many.map((id) => leave(silent, id)));
      await place.quiet();
      assert.deepEqual(await onBoard(other.transport.presence), []);
      await place.agrees();
    });

    it('of a subscriber that leaves while its arrival waits for another one', async (test) => {
      const place = await start(test, startStore);
      if (place === null) return;
      const [node] = place.nodes;
      assert.ok(node !== undefined);
      node.relay.pause();
      const changes = [enter(node, 'stays'), enter(node, 'short'), leave(node, 'short')];
      node.relay.resume();
      await Promise.all(changes);
      // The other process reads the events a moment later.
      await place.until(async () => place.reader.position >= node.transport.position);
      await place.agrees();
      assert.deepEqual(
        (await onBoard(node.transport.presence)).map(({ subscriber }) => subscriber),
        ['stays'],
      );
    });

    for (let round = 0; round < ROUNDS; round += 1) {
      it(`whatever happens to ${NODES} nodes: disconnected, half open, silent, killed, store down; round ${round}`, async (test) => {
        const place = await start(test, startStore);
        if (place === null) return;
        const random = randomOf(round);
        const pick = <Item>(items: readonly Item[]): Item | undefined =>
          items[Math.floor(random() * items.length)];
        const present = new Map<string, Node>();
        for (let step = 0; step < STEPS; step += 1) {
          const node = pick(place.nodes);
          assert.ok(node !== undefined);
          const happens = pick<() => Promise<void>>([
            async () => {
              const id = `s${step}`;
              present.set(id, node);
              await enter(node, id);
            },
            async () => {
              const [id, own] = pick([...present]) ?? ['', node];
              present.delete(id);
              await leave(own, id);
            },
            async () => node.clock.advance(5_000),
            async () => node.relay.cut(),
            async () => node.relay.loseAnswers(),
            async () => node.relay.pause(),
            async () => {
              node.relay.resume();
              node.relay.heal();
            },
            async () => place.lapse(node),
            async () => place.halt(),
            async () => place.goOn(),
          ]);
          // What fails is to be made good: nobody waits for it.
          void happens?.().catch(() => {});
          for (let turns = 0; turns < step % 5; turns += 1) await nextTurn();
        }
        await place.quiet();
        await place.agrees();
        const board = await onBoard(place.reader.presence);
        assert.deepEqual(
          new Set(board.map(({ subscriber }) => subscriber)),
          new Set(present.keys()),
        );
      });
    }
  });
}

async function start(test: TestContext, startStore: (typeof presenceStores)[number][1]) {
  const store = await startStore(test);
  if (store === null) return null;
  const alive = setInterval(() => {}, 1_000);
  test.after(() => clearInterval(alive));
  const nodes: Node[] = [];
  for (let count = 0; count < NODES; count += 1) nodes.push(await startNode(test, store, count));
  const reader = await open(test, store, store.port, new TestClock());
  const told: SubscriptionRecord[] = [];
  follow(reader, (entries) => {
    told.push(...entries.map(({ update }) => JSON.parse(update.data) as SubscriptionRecord));
  });
  const events = async (): Promise<readonly SubscriptionRecord[]> =>
    told.filter(({ subscriber }) => !subscriber.startsWith(FIRST));
  const until = async (condition: () => Promise<boolean>): Promise<void> => {
    while (!(await condition())) await nextTurn();
  };
  let isHalted = false;
  const goOn = (): void => {
    store.goOn();
    isHalted = false;
  };
  return {
    nodes,
    reader,
    events,
    until,
    goOn,
    halt() {
      isHalted = true;
      store.halt();
    },
    /** As if 15 s had passed without a sign of the node. */
    async lapse({ process }: Node) {
      if (!isHalted) await store.lapse(process);
    },
    /** All is well again, and has been for a while. */
    async quiet() {
      goOn();
      for (const { relay } of nodes) {
        relay.resume();
        relay.heal();
      }
      for (let calm = 0; calm < 3; ) {
        await until(async () => (await Promise.all(nodes.map(works))).every(Boolean));
        const before = reader.position;
        for (const { clock } of nodes) clock.advance(5_000);
        for (let turns = 0; turns < 20; turns += 1) await nextTurn();
        // Those that somebody holds who has lost his way to the store in between would run out in 15 s.
        const open = await store.expireClaims();
        calm = open === 0 && reader.position === before ? calm + 1 : 0;
      }
    },
    async agrees() {
      const last = new Map((await events()).map(({ id, active }) => [id, active]));
      const told = [...last].flatMap(([id, active]) => (active ? [id] : []));
      const board = (await onBoard(reader.presence)).map(({ id }) => id);
      assert.deepEqual(told.toSorted(), board.toSorted());
    },
  };
}

async function startNode(test: TestContext, store: PresenceStore, number: number): Promise<Node> {
  const relay = await startRelay(test, store.port);
  const clock = new TestClock();
  const transport = await open(test, store, relay.port, clock);
  transport.tail(NO_TAIL);
  // From now on it tells of whoever comes and goes.
  assert.ok(new PresencePublisher(transport, names, new Scheduler(), silentLogger, clock));
  // What a process is called shows when it has somebody on the board.
  const known = await store.processes();
  await enter({ transport }, `${FIRST}${number}`);
  const process = (await store.processes()).find((one) => !known.includes(one)) ?? '';
  await leave({ transport }, `${FIRST}${number}`);
  return { transport, relay, clock, process };
}

async function open(
  test: TestContext,
  store: PresenceStore,
  port: number,
  clock: TestClock,
): Promise<Transport> {
  const transport = await store.open(port, clock);
  test.after(() => transport.close());
  return transport;
}

async function enter({ transport }: Pick<Node, 'transport'>, subscriber: string): Promise<void> {
  await transport.presence.enter(subscriber, [
    {
      id: `/hub/subscriptions/exact/m/${subscriber}`,
      type: 'subscription',
      ...{ subscriber, match: 'm', match_type: 'exact', active: true },
    },
  ]);
}

/** Refused while the store is away, and done later. */
async function leave({ transport }: Pick<Node, 'transport'>, subscriber: string): Promise<void> {
  await transport.presence.leave(subscriber).catch(() => {});
}

function isActive({ active }: SubscriptionRecord): boolean {
  return active;
}

function works({ transport }: Node): Promise<boolean> {
  return transport.check().then(
    () => true,
    () => false,
  );
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 5));
}

/** The same in each run. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return state / 2 ** 32;
  };
}
