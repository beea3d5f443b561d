import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { ConnectionMeasures } from '../../../src/server/connection-policy.ts';
import { type HandshakePolicies, TlsEndpoint } from '../../../src/server/tls-endpoint.ts';
import type { HandshakePolicy } from '../../../src/tls/handshake-policy.ts';
import { TestClock } from '../../support/test-clock.ts';

const HOUR_MS = 60 * 60 * 1000;
const POLICY: HandshakePolicy = { id: 'one', options: {}, clientAuth: null, alpn: [] };
const POLICIES: HandshakePolicies = { all: [POLICY], policyFor: () => POLICY };
/** Of a file that was cut while it was written, say. */
const UNUSABLE = { cert: 'not a certificate', key: 'not a key' };

describe('the TLS side of a listener', () => {
  it('keeps its servers if none can be created with a renewed certificate, and retries', async () => {
    const { endpoint, clock, warnings, asked } = start();
    endpoint.ready(POLICIES, null)();
    for (const times of [1, 2]) {
      clock.advance(HOUR_MS);
      while (warnings.length < times) await new Promise((resolve) => setImmediate(resolve));
      assert.equal(asked(), times);
    }
    assert.match(warnings[0] ?? '', /is not renewed/);
    endpoint.close();
    assert.equal(clock.waiting, 0);
  });

  it('changes nothing if a server cannot be created', () => {
    const { endpoint, clock } = start();
    assert.throws(() => endpoint.ready(POLICIES, UNUSABLE));
    assert.equal(clock.waiting, 0);
  });
});

function start() {
  const clock = new TestClock();
  const warnings: string[] = [];
  const log: Logger = {
    ...silentLogger,
    warn: (message) => void warnings.push(message),
  };
  let asked = 0;
  const endpoint = new TlsEndpoint({
    certificates: () => ({
      fallback: async () => {
        asked += 1;
        return UNUSABLE;
      },
      onFallback: () => () => {},
      certificateFor: async () => UNUSABLE,
      challengeFor: async () => null,
      certificates: () => [],
      orders: () => [],
      begin() {},
    }),
    protocols: () => ['h1'],
    ticketKeys: { follow: async () => () => {} },
    measures: new ConnectionMeasures(),
    onSecure() {},
    clock,
    log,
  });
  return { endpoint, clock, warnings, asked: () => asked };
}
