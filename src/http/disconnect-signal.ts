import type { Socket } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { probe } from '../kernel/node-internals.ts';

/** The listeners that are called once if a client leaves before its response is complete. */
export class DisconnectSignal {
  /** Most signals have only one. */
  #listener: (() => void) | null = null;
  #others: Set<() => void> | null = null;
  #abort: AbortController | undefined;
  #isOver = false;

  /** Adds a listener. It is called soon if the client has left already. The returned function removes it. */
  add(listener: () => void): () => void {
    if (this.#isOver) {
      queueMicrotask(listener);
      return () => {};
    }
    if (this.#listener === null) this.#listener = listener;
    else (this.#others ??= new Set()).add(listener);
    return () => {
      if (this.#listener === listener) this.#listener = null;
      else this.#others?.delete(listener);
    };
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#isOver) this.#abort.abort();
    }
    return this.#abort.signal;
  }

  trigger(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abort?.abort();
    const [listener, others] = [this.#listener, this.#others];
    this.#listener = null;
    this.#others = null;
    listener?.();
    if (others !== null) for (const other of others) other();
  }
}

/** Interval in which a paused connection is probed, in milliseconds. */
const PROBE_INTERVAL_MS = 5_000;

/**
 * Closes a paused connection after its client has left. Nothing else would notice that while a request is in progress
 * and the client has sent more than is read: the rest of a body, further requests, or messages of a WebSocket. If the
 * client has closed its connection without a reset, the keep-alive probes of the system provoke one.
 */
export class PausedProbe {
  readonly #socket: Socket;
  readonly #clock: Clock;
  #stop: (() => void) | null = null;

  constructor(socket: Socket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
  }

  /** The connection has been paused. The probes end by themselves when it is read again. */
  start(): void {
    this.#stop ??= this.#clock.after(PROBE_INTERVAL_MS, () => {
      this.#stop = null;
      if (this.#socket.destroyed || !this.#socket.isPaused()) return;
      probe(this.#socket);
      this.start();
    });
  }

  stop(): void {
    this.#stop?.();
    this.#stop = null;
  }
}
