import { Readable } from 'node:stream';
import { badSyntax, ChunkedReader } from '../http/http1-syntax.ts';

/** Bytes of a body that may wait for their reader before the connection is not read any more. */
const MAX_WAITING_BYTES = 64 * 1024;

/** From this size on, a copy does not share its memory with others. */
const LEAST_OWN_BYTES = 8 * 1024;

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
  #isWanted = false;
  #isDropped = false;

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

  /** Alternating names and values; complete when the body is. */
  get trailers(): readonly string[] {
    return this.#chunks?.trailers ?? [];
  }

  /** Whether all of it has arrived. */
  get isComplete(): boolean {
    return this.#chunks === null ? this.#left === 0 : this.#chunks.isDone;
  }

  /** Whether its reader wants more bytes than have arrived. */
  get isWanted(): boolean {
    return this.#isWanted || this.#isDropped;
  }

  /**
   * Takes the bytes that belong to the body.
   *
   * @returns the position behind them
   * @throws HubgateError `bad-http1-syntax`, `http1-too-large`
   */
  receive(bytes: Buffer, start: number): number {
    const end =
      this.#chunks === null
        ? this.#receiveLength(bytes, start)
        : this.#chunks.read(bytes, start, this.#pass);
    if (this.isComplete) {
      for (let i = 0; i < this.trailers.length; i += 2) {
        const name = this.trailers[i]?.toLowerCase() ?? '';
        if (FRAMING_FIELDS.has(name)) throw badSyntax(`The trailer section contains ${name}`);
      }
      if (!this.#isDropped) this.push(null);
    }
    return end;
  }

  /** Nobody reads it any more. What is missing is discarded as it arrives, so that the connection can go on. */
  discard(): void {
    if (this.#isDropped) return;
    this.#isDropped = true;
    if (this.isComplete) return;
    if (!this.destroyed) this.destroy();
    this.#onWanted();
  }

  override _read(): void {
    this.#isWanted = true;
    if (!this.isComplete) this.#onWanted();
  }

  /** A reader that destroys the body does not close the connection. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    done(error);
    this.discard();
  }

  #receiveLength(bytes: Buffer, start: number): number {
    const end = Math.min(bytes.length, start + this.#left);
    this.#left -= end - start;
    if (end > start)
      this.#pass(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end));
    return end;
  }

  readonly #pass = (piece: Buffer): void => {
    if (this.#isDropped) return;
    // The connection reads into memory that it uses again. Large copies have memory of their own, which is freed
    // when an upstream has received them.
    const copy =
      piece.length < LEAST_OWN_BYTES
        ? Buffer.allocUnsafe(piece.length)
        : Buffer.allocUnsafeSlow(piece.length);
    piece.copy(copy);
    // What it returns, and not `_read`, says whether more is wanted: `_read` is called from inside.
    this.#isWanted = this.push(copy);
  };
}

function ignore(): void {}
