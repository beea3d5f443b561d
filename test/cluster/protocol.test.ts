import { describe, it } from 'node:test';
import { protocolPasses } from '../support/protocol-suite.ts';
import { startRedis } from '../support/redis-server.ts';

describe('the protocol on other transports', () => {
  it('LMDB', async () => {
    await protocolPasses(['subscribe', 'subscriptions', 'publish'], {
      HUBGATE_TEST_TRANSPORT: 'lmdb',
    });
  });

  // Those that turn the clock are left out: it is also that of the connection.
  it('Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis === null) return;
    await protocolPasses(['subscriptions', 'publish'], { HUBGATE_TEST_TRANSPORT: redis.url });
  });
});
