import { describe, it } from 'node:test';
import { protocolPasses } from '../support/protocol-suite.ts';
import { startRedis } from '../support/redis-server.ts';

/** All that speaks to a hub and does not choose a transport itself. */
const SUITE = [
  ...['subscribe', 'subscriptions', 'publish', 'credentials', 'metadata', 'bounds', 'profiles'],
  ...['long-tokens', 'injection'],
];

describe('the protocol on other transports', () => {
  it('LMDB', async () => {
    await protocolPasses(SUITE, { HUBGATE_TEST_TRANSPORT: 'lmdb' });
  });

  it('Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis !== null) await protocolPasses(SUITE, { HUBGATE_TEST_TRANSPORT: redis.url });
  });
});
