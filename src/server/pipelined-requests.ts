// Node keeps a message and a response for each pipelined request, so their number is bounded:
// behind 250 that wait nothing is parsed or read, and at most 8 begin in one turn of the event
// loop. A write for one of them may emit `drain` for another; nothing may resume a parser from
// inside it.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { goOnReading, stopParsingWhen, stopReading } from './node-internals.ts';
import type { Duplex } from 'node:stream';

/**
 * Requests of one connection that wait behind one whose answer has not gone out; as many as streams in
 * HTTP/2. What comes behind them is not parsed, nor is it read.
 */
export const MAX_PIPELINED = 250;
/** Waiting requests at which a connection is read again. */
const RESUMED_PIPELINED = 125;

interface Connection {
  readonly socket: Socket;
  /** Requests whose answers have not gone out. */
  unsent: number;
  /** The turn in which requests were begun last, and how many of them. */
  turn: number;
  begun: number;
  /** It is not read until more answers have gone out, or another turn has come. */
  isStopped: boolean;
  /** Nothing more that comes on it is for anybody. */
  isOver: boolean;
  /** Whether its parser asks before it goes on. */
  isBounded: boolean;
}

/**
 * Bounds what a client makes of a connection by sending requests ahead of their answers: those that wait,
 * and those that are begun in one turn of the event loop. Node itself would parse all that it has read.
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

  /** Notes a request whose head has just been parsed: to be called from there. */
  begin(socket: Socket, response: ServerResponse): void {
    const connection = this.#connectionOf(socket);
    const turn = this.#turns.now();
    if (connection.turn !== turn) {
      connection.turn = turn;
      connection.begun = 0;
    }
    connection.begun += 1;
    connection.unsent += 1;
    response.once('close', () => {
      connection.unsent -= 1;
      if (connection.isStopped && connection.unsent === RESUMED_PIPELINED) this.#goOn(connection);
    });
    // Most clients wait for each answer, and are not asked about.
    if (connection.begun > 1 || connection.unsent > 1) this.#bound(connection);
  }

  /** Nothing more of what a client sends on it is for anybody; to be called from the parser. */
  end(socket: Socket): void {
    const connection = this.#connectionOf(socket);
    connection.isOver = true;
    this.#bound(connection);
  }

  /** The parser has stopped where it was told to; what it has left waits. */
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
 * Requests of one connection that are begun in one turn of the event loop, at some 0.2 ms each: what
 * a client has sent in one go is begun in so many turns as it takes.
 */
export const MAX_BEGUN = 8;

interface BeginningConnection {
  /** The turn in which requests were begun last, and how many of them. */
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

  /** Begins a request: now, or in a later turn. `begin` must not throw, and looks whether its client is still there. */
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
    // Those that come meanwhile are behind these.
    const some = connection.waiting.slice(0, MAX_BEGUN);
    for (const begin of some) begin();
    connection.waiting.splice(0, some.length);
    if (connection.waiting.length > 0) this.#later(() => this.#goOn(connection));
  }
}

/** Calls back in the next turn of the event loop. */
export type Later = (turn: () => void) => void;

/** Tells whether two moments belong to one turn of the event loop. */
export class Turns {
  readonly #later: Later;
  #turn = 0;
  #isOpen = false;

  constructor(later: Later) {
    this.#later = later;
  }

  /** The number of this turn: all that is asked until the next callback belongs to it. */
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
