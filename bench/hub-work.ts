import { setTimeout as after } from 'node:timers/promises';
import { type BenchContext, inRounds, percentile } from './context.ts';
import { type Hub, type HubSettings, peerHub, startHubgate, startNchan } from './hubs.ts';
import { makeRequests, Subscribers } from './load/generators.ts';
import { cpuOf, residentOf } from './processes.ts';
import { Publisher } from './publisher.ts';
import { withPostgres, withRedis } from './stores.ts';

export const TOPIC = 'https://example.com/books/1';
export const SUBSCRIBERS = 4000;
/** Before what is measured, so that what is made for the first events is there. */
export const WARM_UP_ROUNDS = 10;
/**
 * Times that all subscriptions are opened before what is measured. V8 still compiles after three of them: the third
 * costs hubgate twice of what the eighth does.
 */
const WARM_UP_OPENINGS = 8;
/** Times that they are opened then. */
const OPENINGS = 3;
/** Publishes that may wait on one connection; the gateway takes 250. */
const IN_FLIGHT = 200;
/** Replays of a round. One takes a second or two, because it rests while updates are published. */
const REPLAYS = 10;
/** Live delivery without a replay is measured for this long before each replay. */
const QUIET_MS = 400;
/** The gateway may still clean up after a replay. */
const AFTER_REPLAY_MS = 200;
/** Lets what was opened settle before memory is read. */
const SETTLE_MS = 3000;
/** A program that collects garbage when it has nothing to do has done so after its start. */
const IDLE_MS = 15_000;
/** And once more, at most a minute later. */
const LONG_IDLE_MS = 70_000;
/** A compiler that works while the program runs needs this long. */
export const WARM_UP_MS = 3000;

/** `fanout`: one update at a time to 4,000 subscribers. */
export function fanout(context: BenchContext): Promise<void> {
  const updates = context.amount(100);
  return eachHub(context, async (hub) => deliver(context, hub, 'event delivered', updates, 1));
}

/** `burst`: ten publishes in flight. */
export function burst(context: BenchContext): Promise<void> {
  const updates = context.amount(300);
  return eachHub(context, async (hub) => deliver(context, hub, 'event in a burst', updates, 10));
}

async function deliver(
  context: BenchContext,
  hub: Hub,
  work: string,
  updates: number,
  inFlight: number,
): Promise<void> {
  const count = context.amount(SUBSCRIBERS);
  const subscribers = await openSubscribers(hub, count);
  const publisher = await Publisher.open(hub);
  for (let i = 0; i < WARM_UP_ROUNDS; i += 1) await round(publisher, subscribers, count, inFlight);
  const before = cpuOf(hub.pid);
  const last: number[] = [];
  for (let done = 0; done < updates; done += inFlight) {
    last.push(await round(publisher, subscribers, count, inFlight));
  }
  const spent = cpuOf(hub.pid) - before;
  context.note(work, hub.name, 'µs of CPU', spent / (updates * count));
  last.sort((a, b) => a - b);
  context.note(
    `${work}: to the last of ${count}, p50`,
    hub.name,
    'ms',
    percentile(last, 0.5) / 1000,
  );
  context.note(
    `${work}: to the last of ${count}, p99`,
    hub.name,
    'ms',
    percentile(last, 0.99) / 1000,
  );
  publisher.close();
  await subscribers.close();
}

/** Publishes, waits until all have everything, and returns the longest way, in microseconds. */
export async function round(
  publisher: Publisher,
  subscribers: Subscribers,
  count: number,
  inFlight: number,
): Promise<number> {
  const received = subscribers.expect(count * inFlight);
  await publisher.publish(TOPIC, inFlight);
  const delays = await received;
  // Not Math.max(...delays): forty thousand are too many arguments.
  return delays.reduce((most, one) => Math.max(most, one), 0);
}

/** `subscribe`: what opening a stream costs. */
export function subscribe(context: BenchContext): Promise<void> {
  return eachHub(context, async (hub) => {
    const count = context.amount(SUBSCRIBERS);
    for (let i = 0; i < WARM_UP_OPENINGS; i += 1) {
      const warm = await openSubscribers(hub, count);
      await warm.close();
      // What closing costs is not what is measured.
      await after(SETTLE_MS);
    }
    let spent = 0;
    for (let i = 0; i < OPENINGS; i += 1) {
      const before = cpuOf(hub.pid);
      const subscribers = await openSubscribers(hub, count);
      spent += cpuOf(hub.pid) - before;
      await subscribers.close();
      await after(SETTLE_MS);
    }
    context.note('subscription opened', hub.name, 'µs of CPU', spent / (OPENINGS * count));
  });
}

/** `memory`: what an idle subscriber holds. */
export async function memory(context: BenchContext): Promise<void> {
  const measure = async (hub: Hub, count: number, work: string): Promise<void> => {
    const { opened, idle } = await idleSubscriber(hub, count);
    context.note(`${work}, just opened`, hub.name, 'KB', opened);
    context.note(work, hub.name, 'KB', idle);
  };
  await eachHub(context, (hub) =>
    measure(hub, context.amount(SUBSCRIBERS), 'idle plain subscriber'),
  );
  const secure = await startHubgate(context, { tls: true });
  try {
    await measure(secure, context.amount(SUBSCRIBERS / 2), 'idle TLS subscriber');
  } finally {
    await secure.stop();
  }
}

/** KB that each of so many subscribers takes: when all have just been opened, and after a minute without updates. */
export async function idleSubscriber(
  hub: Hub,
  count: number,
): Promise<{ readonly opened: number; readonly idle: number }> {
  const warm = await openSubscribers(hub, 50);
  await warm.close();
  await after(IDLE_MS);
  const before = residentOf(hub.pid);
  const held = (): number => (residentOf(hub.pid) - before) / count;
  const subscribers = await openSubscribers(hub, count);
  await after(SETTLE_MS);
  const opened = held();
  await after(LONG_IDLE_MS);
  const idle = held();
  await subscribers.close();
  return { opened, idle };
}

/** `publish`: 64 publishers, to memory and to a disk. */
export async function publish(context: BenchContext): Promise<void> {
  const measure = async (hub: Hub, work: string): Promise<void> => {
    const durationMs = context.amount(5000);
    const request = hub.publish(TOPIC, 'x'.repeat(200));
    const order = { port: hub.port, connections: 64, request, caFile: hub.caFile };
    await makeRequests({ ...order, durationMs: WARM_UP_MS });
    const before = cpuOf(hub.pid);
    const { answers, delaysUs, failures } = await makeRequests({ ...order, durationMs });
    if (failures > 0) throw new Error(`${hub.name} refused ${failures} of ${answers} publishes`);
    context.note(work, hub.name, 'µs of CPU', (cpuOf(hub.pid) - before) / answers);
    context.note(`${work}: rate`, hub.name, '/s', answers / (durationMs / 1000));
    context.note(`${work}: p99`, hub.name, 'ms', percentile(delaysUs, 0.99) / 1000);
  };
  await eachHub(context, (hub) => measure(hub, 'publish'));
  const stored = async (transport: string, work: string): Promise<void> => {
    const hub = await startHubgate(context, { transport });
    try {
      await measure(hub, work);
    } finally {
      await hub.stop();
    }
  };
  await stored('transport lmdb', 'publish, on disk when acknowledged');
  await withRedis(context, (transport) => stored(transport('publish'), 'publish, in Redis'));
  const inPostgres = 'publish, in PostgreSQL, on disk when acknowledged';
  await withPostgres(context, (transport) => stored(transport('publish'), inPostgres));
}

/** `replay`: a long history to one client, while another listens. */
export async function replay(context: BenchContext): Promise<void> {
  await replayBesideLive(context);
  await withPostgres(context, (transport) => replayFrom(context, transport('replay'), 'postgres'));
}

/** The same without PostgreSQL. */
export async function replayBesideLive(context: BenchContext): Promise<void> {
  await replayFrom(context, transportOf('memory'), 'memory');
  await replayFrom(context, transportOf('lmdb'), 'lmdb');
  await withRedis(context, (transport) => replayFrom(context, transport('replay'), 'redis'));
}

/** With room for what is published beside the replays. */
function transportOf(name: string): string {
  return `transport ${name} {\n\t\t\tsize 200000\n\t\t}`;
}

async function replayFrom(context: BenchContext, transport: string, log: string): Promise<void> {
  const hub = await startHubgate(context, { transport });
  try {
    await replayOf(context, hub, log);
  } finally {
    await hub.stop();
  }
}

async function replayOf(context: BenchContext, hub: Hub, log: string): Promise<void> {
  const updates = context.amount(100_000);
  const publisher = await Publisher.open(hub);
  for (let done = 0; done < updates; done += IN_FLIGHT) await publisher.publish(TOPIC, IN_FLIGHT);
  const listener = new Subscribers();
  await listener.open({ count: 1, port: hub.port, request: hub.subscribe('live'), caFile: null });
  const behind = new Subscribers();
  behind.yieldProcessor();
  await inRounds(context, [hub], async () => {
    const quiet: number[] = [];
    const busy: number[] = [];
    let cpu = 0;
    // In turns, so that both see the same minute of the machine.
    for (let i = 0; i < REPLAYS; i += 1) {
      quiet.push(...(await liveDelays(publisher, listener, async () => after(QUIET_MS))));
      const before = cpuOf(hub.pid);
      const replayed = async (): Promise<void> => {
        const all = behind.receive(updates);
        const request = hub.subscribe(TOPIC, 'earliest');
        await behind.open({ count: 1, port: hub.port, request, caFile: null });
        await all;
      };
      busy.push(...(await liveDelays(publisher, listener, replayed)));
      cpu += cpuOf(hub.pid) - before;
      await after(AFTER_REPLAY_MS);
    }
    const each = cpu / (REPLAYS * updates);
    const [without, during] = [p99Ms(quiet), p99Ms(busy)];
    return [
      { work: `event replayed from ${log}`, unit: 'µs of CPU', value: each },
      { work: `live p99 without a replay, ${log}`, unit: 'ms', value: without },
      { work: `live p99 during a replay, ${log}`, unit: 'ms', value: during },
      { work: `live p99 during / without a replay, ${log}`, unit: '×', value: during / without },
    ];
  });
  publisher.close();
  await behind.close();
  await listener.close();
}

/** @param delaysUs microseconds, in any order */
function p99Ms(delaysUs: readonly number[]): number {
  const sorted = delaysUs.toSorted((a, b) => a - b);
  return percentile(sorted, 0.99) / 1000;
}

/** From publication to arrival of updates that are published while `work` is done, microseconds. */
async function liveDelays(
  publisher: Publisher,
  listener: Subscribers,
  work: () => Promise<void>,
): Promise<readonly number[]> {
  const over = new AbortController();
  const done = work().finally(() => over.abort());
  // A failure is reported below, when the loop has ended, and not by ending the process.
  done.catch(() => {});
  const delays: number[] = [];
  while (!over.signal.aborted) {
    const received = listener.expect(1);
    await publisher.publish('live');
    delays.push(...(await received));
    await after(2);
  }
  await done;
  return delays;
}

export async function openSubscribers(hub: Hub, count: number): Promise<Subscribers> {
  const subscribers = new Subscribers();
  const { port, caFile } = hub;
  await subscribers.open({ count, port, request: hub.subscribe(TOPIC), caFile });
  return subscribers;
}

/** Measures hubgate and every peer in turn, each alone on the machine. */
async function eachHub(
  context: BenchContext,
  measure: (hub: Hub) => Promise<void>,
  settings: HubSettings = {},
): Promise<void> {
  const starts: (() => Promise<Hub | null>)[] = [
    () => startHubgate(context, settings),
    () => startNchan(context),
    ...context.peerHubs.map((url) => async () => peerHub(url)),
  ];
  for (const start of starts) {
    const hub = await start();
    if (hub === null) continue;
    try {
      await measure(hub);
    } finally {
      await hub.stop();
    }
  }
}
