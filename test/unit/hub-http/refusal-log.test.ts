import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createAnnounce, type AnnouncedHub } from '../../../src/discovery/announced-hub.ts';
import { UnstoredUpdates } from '../../../src/hub-http/publish.ts';
import { RefusalLog } from '../../../src/hub-http/refusal.ts';
import { HubgateError } from '../../../src/kernel/error.ts';
import { FailureLog } from '../../../src/kernel/log.ts';
import { noAnnouncements } from '../../../src/runtime/hub-core.ts';
import { type LogLine, recorder } from '../../support/hub-server.ts';
import { TestClock } from '../../support/test-clock.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

const missing = {
  check: 'presence',
  expected: 'a token',
  found: 'none',
  fix: 'send one',
} as const;

describe('the log of refusals', () => {
  it('logs the first refusal of each client, and counts the rest', () => {
    const lines: LogLine[] = [];
    const refusals = new RefusalLog();
    const one = fakeExchange({ clientAddress: '192.0.2.1', log: recorder(lines) });
    const other = fakeExchange({ clientAddress: '192.0.2.2', log: recorder(lines) });
    for (let each = 0; each < 1_000; each++) refusals.write(one, missing);
    refusals.write(other, missing);
    assert.deepEqual(
      lines.map(({ fields }) => fields['times']),
      [undefined, 2, 4, 8, 16, 32, 64, 128, 256, 512, undefined],
    );
  });

  it('forgets clients, so that it never grows beyond its limit', () => {
    const lines: LogLine[] = [];
    const refusals = new RefusalLog();
    for (let each = 0; each <= 1_000; each++) {
      const clientAddress = `10.0.${each >> 8}.${each & 255}`;
      refusals.write(fakeExchange({ clientAddress, log: recorder(lines) }), missing);
    }
    const first = fakeExchange({ clientAddress: '10.0.0.0', log: recorder(lines) });
    refusals.write(first, missing);
    assert.equal(lines.at(-1)?.fields['times'], undefined);
  });
});

describe('the log of updates that are not stored', () => {
  it('has each reason once, and what is stored again', () => {
    const lines: LogLine[] = [];
    const unstored = new UnstoredUpdates();
    const log = recorder(lines);
    unstored.stored(log);
    for (const reason of ['away', 'away', 'full', 'away']) unstored.failed(log, reason);
    unstored.stored(log);
    unstored.failed(log, 'full');
    for (let each = 0; each < 100; each++) unstored.failed(log, `reason ${each}`);
    const said = lines.filter(({ level }) => level !== 'debug');
    assert.deepEqual(
      said.slice(0, 4).map(({ fields }) => fields['error'] ?? fields['notStored']),
      ['away', 'full', 4, 'full'],
    );
    assert.equal(said.length, 3 + 8);
  });
});

describe('the log of failures of the store', () => {
  it('counts over all clients, and begins again after a minute without a failure', () => {
    const lines: LogLine[] = [];
    const clock = new TestClock();
    const failures = new FailureLog('away', 'error', clock);
    const fail = (): void => failures.write(recorder(lines), { error: 'no connection' });
    for (let each = 0; each < 1_000; each++) fail();
    clock.advance(61_000);
    fail();
    assert.deepEqual(
      lines.filter(({ level }) => level === 'error').map(({ fields }) => fields['times']),
      [undefined, 2, 4, 8, 16, 32, 64, 128, 256, 512, undefined],
    );
  });

  it('logs some of the updates of the app that cannot be stored now, and each that the hub refuses', async () => {
    const lines: LogLine[] = [];
    let code = 'transport-failed';
    const announcements = noAnnouncements();
    const publish = async (): Promise<void> => {
      throw new HubgateError(code, 'no');
    };
    const hub = { publish, announcements } as unknown as AnnouncedHub;
    const announce = createAnnounce(hub, new TestClock());
    const update = { topics: ['/'], private: false, data: '', type: undefined };
    for (let each = 0; each < 10; each++) await announce(update, recorder(lines), 'changes');
    code = 'bad-update';
    for (let each = 0; each < 3; each++) await announce(update, recorder(lines), 'changes');
    assert.deepEqual(
      lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields['times']),
      [undefined, 2, 4, 8, undefined, undefined, undefined],
    );
    // An update that is not stored now may be stored later.
    assert.equal(announcements.refused, 3);
  });
});
