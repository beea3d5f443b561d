import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { hubKeys } from '../../../src/transports/redis/keys.ts';
import { RedisSignals } from '../../../src/transports/redis/blocking-reader.ts';

describe('signals to the other nodes while Redis is unreachable', () => {
  it('are each tried when sent and when a session begins, and not with every other signal', async () => {
    let asked = 0;
    const signals = new RedisSignals({
      keys: hubKeys('test'),
      process: 'p',
      session() {
        asked += 1;
        throw new Error('away');
      },
    });
    for (let count = 0; count < 50; count += 1) {
      void signals.send(`s${count}`);
      await settled();
    }
    assert.equal(asked, 50);
    signals.flush();
    await settled();
    assert.equal(asked, 100);
  });

  it('are limited to the newest 10,000, however many come in one turn', async () => {
    let asked = 0;
    const signals = new RedisSignals({
      keys: hubKeys('test'),
      process: 'p',
      session() {
        asked += 1;
        throw new Error('away');
      },
    });
    for (let count = 0; count < 10_500; count += 1) void signals.send(`s${count}`);
    await settled();
    asked = 0;
    signals.flush();
    await settled();
    assert.equal(asked, 10_000);
  });
});

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
