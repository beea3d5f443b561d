// Node keeps a message and a response for each pipelined request, so their number is bounded:
// behind 250 that wait nothing is parsed or read, and at most 8 begin in one turn of the event
// loop. A write for one of them may emit `drain` for another; nothing may resume a parser from
// inside it.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { MAX_BEGUN } from './begun-requests.ts';
import { goOnReading, stopParsingWhen, stopReading } from './node-internals.ts';
import { type Later, Turns } from './turns.ts';

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
