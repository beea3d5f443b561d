// A client can send many requests without waiting for responses. When 250 wait, nothing more is parsed or read, and
// at most 8 begin in one turn of the event loop.

/**
 * Requests of one connection that wait for earlier responses to be sent; as many as there can be streams in
 * HTTP/2. Beyond them, nothing is parsed or read.
 */
export const MAX_PIPELINED = 250;
/** Number of waiting requests at which the connection is read again. */
export const RESUMED_PIPELINED = 125;

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
      this.#later(this.#end);
    }
    return this.#turn;
  }

  readonly #end = (): void => {
    this.#isOpen = false;
    this.#turn += 1;
  };
}
