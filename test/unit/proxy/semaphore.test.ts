import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ForwardError } from '../../../src/proxy/forward-error.ts';
import { Semaphore } from '../../../src/proxy/semaphore.ts';
import type { RequestingClient } from '../../../src/proxy/requesting-client.ts';

class Client implements RequestingClient {
  abandoned = false;
  listeners = new Set<() => void>();

  onAbandoned(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  leave(): void {
    this.abandoned = true;
    for (const listener of this.listeners) listener();
  }
}

const codeIs = (code: string) => (error: unknown) =>
  error instanceof ForwardError && error.code === code && error.phase === 'unsent';

describe('places at an upstream', () => {
  it('are given in turn, and back', async () => {
    const places = new Semaphore(1, 10);
    await places.take(new Client());
    const order: number[] = [];
    const waiting = [1, 2].map((number) =>
      places.take(new Client()).then(() => void order.push(number)),
    );
    places.giveBack();
    await waiting[0];
    assert.deepEqual(order, [1]);
    places.giveBack();
    await waiting[1];
    places.giveBack();
    await places.take(new Client());
    assert.deepEqual(order, [1, 2]);
  });

  it('keep nothing of 10,000 clients that left while they waited', async () => {
    const places = new Semaphore(1, 1_000);
    await places.take(new Client());
    for (let i = 0; i < 10_000; i += 1) {
      const client = new Client();
      const taking = places.take(client);
      client.leave();
      await assert.rejects(taking, codeIs('upstream-aborted'));
    }
    assert.equal(places.waiting, 0);
    const last = places.take(new Client());
    places.giveBack();
    await last;
  });

  it('are refused when too many wait', async () => {
    const places = new Semaphore(1, 2);
    const clients = [0, 1, 2].map(() => new Client());
    const [first, ...others] = clients.map((client) => places.take(client));
    await first;
    await assert.rejects(places.take(new Client()), codeIs('upstream-busy'));
    places.giveBack();
    places.giveBack();
    await Promise.all(others);
    assert.equal(clients[2]?.listeners.size, 0);
  });
});
