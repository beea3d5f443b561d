import type { Duplex } from 'node:stream';

/** Bytes that a client may send before its upgrade is answered, for which it is to wait (RFC 6455 §4.1). */
export const MAX_EARLY_BYTES = 64 * 1024;

/**
 * Reads a connection whose upgrade is pending: only who reads notices that the client leaves, and what waits
 * for an upstream that never answers would wait with both sockets for ever.
 */
export class PendingClient {
  readonly #socket: Duplex;
  readonly #early: Buffer[];
  #bytes: number;

  /** `early` came with the head of the request. */
  constructor(socket: Duplex, early: Buffer) {
    this.#socket = socket;
    this.#early = [early];
    this.#bytes = early.length;
    socket.on('data', this.#onData).on('end', this.#onEnd);
    socket.resume();
  }

  /** Reads no more, and gives back what has come. */
  release(): void {
    const socket = this.#socket;
    socket.off('data', this.#onData).off('end', this.#onEnd);
    socket.pause();
    if (this.#bytes > 0 && !socket.destroyed) socket.unshift(Buffer.concat(this.#early));
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#early.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_EARLY_BYTES) this.#socket.destroy();
  };

  /** Who ends its side of a WebSocket that is not there yet has no use for it. */
  readonly #onEnd = (): void => {
    this.#socket.destroy();
  };
}
