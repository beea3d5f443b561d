import { describe, it } from 'node:test';
import { protocolPasses } from '../support/protocol-suite.ts';

/** Each connection of a test may reach another process. */
describe('the protocol with two workers', () => {
  for (const names of [['subscribe', 'publish'], ['subscriptions'], ['credentials', 'metadata']]) {
    it(names.join(', '), async () => {
      await protocolPasses(names, { HUBGATE_TEST_WORKERS: '2' });
    });
  }
});
