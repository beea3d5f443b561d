import type { Duplex } from 'node:stream';

/**
 * Bytes of one connection that may come in the turn in which its parser has stopped. Node reads 64 KiB
 * at a time; a connection over TLS hands over record by record what one read has brought.
 */
export const MAX_STOPPED_BYTES = 128 * 1024;

/** What has come of connections whose parser has just stopped, until another one is given it. */
export class StoppedParsers {
  readonly #packets = new WeakMap<Duplex, Buffer[]>();

  begin(socket: Duplex, bytes: Buffer): void {
    this.#packets.set(socket, [bytes]);
  }

  has(socket: Duplex): boolean {
    return this.#packets.has(socket);
  }

  /** Adds what comes behind; false where that is too much, and nothing is kept any more. */
  add(socket: Duplex, bytes: Buffer): boolean {
    const packets = this.#packets.get(socket);
    if (packets === undefined) return false;
    packets.push(bytes);
    if (sizeOf(packets) <= MAX_STOPPED_BYTES) return true;
    this.#packets.delete(socket);
    return false;
  }

  /** All that has come, in order, once; null where nothing is kept. */
  take(socket: Duplex): Buffer | null {
    const packets = this.#packets.get(socket);
    this.#packets.delete(socket);
    return packets === undefined ? null : Buffer.concat(packets);
  }
}

function sizeOf(packets: readonly Buffer[]): number {
  return packets.reduce((sum, { length }) => sum + length, 0);
}
