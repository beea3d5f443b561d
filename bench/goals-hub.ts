import { setTimeout as after } from 'node:timers/promises';
import { type BenchContext, inRounds, percentile } from './context.ts';
import {
  idleSubscriber,
  openSubscribers,
  round,
  SUBSCRIBERS,
  TOPIC,
  WARM_UP_MS,
  WARM_UP_ROUNDS,
} from './hub-work.ts';
import {
  type Hub,
  peerHub,
  startFloorHub,
  startHubgate,
  startNchan,
  startReferenceHub,
} from './hubs.ts';
import { startFloor, startSocketsFloor } from './gateways.ts';
import { makeRequests } from './load/generators.ts';
import { cpuOf } from './processes.ts';
import { Publisher } from './publisher.ts';

/** Rounds of memory settle longer than others, and differ less. */
const MAX_MEMORY_ROUNDS = 3;
/** Times that all subscriptions are opened in a round before what is measured. */
const WARM_UP_OPENINGS_OF_A_ROUND = 3;
/** The connections of all subscribers are closed by then. */
const CLOSING_MS = 1500;
/** How many subscribers an update has, and how many updates are published at once. */
const DELIVERIES = [
  { work: 'event delivered', subscribers: SUBSCRIBERS, inFlight: 1, updates: 20 },
  { work: 'event in a burst', subscribers: 1000, inFlight: 10, updates: 60 },
] as const;
const PUBLISHERS = 64;
const PUBLISH_MS = 2000;

/** What opens streams of events with nothing behind them. */
const FLOORS = [startFloor, startSocketsFloor];

type StartHub = (context: BenchContext) => Promise<Hub | null>;

/** Memory of a subscriber, in new processes each round. They run at the same time, because time does not count. */
export async function idleSubscribers(context: BenchContext): Promise<void> {
  const plain: readonly StartHub[] = [
    startHubgate,
    ...FLOORS.map(
      (start): StartHub =>
        (one) =>
          startFloorHub(one, start, false),
    ),
    (one) => startReferenceHub(one),
  ];
  const secure: readonly StartHub[] = [
    (one) => startHubgate(one, { tls: true }),
    ...FLOORS.map(
      (start): StartHub =>
        (one) =>
          startFloorHub(one, start, true),
    ),
  ];
  const kinds = [
    { work: 'idle plain subscriber', count: SUBSCRIBERS, starts: plain },
    { work: 'idle TLS subscriber', count: SUBSCRIBERS / 2, starts: secure },
  ];
  for (const { work, count, starts } of kinds) {
    const held = new Map<string, { opened: number[]; idle: number[] }>();
    for (let turn = 0; turn < Math.min(context.rounds, MAX_MEMORY_ROUNDS); turn += 1) {
      await withHubs(context, starts, async (hubs) => {
        const measure = async (hub: Hub): Promise<void> => {
          const { opened, idle } = await idleSubscriber(hub, context.amount(count));
          const before = held.get(hub.name) ?? { opened: [], idle: [] };
          held.set(hub.name, { opened: [...before.opened, opened], idle: [...before.idle, idle] });
        };
        await Promise.all(hubs.map(measure));
      });
    }
    for (const [name, { opened, idle }] of held) {
      context.noteRounds(`${work}, just opened`, name, 'KB', opened);
      context.noteRounds(work, name, 'KB', idle);
    }
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
    await after(CLOSING_MS);
    return spent / count;
  };
  const starts: readonly StartHub[] = [
    startHubgate,
    startNchan,
    (one) => startReferenceHub(one),
    ...FLOORS.map(
      (start): StartHub =>
        (one) =>
          startFloorHub(one, start, false),
    ),
    ...context.peerHubs.map((url) => async () => peerHub(url)),
  ];
  return withHubs(context, starts, async (hubs) => {
    await inRounds(context, hubs, async (hub) => {
      const first = await open(hub);
      for (let i = 0; i < WARM_UP_OPENINGS_OF_A_ROUND; i += 1) await open(hub);
      const work = 'subscription opened';
      return [
        { work: `${work}, first ones after a pause`, unit: 'µs of CPU', value: first },
        { work, unit: 'µs of CPU', value: await open(hub) },
      ];
    });
  });
}

/** One update at a time to 4,000 subscribers, and ten at a time to 1,000. */
export async function deliveries(context: BenchContext): Promise<void> {
  for (const { work, subscribers, inFlight, updates } of DELIVERIES) {
    const count = context.amount(subscribers);
    const starts: readonly StartHub[] = [startHubgate, startNchan, (one) => startReferenceHub(one)];
    await withHubs(context, starts, async (hubs) => {
      const listening = [];
      for (const hub of hubs) {
        const some = await openSubscribers(hub, count);
        const publisher = await Publisher.open(hub);
        const { name, pid } = hub;
        const publish = () => round(publisher, some, count, inFlight);
        for (let i = 0; i < WARM_UP_ROUNDS; i += 1) await publish();
        const close = (): Promise<void> => {
          publisher.close();
          return some.close();
        };
        listening.push({ name, pid, publish, close });
      }
      await inRounds(context, listening, async ({ pid, publish }) => {
        const before = cpuOf(pid);
        const last: number[] = [];
        for (let done = 0; done < updates; done += inFlight) last.push(await publish());
        const value = (cpuOf(pid) - before) / (updates * count);
        last.sort((one, other) => one - other);
        return [
          { work, unit: 'µs of CPU', value },
          { work: `${work}: to the last, median`, unit: 'ms', value: percentile(last, 0.5) / 1000 },
        ];
      });
      for (const one of listening) await one.close();
    });
  }
}

/** 64 publishers, to memory and to a disk. */
export async function publishes(context: BenchContext): Promise<void> {
  const durable: readonly StartHub[] = [
    (one) => startHubgate(one, { transport: 'transport lmdb' }),
    (one) => startReferenceHub(one, 'bolt'),
  ];
  for (const [work, starts] of [
    ['publish', [startHubgate, startNchan, (one) => startReferenceHub(one)]],
    ['publish, on disk when acknowledged', durable],
  ] as const satisfies readonly (readonly [string, readonly StartHub[]])[]) {
    await withHubs(context, starts, async (hubs) => {
      const publish = async (hub: Hub, durationMs: number) => {
        const { port, caFile } = hub;
        const request = hub.publish(TOPIC, 'x'.repeat(200));
        const order = { port, caFile, request, connections: PUBLISHERS, durationMs };
        const before = cpuOf(hub.pid);
        const { answers } = await makeRequests(order);
        return { answers, each: (cpuOf(hub.pid) - before) / answers };
      };
      for (const hub of hubs) await publish(hub, WARM_UP_MS);
      await inRounds(context, hubs, async (hub) => {
        const durationMs = context.amount(PUBLISH_MS);
        const { answers, each } = await publish(hub, durationMs);
        return [
          { work, unit: 'µs of CPU', value: each },
          { work: `${work}: rate`, unit: '/s', value: answers / (durationMs / 1000) },
        ];
      });
    });
  }
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
