import { Writable } from 'node:stream';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import {
  type AnswerHead,
  SharedResponse,
  type SharedResponseHold,
  type SharedResponseMemory,
} from './shared-response.ts';

/** What is decided with the answer that is recorded; exactly one of the last three is called, once. */
export interface Recording {
  readonly isShareable: (head: AnswerHead) => boolean;
  /** What of the fields of its head or trailers others are given; null for an answer of one client. */
  readonly forOthers: (fields: HeaderList) => HeaderList | null;
  /** It is complete. */
  readonly answered: (answer: SharedResponse) => void;
  /** It is not for others, too large, or broken off. */
  readonly refused: () => void;
  /** The client has left before it was complete. */
  readonly left: () => void;
}

/**
 * Records the answer of an upstream while it goes to the client of one request. Up to the bound of
 * an answer the upstream is read as fast as it sends: a client that reads slowly holds nobody up.
 */
export class ResponseRecorder {
  readonly #memory: SharedResponseMemory;
  readonly #request: HeaderList;
  readonly #exchange: Exchange;
  readonly #recording: Recording;
  #answer: SharedResponse | null = null;
  #isSettled = false;

  constructor(
    memory: SharedResponseMemory,
    request: HeaderList,
    exchange: Exchange,
    recording: Recording,
  ) {
    this.#memory = memory;
    this.#request = request;
    this.#exchange = exchange;
    this.#recording = recording;
  }

  /** An upstream has answered. */
  head(head: AnswerHead, hostport: string): void {
    if (this.#isSettled) return;
    const { status, received } = head;
    const headers = this.#recording.isShareable(head)
      ? this.#recording.forOthers(head.headers)
      : null;
    if (headers === null) {
      this.#settle(this.#recording.refused);
      return;
    }
    const kept = { status, headers, received };
    this.#answer = new SharedResponse(this.#memory, kept, this.#request, hostport);
  }

  /** Something else answers instead. */
  refuse(): void {
    this.#settle(this.#recording.refused);
  }

  /** Where the upstream's body is written, so that it is recorded on its way to `body`. */
  tee(body: Writable): Writable {
    const answer = this.#answer;
    if (answer === null) return body;
    const hold = answer.hold();
    hold.onCut(() => this.#exchange.abort());
    const recording = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        const piece = this.#keep(answer, chunk);
        const isTaken = body.write(piece ?? chunk);
        if (piece !== null) done();
        else if (isTaken) goOn(hold, done);
        else body.once('drain', () => goOn(hold, done));
      },
    });
    for (const event of ['finish', 'close']) body.once(event, hold.release);
    body.once('close', () => recording.destroy());
    // Told to the writer by `close`; unheard it would end the process.
    recording.on('error', () => {});
    return recording;
  }

  /** The upstream's answer is complete. */
  complete(trailers: HeaderList): void {
    const answer = this.#answer;
    if (answer === null) return;
    answer.trailers = this.#recording.forOthers(trailers);
    if (answer.trailers === null) this.#settle(this.#recording.refused);
    else this.#settle(() => this.#recording.answered(answer));
  }

  /** The request is over, whatever has come of it. */
  close(): void {
    this.#settle(this.#exchange.abandoned ? this.#recording.left : this.#recording.refused);
  }

  /** A copy of its own, as the memory that is read into may be larger; null where it is not kept. */
  #keep(answer: SharedResponse, chunk: Buffer): Buffer | null {
    if (this.#isSettled) return null;
    const piece = Buffer.from(chunk);
    if (answer.add(piece)) return piece;
    this.#settle(this.#recording.refused);
    answer.chunks.length = 0;
    return null;
  }

  #settle(tell: () => void): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    tell();
  }
}

/** All that was kept has been taken: the body is one like any other. */
function goOn(hold: SharedResponseHold, done: () => void): void {
  hold.release();
  done();
}
