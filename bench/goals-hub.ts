import { setTimeout as after } from 'node:timers/promises';
import { type BenchContext, inRounds } from './context.ts';
import {
  idleSubscriber,
  openSubscribers,
  SETTLE_MS,
  SUBSCRIBERS,
  WARM_UP_OPENINGS,
} from './hub-work.ts';
import {
  type Hub,
  peerHub,
  startFloorHub,
  startHubgate,
  startNchan,
  startReferenceHub,
} from './hubs.ts';
import { cpuOf } from './processes.ts';

type StartHub = (context: BenchContext) => Promise<Hub | null>;

/** Memory of a subscriber, in new processes each round. They run at the same time, because time does not count. */
export async function idleSubscribers(context: BenchContext): Promise<void> {
  const plain: readonly StartHub[] = [
    startHubgate,
    (one) => startFloorHub(one, false),
    startReferenceHub,
  ];
  const secure: readonly StartHub[] = [
    (one) => startHubgate(one, { tls: true }),
    (one) => startFloorHub(one, true),
  ];
  const kinds = [
    { work: 'idle plain subscriber', count: SUBSCRIBERS, starts: plain },
    { work: 'idle TLS subscriber', count: SUBSCRIBERS / 2, starts: secure },
  ];
  for (const { work, count, starts } of kinds) {
    const held = new Map<string, number[]>();
    for (let round = 0; round < context.rounds; round += 1) {
      await withHubs(context, starts, async (hubs) => {
        const measure = async (hub: Hub): Promise<void> => {
          const value = await idleSubscriber(hub, context.amount(count));
          held.set(hub.name, [...(held.get(hub.name) ?? []), value]);
        };
        await Promise.all(hubs.map(measure));
      });
    }
    for (const [name, values] of held) context.noteRounds(work, name, 'KB', values);
  }
}

/** What opening a stream costs. */
export function openings(context: BenchContext): Promise<void> {
  const count = context.amount(SUBSCRIBERS);
  const open = async (hub: Hub): Promise<number> => {
    const before = cpuOf(hub.pid);
    const subscribers = await openSubscribers(hub, count);
    const spent = cpuOf(hub.pid) - before;
    await subscribers.close();
    // What closing costs is not what is measured.
    await after(SETTLE_MS);
    return spent / count;
  };
  const starts: readonly StartHub[] = [
    startHubgate,
    startNchan,
    startReferenceHub,
    (one) => startFloorHub(one, false),
    ...context.peerHubs.map((url) => async () => peerHub(url)),
  ];
  return withHubs(context, starts, async (hubs) => {
    for (const hub of hubs) for (let i = 0; i < WARM_UP_OPENINGS; i += 1) await open(hub);
    await inRounds(context, hubs, async (hub) => [
      { work: 'subscription opened', unit: 'µs of CPU', value: await open(hub) },
    ]);
  });
}

async function withHubs(
  context: BenchContext,
  starts: readonly StartHub[],
  work: (hubs: readonly Hub[]) => Promise<void>,
): Promise<void> {
  const hubs: Hub[] = [];
  try {
    for (const start of starts) {
      const hub = await start(context);
      if (hub !== null) hubs.push(hub);
    }
    await work(hubs);
  } finally {
    for (const hub of hubs) await hub.stop();
  }
}
