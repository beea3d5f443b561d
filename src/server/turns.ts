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
