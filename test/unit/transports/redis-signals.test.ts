import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serialize } from 'node:v8';
import { hubKeys } from '../../../src/transports/redis/keys.ts';
import { RedisSignals } from '../../../src/transports/redis/blocking-reader.ts';
import { RecordedLog } from '../../support/recorded-log.ts';

/** Signals that can never be stored, how often that was tried, and what is logged. */
function signalsWithoutStore() {
  const tried = { times: 0 };
  const log = new RecordedLog();
  const signals = new RedisSignals({
    keys: hubKeys('test'),
    process: 'p',
    log,
    session() {
      tried.times += 1;
      throw new Error('away');
    },
  });
  return { signals, tried, log };
}

describe('signals to the other nodes while Redis is unreachable', () => {
  it('are each tried when sent and when a session begins, and not with every other signal', async () => {
    const { signals, tried } = signalsWithoutStore();
    for (let count = 0; count < 50; count += 1) {
      void signals.send(`s${count}`);
      await settled();
    }
    assert.equal(tried.times, 50);
    signals.flush();
    await settled();
    assert.equal(tried.times, 100);
  });

  it('are limited to the newest 10,000, and the log has the number of those that are lost in the end', async () => {
    const { signals, tried, log } = signalsWithoutStore();
    for (let count = 0; count < 10_500; count += 1) void signals.send(`s${count}`);
    await settled();
    tried.times = 0;
    signals.flush();
    await settled();
    assert.equal(tried.times, 10_000);
    assert.deepEqual(log.lines, []);
    signals.end();
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields]),
      [['error', { signals: 10_500 }]],
    );
  });

  it('leave nothing behind in what updates wait for', async () => {
    const { signals } = signalsWithoutStore();
    const sizeAfter = async (count: number): Promise<number> => {
      for (let sent = 0; sent < count; sent += 1) void signals.send(`s${sent}`);
      return serialize(await signals.sent).length;
    };
    assert.equal(await sizeAfter(1), await sizeAfter(100));
  });

  it('are not mentioned at the end if there were none', () => {
    const { signals, log } = signalsWithoutStore();
    signals.end();
    assert.deepEqual(log.lines, []);
  });
});

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
