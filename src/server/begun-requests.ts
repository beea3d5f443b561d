import { type Later, Turns } from './turns.ts';

/**
 * Requests of one connection that are begun in one turn of the event loop, at some 0.2 ms each: what
 * a client has sent in one go is begun in so many turns as it takes.
 */
export const MAX_BEGUN = 8;

interface Connection {
  /** The turn in which requests were begun last, and how many of them. */
  turn: number;
  begun: number;
  readonly waiting: (() => void)[];
}

/** Spreads the requests of each connection over turns of the event loop, in their order. */
export class BegunRequests {
  readonly #connections = new WeakMap<object, Connection>();
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

  #connectionOf(of: object): Connection {
    const known = this.#connections.get(of);
    if (known !== undefined) return known;
    const connection = { turn: -1, begun: 0, waiting: [] };
    this.#connections.set(of, connection);
    return connection;
  }

  #goOn(connection: Connection): void {
    // Those that come meanwhile are behind these.
    const some = connection.waiting.slice(0, MAX_BEGUN);
    for (const begin of some) begin();
    connection.waiting.splice(0, some.length);
    if (connection.waiting.length > 0) this.#later(() => this.#goOn(connection));
  }
}
