import { afterTurn, sessionReads } from './body-memory.ts';
import { bufferPool, LEAST_POOLED_BYTES } from './buffer-pool.ts';

/** Bytes of small pieces that are passed on together. */
const GATHERED_BYTES = 16 * 1024;

/**
 * Passes on the pieces of a body that arrive in one turn of the event loop: the first at once, and further small ones
 * together. A piece of a few bytes would cost hundreds of times its size on its way.
 */
export class PiecesOfTurn {
  readonly #isView: boolean;
  readonly #pass: (bytes: Buffer) => void;
  /** A piece has been passed on in this turn. */
  #isGathering = false;
  #gathered: Buffer[] = [];
  #bytes = 0;

  /** @param isView the pieces are views of what an HTTP/2 session has read, and are copied */
  constructor(isView: boolean, pass: (bytes: Buffer) => void) {
    this.#isView = isView;
    this.#pass = pass;
  }

  add(piece: Buffer): void {
    if (this.#isView) sessionReads.copied(piece);
    if (!this.#isGathering) {
      this.#isGathering = true;
      // Not `process.nextTick`: Node runs its callbacks between the chunks of one packet.
      afterTurn(this.#onTurn);
      this.#pass(this.#isView ? bufferPool.copy(piece, 0, piece.length) : piece);
      return;
    }
    if (piece.length >= LEAST_POOLED_BYTES && !this.#isView) {
      this.flush();
      this.#pass(piece);
      return;
    }
    this.#gathered.push(piece);
    this.#bytes += piece.length;
    if (this.#bytes >= GATHERED_BYTES) this.flush();
  }

  /** Passes on what is left. */
  flush(): void {
    if (this.#gathered.length === 0) return;
    const bytes = bufferPool.join(this.#gathered, this.#bytes);
    this.#gathered = [];
    this.#bytes = 0;
    this.#pass(bytes);
  }

  readonly #onTurn = (): void => {
    this.#isGathering = false;
    this.flush();
  };
}
