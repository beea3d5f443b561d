import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Clock } from '../../../src/kernel/clock.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { Sessions, type StoreSession } from '../../../src/kernel/sessions.ts';
import { RecordedLog } from '../../support/recorded-log.ts';

describe('the sessions with a store', () => {
  it('are not continued when they are closed while the next one is being opened', async () => {
    const sessions = sessionsWith(atOnce([]));
    const opened: StoreSession[] = [];
    const said: string[] = [];
    const resumed = gate();
    const goOn = gate();
    await sessions.open({
      begin: async () => {},
      async resume(session) {
        opened.push(session);
        resumed.open();
        await goOn.opened;
      },
      async follow() {
        said.push('follow');
        return 'lost';
      },
      ended: () => said.push('ended'),
    });
    await resumed.opened;
    sessions.openNoMore();
    const closed = sessions.close();
    goOn.open();
    await closed;
    assert.deepEqual(said, ['follow', 'ended']);
    assert.equal(opened[0]?.isLost, true);
  });

  it('follow at growing intervals when each is lost at once', async () => {
    const delays: number[] = [];
    const sessions = sessionsWith(atOnce(delays));
    const many = gate();
    await sessions.open({
      begin: async () => {},
      resume: async () => {},
      async follow() {
        if (delays.length >= 8) many.open();
        return 'an entry that nobody can read';
      },
      ended: () => {},
    });
    await many.opened;
    sessions.openNoMore();
    await sessions.close();
    assert.deepEqual(delays.slice(0, 8), [50, 100, 200, 400, 800, 1600, 2000, 2000]);
  });

  it('say once for each reason why the store is still unreachable', async () => {
    const log = new RecordedLog();
    const failures = ['refused', 'refused', 'wrong password', 'refused', 'wrong password'];
    const sessions = sessionsWith(atOnce([]), log, failures);
    const back = gate();
    let sessionsSoFar = 0;
    await sessions.open({
      begin: async () => {},
      resume: async () => {},
      async follow() {
        sessionsSoFar += 1;
        if (sessionsSoFar === 2) failures.push('refused');
        if (sessionsSoFar === 3) back.open();
        return 'lost';
      },
      ended: () => {},
    });
    await back.opened;
    sessions.openNoMore();
    await sessions.close();
    const lines = log.of('the store is still unreachable').slice(0, 6);
    assert.deepEqual(
      lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields['error']),
      ['refused', 'wrong password', 'refused'],
    );
    assert.equal(lines.length, 6);
  });
});

function sessionsWith(
  clock: Clock,
  log: Logger = silentLogger,
  failures: string[] = [],
): Sessions<StoreSession> {
  let isFirst = true;
  return new Sessions({
    store: 'the store',
    meanwhile: 'nothing works',
    async connect() {
      const failure = isFirst ? undefined : failures.shift();
      isFirst = false;
      if (failure !== undefined) throw new HubgateError('transport-failed', failure);
      const session = {
        isLost: false,
        close() {
          session.isLost = true;
        },
      };
      return session;
    },
    isElsewhere: () => false,
    ...{ clock, random: () => 1, log },
  });
}

/** A clock that does not wait, and records what it was asked to wait. */
function atOnce(delays: number[]): Clock {
  return {
    ...systemClock,
    after(delayMs, task) {
      delays.push(delayMs);
      const soon = setImmediate(task);
      return () => clearImmediate(soon);
    },
  };
}

function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}
