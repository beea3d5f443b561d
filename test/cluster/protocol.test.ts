import { describe, it } from 'node:test';
import { protocolPasses } from '../support/protocol-suite.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';

/** What a transport may change. The rest of the protocol never asks which one it is. */
const SUITE = ['subscribe', 'subscriptions', 'publish'];

describe('the protocol on other transports', () => {
  it('LMDB', async () => {
    await protocolPasses(SUITE, { HUBGATE_TEST_TRANSPORT: 'lmdb' });
  });

  it('Redis', async (test) => {
    const redis = await startRedis(test, test);
    if (redis !== null) await protocolPasses(SUITE, { HUBGATE_TEST_TRANSPORT: redis.url });
  });

  it('PostgreSQL', async (test) => {
    const postgres = await startPostgres(test, test, { settings: ['max_connections = 300'] });
    if (postgres === null) return;
    await protocolPasses(SUITE, { HUBGATE_TEST_TRANSPORT: postgres.url });
  });
});
