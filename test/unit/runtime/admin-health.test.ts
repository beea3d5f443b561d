import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HubgateError } from '../../../src/kernel/error.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { openAdmin } from '../../../src/runtime/admin.ts';
import type { RunningHub } from '../../../src/runtime/hub-families.ts';
import { send } from '../../support/http.ts';

const counts = {
  connected: 0,
  subscribers: 0,
  updates: 0,
  legacyTokens: 0,
  announced: 0,
  merged: 0,
  refused: 0,
  collapsed: 0,
  withheldForVisitor: 0,
  withheldForScript: 0,
  withheldGone: 0,
};

describe('admin API: health', () => {
  it('K-596: a transport that fails is 503, without any detail', async (test) => {
    const working: RunningHub = {
      name: 'good',
      profile: 'hub',
      counts,
      check: async () => {},
    };
    const failing: RunningHub = {
      ...working,
      name: 'bad',
      check: async () => {
        throw new HubgateError('transport-failed', 'the disk /var/lib/secret-place is full');
      },
    };
    const admin = await openAdmin(
      { host: '127.0.0.1', port: 0, origins: [] },
      {
        config: () => null,
        status: async () => ({
          hubs: [working, failing],
          certificates: [],
          serving: true,
          late: false,
        }),
        draining: () => false,
        families: async () => [],
        report: () => Promise.reject(new TypeError('not asked')),
        lastError: () => null,
        load: async () => ({ problems: [], changes: null }),
        dryRun: async () => ({ problems: [], changes: null }),
        purge: async () => 0,
        revoke: async () => 0,
        stop: () => {},
      },
      silentLogger,
    );
    test.after(() => admin.close());
    const base = `http://127.0.0.1:${admin.place.port}/hub/health`;
    for (const path of ['/live', '/bad/live']) {
      assert.equal((await send(base + path)).status, 200, 'a new start would not help');
    }
    for (const path of ['/ready', '/bad/ready']) {
      const { status, body } = await send(base + path);
      assert.equal(status, 503, path);
      assert.deepEqual(JSON.parse(body), {
        status: 'error',
        error: 'transport health check failed',
      });
    }
    assert.equal((await send(`${base}/good/ready`)).status, 200);
  });
});
