// Node keeps a message and a response for each pipelined request, so their number is bounded. When 250 wait,
// nothing more is parsed or read, and at most 8 begin in one turn of the event loop. A write for one of them
// may emit `drain` for another; a parser must never be resumed from inside it.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { goOnReading, stopParsingWhen, stopReading } from './node-internals.ts';
import type { Duplex } from 'node:stream';

/**
 * Requests of one connection that wait for earlier responses to be sent; as many as there can be streams in
 * HTTP/2. Beyond them, nothing is parsed or read.
 */
export const MAX_PIPELINED = 250;
/** Number of waiting requests at which the connection is read again. */
const RESUMED_PIPELINED = 125;

interface Connection {
  readonly socket: Socket;
  /** Requests whose responses have not been sent. */
  unsent: number;
  /** The turn in which requests were last begun, and their number. */
  turn: number;
  begun: number;
  /** The connection is not read until more responses have been sent, or until the next turn. */
  isStopped: boolean;
  /** Everything else that arrives on it is ignored. */
  isOver: boolean;
  /** Whether its parser asks before it continues. */
  isBounded: boolean;
}

/**
 * Bounds the memory and time that a client can use by sending requests without waiting for responses: the
 * requests that wait, and those that begin in one turn of the event loop. Node itself would parse everything
 * that it has read.
 */
export class PipelinedRequests {
  readonly #connections = new WeakMap<object, Connection>();
  readonly #turns: Turns;
  readonly #later: Later;

  /** @param later calls back in the next turn of the event loop */
  constructor(later: Later = setImmediate) {
    this.#later = later;
    this.#turns = new Turns(later);
  }

  /** Records a request. Called when its head has just been parsed. */
  begin(socket: Socket, response: ServerResponse): void {
    const connection = this.#connectionOf(socket);
    const turn = this.#turns.now();
    if (connection.turn !== turn) {
      connection.turn = turn;
      connection.begun = 0;
    }
    connection.begun += 1;
    connection.unsent += 1;
    // It closes once, so that "once" would only cost an object and a function more.
    response.on('close', () => {
      connection.unsent -= 1;
      if (connection.isStopped && connection.unsent === RESUMED_PIPELINED) this.#goOn(connection);
    });
    // Most clients wait for each response. For them, the parser need not ask.
    if (connection.begun > 1 || connection.unsent > 1) this.#bound(connection);
  }

  /** Ignores everything else that the client sends on it. Called from the parser. */
  end(socket: Socket): void {
    const connection = this.#connectionOf(socket);
    connection.isOver = true;
    this.#bound(connection);
  }

  /** The parser has stopped as requested. The bytes that it has left wait. */
  stopped(socket: Socket, rest: Buffer): void {
    const connection = this.#connectionOf(socket);
    if (connection.isOver) return;
    connection.isStopped = true;
    stopReading(socket, rest);
    if (connection.unsent <= MAX_PIPELINED) this.#goOn(connection);
  }

  /** The connection has another parser. */
  forget(socket: Socket): void {
    this.#connections.delete(socket);
  }

  #bound(connection: Connection): void {
    if (connection.isBounded) return;
    connection.isBounded = true;
    stopParsingWhen(connection.socket, () => {
      const { isOver, unsent, begun } = connection;
      return isOver || unsent > MAX_PIPELINED || begun >= MAX_BEGUN;
    });
  }

  #goOn(connection: Connection): void {
    this.#later(() => {
      if (!connection.isStopped || connection.isOver) return;
      connection.isStopped = false;
      goOnReading(connection.socket);
    });
  }

  #connectionOf(socket: Socket): Connection {
    const known = this.#connections.get(socket);
    if (known !== undefined) return known;
    const connection = {
      socket,
      unsent: 0,
      turn: -1,
      begun: 0,
      isStopped: false,
      isOver: false,
      isBounded: false,
    };
    this.#connections.set(socket, connection);
    return connection;
  }
}

/**
 * Requests of one connection that begin in one turn of the event loop, at about 0.2 ms each. If a client has
 * sent more at once, the rest begins in the following turns.
 */
export const MAX_BEGUN = 8;

interface BeginningConnection {
  /** The turn in which requests were last begun, and their number. */
  turn: number;
  begun: number;
  readonly waiting: (() => void)[];
}

/** Spreads the requests of each connection over turns of the event loop, in their order. */
export class BegunRequests {
  readonly #connections = new WeakMap<object, BeginningConnection>();
  readonly #later: Later;
  readonly #turns: Turns;

  /** @param later calls back in the next turn of the event loop */
  constructor(later: Later = setImmediate) {
    this.#later = later;
    this.#turns = new Turns(later);
  }

  /**
   * Begins a request, now or in a later turn. `begin` must not throw, and checks whether its client is still
   * there.
   */
  begin(of: object, begin: () => void): void {
    const connection = this.#connectionOf(of);
    if (connection.waiting.length > 0) {
      connection.waiting.push(begin);
      return;
    }
    const turn = this.#turns.now();
    if (connection.turn !== turn) {
      connection.turn = turn;
      connection.begun = 0;
    }
    if (connection.begun < MAX_BEGUN) {
      connection.begun += 1;
      begin();
      return;
    }
    connection.waiting.push(begin);
    this.#later(() => this.#goOn(connection));
  }

  #connectionOf(of: object): BeginningConnection {
    const known = this.#connections.get(of);
    if (known !== undefined) return known;
    const connection = { turn: -1, begun: 0, waiting: [] };
    this.#connections.set(of, connection);
    return connection;
  }

  #goOn(connection: BeginningConnection): void {
    // Requests that are added in the meantime come after these.
    const some = connection.waiting.slice(0, MAX_BEGUN);
    for (const begin of some) begin();
    connection.waiting.splice(0, some.length);
    if (connection.waiting.length > 0) this.#later(() => this.#goOn(connection));
  }
}

/** Calls back in the next turn of the event loop. */
export type Later = (turn: () => void) => void;

/** Determines whether two moments belong to the same turn of the event loop. */
export class Turns {
  readonly #later: Later;
  #turn = 0;
  #isOpen = false;

  constructor(later: Later) {
    this.#later = later;
  }

  /** The number of this turn. All calls until the next callback belong to it. */
  now(): number {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#later(() => {
        this.#isOpen = false;
        this.#turn += 1;
      });
    }
    return this.#turn;
  }
}

/**
 * Bytes of one connection that may arrive in the turn in which its parser has stopped. Node reads 64 KiB at a
 * time. A TLS connection delivers what one read has returned record by record.
 */
export const MAX_STOPPED_BYTES = 128 * 1024;

/** The bytes that have arrived on connections with a stopped parser, until a new parser gets them. */
export class StoppedParsers {
  readonly #packets = new WeakMap<Duplex, Buffer[]>();

  begin(socket: Duplex, bytes: Buffer): void {
    this.#packets.set(socket, [bytes]);
  }

  has(socket: Duplex): boolean {
    return this.#packets.has(socket);
  }

  /** Adds further bytes. Returns false if they are too many; then nothing is kept any more. */
  add(socket: Duplex, bytes: Buffer): boolean {
    const packets = this.#packets.get(socket);
    if (packets === undefined) return false;
    packets.push(bytes);
    if (sizeOf(packets) <= MAX_STOPPED_BYTES) return true;
    this.#packets.delete(socket);
    return false;
  }

  /** Returns all bytes that have arrived, in order, once; null if nothing is kept. */
  take(socket: Duplex): Buffer | null {
    const packets = this.#packets.get(socket);
    this.#packets.delete(socket);
    return packets === undefined ? null : Buffer.concat(packets);
  }
}

function sizeOf(packets: readonly Buffer[]): number {
  return packets.reduce((sum, { length }) => sum + length, 0);
}
