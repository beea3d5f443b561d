import { Readable } from 'node:stream';
import { ignore } from '../kernel/error.ts';
import { bufferPool } from '../http/buffer-pool.ts';
import { HeaderList } from '../http/header-list.ts';
import { badSyntax, ChunkedReader } from '../http/http1-syntax.ts';

/** Bytes of a body that may wait for their reader before the connection is not read any more. */
const MAX_WAITING_BYTES = 64 * 1024;

/** The length in bytes of a body (RFC 9112 §6.3), or `chunked`. */
export type BodyLength = number | 'chunked';

/** Fields that frame a message, which no trailer section may contain (RFC 9110 §6.5.1). */
const FRAMING_FIELDS: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding']);

/** The body of a request while its connection reads it. */
export class Http1RequestBody extends Readable {
  readonly #onWanted: () => void;
  readonly #chunks: ChunkedReader | null;
  /** Bytes that are missing; only of a body with a length. */
  #left: number;
  /** What the last `push` has returned. Until then, small bodies arrive before their reader asks. */
  #isWanted = true;
  #isDropped = false;
  /** The response has been sent. */
  #isUnneeded = false;

  /**
   * @param maxTrailerBytes bytes of the trailer section of a chunked body
   * @param onWanted called when the reader wants more after {@link read} has returned false
   */
  constructor(length: BodyLength, maxTrailerBytes: number, onWanted: () => void) {
    super({ highWaterMark: MAX_WAITING_BYTES });
    this.#onWanted = onWanted;
    this.#chunks = length === 'chunked' ? new ChunkedReader(maxTrailerBytes) : null;
    this.#left = length === 'chunked' ? 0 : length;
    // Readers learn from `close` that the end is missing; an error that nobody listens for would end the process.
    this.on('error', ignore);
    if (length === 0) this.push(null);
  }

  /** The trailer fields; complete when the body is. */
  get trailers(): HeaderList {
    return this.#chunks?.trailers ?? new HeaderList();
  }

  /** Whether all of it has arrived. */
  get isComplete(): boolean {
    return this.#chunks === null ? this.#left === 0 : this.#chunks.isDone;
  }

  /** Pieces of it that {@link receive} has found. */
  get piecesOfRead(): number {
    return this.#chunks?.piecesOfRead ?? 1;
  }

  /** Whether its reader wants more bytes than have arrived. */
  get isWanted(): boolean {
    return this.#isWanted || this.#isDropped;
  }

  /**
   * Takes the bytes that belong to the body. They are copied, because the connection uses their memory again.
   *
   * @returns the position behind them
   * @throws HubgateError `bad-http1-syntax`, `http1-too-large`
   */
  receive(bytes: Buffer, start: number): number {
    const end =
      this.#chunks === null
        ? this.#receiveLength(bytes, start)
        : this.#receiveChunks(this.#chunks, bytes, start);
    if (this.isComplete) {
      this.#chunks?.trailers.forEach((key) => {
        if (FRAMING_FIELDS.has(key)) throw badSyntax(`The trailer section contains ${key}`);
      });
      if (!this.#isDropped) this.push(null);
    }
    return end;
  }

  /** Nobody needs it any more. What is missing is read and discarded, so that the connection can go on. */
  discard(): void {
    this.#isUnneeded = true;
    if (!this.destroyed) this.resume();
  }

  /** A reader that leaves pauses the body for the next one. After {@link discard}, there is no next one. */
  override pause(): this {
    const isLeft = this.#isUnneeded && this.listenerCount('data') === 0;
    return isLeft ? this.resume() : super.pause();
  }

  override _read(): void {
    this.#isWanted = true;
    if (!this.isComplete) this.#onWanted();
  }

  /** A reader that destroys the body does not close the connection. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    done(error);
    if (this.isComplete) return;
    this.#isDropped = true;
    this.#onWanted();
  }

  #receiveLength(bytes: Buffer, start: number): number {
    const end = Math.min(bytes.length, start + this.#left);
    this.#left -= end - start;
    this.#pass([bytes.subarray(start, end)], end - start);
    return end;
  }

  /** Small chunks that have arrived together are passed on together. */
  #receiveChunks(chunks: ChunkedReader, bytes: Buffer, start: number): number {
    const pieces: Buffer[] = [];
    let size = 0;
    const end = chunks.read(bytes, start, (piece) => {
      pieces.push(piece);
      size += piece.length;
    });
    this.#pass(pieces, size);
    return end;
  }

  #pass(pieces: readonly Buffer[], bytes: number): void {
    if (this.#isDropped || bytes === 0) return;
    this.#isWanted = this.push(bufferPool.join(pieces, bytes));
  }
}
