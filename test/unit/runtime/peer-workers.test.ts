import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { profiles } from '../../../src/hub/profile.ts';
import { hubBase } from '../../../src/hub/topic.ts';
import { type HubCore, openHubCore } from '../../../src/runtime/hub-core.ts';
import { HubSignals, type PeerWorkers, type Signal } from '../../../src/runtime/peer-workers.ts';
import { ResponseCaches } from '../../../src/cache/response-caches.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { processAround } from '../../support/core-hub.ts';
import { TestClock } from '../../support/test-clock.ts';
import { removeWith } from '../../support/temporary-directory.ts';

/** Workers in one process: all others receive what one sends. */
function family(size: number): PeerWorkers[] {
  const listeners: ((signal: Signal) => void)[] = [];
  const send = (own: number, signal: Signal): void => {
    for (const [other, listener] of listeners.entries()) if (other !== own) listener(signal);
  };
  return Array.from({ length: size }, (_, own) => ({
    send: (signal) => send(own, signal),
    sendHandled: async (signal) => send(own, signal),
    receive: (listener) => {
      listeners[own] = listener;
    },
  }));
}

async function openCore(
  test: TestContext,
  peerWorkers: PeerWorkers | undefined,
  directory: string,
  name: string,
): Promise<HubCore> {
  const signals = new HubSignals(peerWorkers ?? null);
  const path = '/.well-known/hub';
  const core = await openHubCore(
    {
      ...{ site: name, profile: profiles.hub, path, base: hubBase(null, path) },
      transport: {
        kind: 'lmdb',
        path: join(directory, name),
        size: 0,
        maxAgeMs: 0,
        durability: 'async',
        shared: false,
      },
    },
    // The clock stands: nothing is found by polling.
    { signals, caches: new ResponseCaches(new Scheduler()), ...processAround(new TestClock()) },
  );
  test.after(async () => {
    core.detach();
    core.hub.close();
    await core.transport.close();
  });
  return core;
}

describe('hubs in several processes', () => {
  it('wake each other before the publisher gets its response', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-siblings-'));
    removeWith(test, directory);
    const [first, second] = family(2);
    const one = await openCore(test, first, directory, 'shared');
    const two = await openCore(test, second, directory, 'shared');
    const update = { topics: ['t'], data: '', private: false, type: null, retry: null };
    await one.hub.publish({ ...update, id: 'a' });
    assert.equal(two.hub.lastEventId, 'a');
    await two.hub.publish({ ...update, id: 'b' });
    assert.equal(one.hub.lastEventId, 'b');
  });

  it('end the streams of a token, or of a browser session, wherever they are', () => {
    const [first, second] = family(2);
    assert.ok(first !== undefined && second !== undefined);
    const signals = new HubSignals(first);
    const got: Signal[] = [];
    const leave = new HubSignals(second).join('hub', (signal) => got.push(signal));
    signals.send({ core: 'hub', kind: 'revoked', tokenId: 'x' });
    signals.send({ core: 'other', kind: 'revoked', tokenId: 'y' });
    signals.send({ core: 'hub', kind: 'signed-out', session: 's' });
    leave();
    signals.send({ core: 'hub', kind: 'revoked', tokenId: 'z' });
    assert.deepEqual(got, [
      { core: 'hub', kind: 'revoked', tokenId: 'x' },
      { core: 'hub', kind: 'signed-out', session: 's' },
    ]);
  });
});
