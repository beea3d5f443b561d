import { randomUUID } from 'node:crypto';
import { NO_GRANTS } from '../src/hub/grants.ts';
import { Hub } from '../src/hub/hub.ts';
import { compileMatcher, type MatcherSpec } from '../src/hub/matcher.ts';
import { profiles } from '../src/hub/profile.ts';
import { systemClock } from '../src/kernel/clock.ts';
import { silentLogger } from '../src/kernel/log.ts';
import { Scheduler } from '../src/kernel/scheduler.ts';
import { TimerWheel } from '../src/kernel/timer-wheel.ts';
import { createMemoryTransport } from '../src/transports/memory/memory-transport.ts';
import type { BenchContext } from './context.ts';

const BASE = 'https://example.com/.well-known/hub';

/**
 * `match`: what finding the subscribers of an update costs as they grow in number, in the core
 * alone, with streams that lead nowhere.
 */
export async function match(context: BenchContext): Promise<void> {
  const exact = (i: number): MatcherSpec => ({
    match: `https://example.com/books/${i}`,
    matchType: 'exact',
  });
  const pattern = (i: number): MatcherSpec => ({
    match: `https://example.com/shops/${i}/:id`,
    matchType: 'urlpattern',
  });
  await compare(context, 'publish to one of N exact topics', exact, [100, context.amount(100_000)]);
  await compare(context, 'publish with N URL Patterns', pattern, [10, context.amount(10_000)]);
}

async function compare(
  context: BenchContext,
  work: string,
  specOf: (i: number) => MatcherSpec,
  counts: readonly number[],
): Promise<void> {
  for (const count of counts) {
    const hub = await hubWith(count, specOf);
    const publishes = context.amount(20_000);
    await publish(hub, publishes / 10);
    const before = process.cpuUsage();
    await publish(hub, publishes);
    const { user, system } = process.cpuUsage(before);
    context.note(
      work.replace('N', String(count)),
      'hubgate',
      'µs of CPU',
      (user + system) / publishes,
    );
    hub.close();
  }
}

async function hubWith(count: number, specOf: (i: number) => MatcherSpec): Promise<Hub> {
  const names = { profile: profiles.hub, hubPath: '/.well-known/hub', base: BASE };
  const transport = createMemoryTransport({ size: 1000 });
  const hub = new Hub({
    transport,
    names,
    clock: systemClock,
    wheel: new TimerWheel(systemClock),
    scheduler: new Scheduler(),
    log: silentLogger,
  });
  for (let i = 0; i < count; i += 1) {
    await hub.subscribe({
      matchers: [compileMatcher(specOf(i), BASE, null)],
      lastEventId: null,
      grants: NO_GRANTS,
      issuerKey: null,
      tokenId: null,
      session: null,
      lifetimeMs: null,
      expiresAtMs: null,
      settings: {
        heartbeatMs: 0,
        dispatchTimeoutMs: 5000,
        maxBufferBytes: 1 << 20,
        announced: false,
      },
      place: null,
      revocationEpoch: hub.admission.revocationEpoch,
    });
  }
  return hub;
}

async function publish(hub: Hub, count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) {
    await hub.publish({
      id: `urn:uuid:${randomUUID()}`,
      topics: ['https://example.com/books/7'],
      data: 'x',
      private: false,
      type: null,
      retry: null,
    });
  }
}
