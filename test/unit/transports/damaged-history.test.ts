import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { Hub } from '../../../src/hub/hub.ts';
import { compileMatcher } from '../../../src/hub/matcher.ts';
import { profiles } from '../../../src/hub/profile.ts';
import type { HistoryEntry, Transport } from '../../../src/hub/transport.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { openDespiteDamage } from '../../../src/transports/damaged-history.ts';
import { createMemoryTransport } from '../../../src/transports/memory/memory-transport.ts';
import { onBoard } from '../../support/board.ts';
import { processAround, RecordingSink, wish } from '../../support/core-hub.ts';
import { update } from '../../support/lmdb-files.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { TurnedClock } from '../../support/turned-clock.ts';
import { follow } from '../../support/follow.ts';

const refused = { code: 'transport-failed', message: 'page 7 is damaged' };

/** A history that is what `next` has. */
function setUp(first: HubgateError | Transport) {
  const state = { next: first as Error | Transport, opened: 0 };
  const [clock, log] = [new TurnedClock(), new RecordedLog()];
  const open = async (): Promise<Transport> => {
    state.opened += 1;
    if (state.next instanceof Error) throw state.next;
    return state.next;
  };
  return { state, clock, log, opening: () => openDespiteDamage(open, { clock, log }) };
}

const damaged = new HubgateError('history-damaged', 'page 7 is damaged');

describe('a history that may be damaged', () => {
  // The timers of a clock that is turned keep no process alive.
  const alive = setInterval(() => {}, 1_000);
  after(() => clearInterval(alive));

  it('is used as it is if nothing is damaged, and fails to open for every other reason', async () => {
    const memory = createMemoryTransport({ size: 10 });
    assert.equal(await setUp(memory).opening(), memory);
    const tooNew = new HubgateError('history-too-new', 'later');
    await assert.rejects(setUp(tooNew).opening(), { code: 'history-too-new' });
  });

  it('rejects operations that need it with the reason, logs that once, and tolerates the rest', async () => {
    const { opening, log, clock, state } = setUp(damaged);
    const transport = await opening();
    follow(transport, () => assert.fail());
    await assert.rejects(transport.append(update('a')), refused);
    await assert.rejects(transport.find('a'), refused);
    await assert.rejects(transport.read(0, 1), refused);
    await assert.rejects(transport.check(), refused);
    await assert.rejects(transport.presence.page(null, 1), refused);
    await assert.rejects(transport.presence.of('s'), refused);
    await assert.rejects(transport.presence.enter('s', []), refused);
    await transport.presence.leave('s');
    transport.wake();
    assert.deepEqual([transport.position, transport.lastEventId], [0, null]);
    clock.turn(5_000);
    while (state.opened < 2) await new Promise((resolve) => setImmediate(resolve));
    state.next = new HubgateError('transport-failed', 'no such directory');
    clock.turn(5_000);
    await log.says('no such directory');
    assert.equal(log.of('page 7 is damaged').length, 1);
    await assert.rejects(transport.append(update('a')), { message: 'no such directory' });
    await transport.close();
    await assert.rejects(transport.append(update('a')), { code: 'transport-closed' });
    clock.turn(60_000);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(state.opened, 3, 'nobody looks any more');
  });

  it('spends only a tenth of the time on checks if a check takes long', async () => {
    const { log, clock } = setUp(damaged);
    const looks = { done: 0 };
    const open = async (): Promise<Transport> => {
      looks.done += 1;
      if (looks.done > 1) clock.turn(20_000);
      throw damaged;
    };
    const transport = await openDespiteDamage(open, { clock, log });
    clock.turn(5_000);
    while (looks.done < 2) await new Promise((resolve) => setImmediate(resolve));
    clock.turn(199_000);
    // Behind the timers of the clock.
    await new Promise((resolve) => setTimeout(resolve, 1));
    assert.equal(looks.done, 2);
    clock.turn(1_500);
    while (looks.done < 3) await new Promise((resolve) => setImmediate(resolve));
    await transport.close();
  });

  it('accepts no stream with presence until there is a board for it', async () => {
    const { opening, log, clock, state } = setUp(damaged);
    const transport = await opening();
    const names = { profile: profiles.hub, hubPath: '/hub', base: 'https://hub.invalid/hub' };
    const hub = new Hub({ transport, names, ...processAround(clock) });
    const asked = wish(
      { matchers: [compileMatcher({ match: 'a', matchType: 'exact' }, names.base, null)] },
      { announced: true },
    );
    await assert.rejects(hub.subscribe(asked), refused);
    const quiet = await hub.subscribe(wish({}));
    assert.equal(hub.counts.connected, 1);
    state.next = createMemoryTransport({ size: 10 });
    clock.turn(5_000);
    await log.says('The history can be used again');
    const { subscriber } = await hub.subscribe(asked);
    const present = await onBoard(transport.presence);
    assert.deepEqual(
      present.map((record) => record.subscriber),
      [subscriber.id],
    );
    const sink = new RecordingSink();
    quiet.open(sink);
    assert.equal(sink.ended, false, 'who was in stays');
    hub.close();
    await transport.close();
  });

  it('is used again once it can be opened', async () => {
    const { opening, log, clock, state } = setUp(damaged);
    const transport = await opening();
    assert.throws(() => transport.caughtUp?.(), refused);
    const seen: string[] = [];
    follow(transport, (entries: readonly HistoryEntry[]) => {
      seen.push(...entries.map(({ update: { id } }) => id));
    });
    const memory = createMemoryTransport({ size: 10 });
    await memory.append(update('before'));
    const caughtUp = Promise.resolve();
    state.next = Object.assign(memory, { caughtUp: () => caughtUp });
    clock.turn(5_000);
    await log.says('The history can be used again');
    assert.equal(transport.caughtUp?.(), caughtUp);
    await transport.append(update('after'));
    assert.deepEqual(seen, ['after']);
    assert.deepEqual([transport.position, transport.lastEventId], [2, 'after']);
    assert.equal(await transport.find('before'), 1);
    assert.equal((await transport.read(0, 10)).length, 2);
    await transport.check();
    await transport.close();
    await assert.rejects(memory.append(update('b')), { code: 'transport-closed' });
  });
});
