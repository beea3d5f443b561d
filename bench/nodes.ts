import type { BenchContext } from './context.ts';
import { type Hub, startHubgate } from './hubs.ts';
import { Subscribers } from './load/generators.ts';
import { cpuOf } from './processes.ts';
import { Publisher } from './publisher.ts';
import { withPostgres, withRedis } from './stores.ts';

const TOPIC = 'https://example.com/books/1';
const SUBSCRIBERS_OF_A_NODE = 1000;
const WARM_UP_UPDATES = 20;

/** `nodes`: what an event to a subscriber costs where one, two or three gateways share a history. */
export async function nodes(context: BenchContext): Promise<void> {
  const measureOn = (store: string) => async (transport: (stream: string) => string) => {
    for (const count of [1, 2, 3]) {
      await measure(context, count, store, transport(`nodes-${count}`));
    }
  };
  await withRedis(context, measureOn('Redis'));
  await withPostgres(context, measureOn('PostgreSQL'));
}

async function measure(
  context: BenchContext,
  count: number,
  store: string,
  transport: string,
): Promise<void> {
  const hubs: Hub[] = [];
  const subscribers: Subscribers[] = [];
  try {
    for (let node = 0; node < count; node += 1) {
      const hub = await startHubgate(context, { transport });
      hubs.push(hub);
      const some = new Subscribers();
      const order = { count: SUBSCRIBERS_OF_A_NODE, port: hub.port, caFile: null };
      await some.open({ ...order, request: hub.subscribe(TOPIC) });
      subscribers.push(some);
    }
    const [first] = hubs;
    if (first === undefined) return;
    const publisher = await Publisher.open(first);
    const publish = async (updates: number): Promise<void> => {
      for (let done = 0; done < updates; done += 1) {
        const received = subscribers.map((some) => some.expect(SUBSCRIBERS_OF_A_NODE));
        await publisher.publish(TOPIC);
        await Promise.all(received);
      }
    };
    await publish(WARM_UP_UPDATES);
    const spentBy = (): number => hubs.reduce((sum, { pid }) => sum + cpuOf(pid), 0);
    const before = spentBy();
    const updates = context.amount(200);
    await publish(updates);
    const each = (spentBy() - before) / (updates * count * SUBSCRIBERS_OF_A_NODE);
    context.note(`event delivered by ${count} nodes on ${store}`, 'hubgate', 'µs of CPU', each);
    publisher.close();
  } finally {
    for (const some of subscribers) await some.close();
    for (const hub of hubs) await hub.stop();
  }
}
