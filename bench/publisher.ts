import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';
import { connect as connectTls } from 'node:tls';
import type { Hub } from './hubs.ts';

/** One publisher on one connection, used by the bench itself: one request after the other, or several in flight. */
export class Publisher {
  readonly #socket: Socket;
  readonly #hub: Hub;
  #answered = 0;
  #wanted = 0;
  #wake: () => void = () => {};

  private constructor(hub: Hub, socket: Socket) {
    this.#hub = hub;
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      for (
        let at = chunk.indexOf('HTTP/1.1 ');
        at !== -1;
        at = chunk.indexOf('HTTP/1.1 ', at + 1)
      ) {
        if (chunk[at + 9] !== 0x32)
          socket.destroy(new Error(chunk.toString('latin1', at, at + 300)));
        this.#answered += 1;
      }
      if (this.#answered >= this.#wanted) this.#wake();
    });
  }

  static async open(hub: Hub): Promise<Publisher> {
    const socket =
      hub.caFile === null
        ? connect(hub.port, '127.0.0.1').setNoDelay()
        : connectTls({
            port: hub.port,
            host: '127.0.0.1',
            servername: 'localhost',
            ca: readFileSync(hub.caFile),
          });
    await once(socket, hub.caFile === null ? 'connect' : 'secureConnect');
    return new Publisher(hub, socket);
  }

  /** Publishes `count` updates at once and resolves when all are acknowledged. */
  async publish(topic: string, count = 1): Promise<void> {
    this.#answered = 0;
    this.#wanted = count;
    const acknowledged = new Promise<void>((resolve, reject) => {
      this.#wake = resolve;
      this.#socket.once('error', reject);
    });
    for (let i = 0; i < count; i += 1) {
      const stamp = process.hrtime.bigint() / 1000n;
      this.#socket.write(this.#hub.publish(topic, `stamp:${stamp} ${'x'.repeat(60)}`));
    }
    await acknowledged;
    this.#socket.removeAllListeners('error');
  }

  close(): void {
    this.#socket.destroy();
  }
}
