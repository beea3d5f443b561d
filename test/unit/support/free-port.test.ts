import { strict as assert } from 'node:assert';
import { existsSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { freePort } from '../../support/free-port.ts';

/** State of `/proc/net/tcp` (proc_net_tcp, linux/tcp_states.h). */
const TIME_WAIT = '06';

describe('a free port of the tests', () => {
  it('is kept from all who ask for any port', {
    skip: !existsSync('/proc/net/tcp') && 'no /proc/net/tcp here',
  }, async () => {
    const ports = await Promise.all(Array.from({ length: 20 }, freePort));
    const kept = new Set<number>();
    for (const line of readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1)) {
      const [, local = '', , state] = line.trim().split(/\s+/);
      if (state === TIME_WAIT) kept.add(Number.parseInt(local.slice(-4), 16));
    }
    assert.deepEqual(
      ports.filter((port) => !kept.has(port)),
      [],
    );
  });
});
