import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/kernel/clock.ts';
import { GroupAppend } from '../../../src/transports/redis/group-append.ts';
import { HandedOut } from '../../../src/transports/redis/handed-out.ts';
import { hubKeys } from '../../../src/transports/redis/keys.ts';
import { findLostEnd } from '../../../src/transports/redis/lost-end.ts';
import { ReadBacks } from '../../../src/transports/redis/read-backs.ts';
import type { Session } from '../../../src/transports/redis/session.ts';
import type { Sessions } from '../../../src/transports/redis/sessions.ts';
import type { StoredLog } from '../../../src/transports/redis/stored-log.ts';
import { update } from '../../support/lmdb-files.ts';

function handedOutUpTo(position: number): HandedOut {
  const handedOut = new HandedOut();
  handedOut.beginAt({ position, key: `k${position}`, id: `u${position}` });
  return handedOut;
}

describe('a log in Redis that loses its end while a group is stored', () => {
  it('looks for what an earlier attempt has stored where the log goes on, not where it ended', async () => {
    const handedOut = handedOutUpTo(100);
    const lookedFrom: unknown[] = [];
    const session = {
      isLost: false,
      close: () => {},
      async append(_script: unknown, _keys: unknown, [name, since]: readonly string[]) {
        lookedFrom.push(since);
        if (lookedFrom.length < 3) throw new Error('the connection is lost');
        const stored = { position: 96, key: `${name}:1`, previous: 'k95', at: 0 };
        handedOut.advance([{ ...stored, update: update('a') }]);
        return ['96-1', 0];
      },
    } as unknown as Session;
    const sessions = {
      live: () => session,
      async next() {
        // What the second one lacks is found out before it is used.
        if (lookedFrom.length === 1) handedOut.goBackTo(95);
        return session;
      },
    } as unknown as Sessions;
    const append = new GroupAppend({
      ...{ keys: hubKeys('test'), maxLength: 0, maxAgeMs: 0, replicas: 0, clock: systemClock },
      ...{ sessions, handedOut, readBacks: new ReadBacks(systemClock) },
    });
    await append.store([update('a')]);
    assert.deepEqual(lookedFrom, ['', '95-1', '95-1']);
  });

  it('goes back to where the log ends, though nothing is known of it there', async () => {
    const log = {
      end: async () => ({ position: 0, key: null, id: null }),
      keyAt: () => assert.fail('it is empty'),
    } as unknown as StoredLog;
    const lost = await findLostEnd({} as unknown as Session, log, handedOutUpTo(500));
    assert.deepEqual(lost, { common: 0, lost: 500, replaced: 0 });
  });
});
