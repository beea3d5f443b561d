import { Writable } from 'node:stream';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import {
  type AnswerHead,
  SharedResponse,
  type SharedResponseHold,
  type SharedResponseMemory,
} from './shared-response.ts';

/** Decisions about the recorded response. Exactly one of the last three functions is called, once. */
export interface Recording {
  readonly isShareable: (head: AnswerHead) => boolean;
  /** Returns the fields of its head or trailers for other clients; null for the response of one client. */
  readonly forOthers: (fields: HeaderList) => HeaderList | null;
  /** Called when it is complete. */
  readonly answered: (answer: SharedResponse) => void;
  /** Called if it must not be shared, is too large, or was aborted. */
  readonly refused: () => void;
  /** Called if the client has left before it was complete. */
  readonly left: () => void;
}

/**
 * Records the response of an upstream while it is sent to the client of one request. Up to the size limit of
 * a response, the upstream is read as fast as it sends: a client that reads slowly does not delay others.
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

  /** The head of the upstream's response has arrived. */
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

  /** Another handler responds instead. */
  refuse(): void {
    this.#settle(this.#recording.refused);
  }

  /** Returns the stream for the upstream's body, which is recorded on its way to `body`. */
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
    // `close` notifies the writer. Without a listener, the error would end the process.
    recording.on('error', () => {});
    return recording;
  }

  /** The upstream's response is complete. */
  complete(trailers: HeaderList): void {
    const answer = this.#answer;
    if (answer === null) return;
    answer.trailers = this.#recording.forOthers(trailers);
    if (answer.trailers === null) this.#settle(this.#recording.refused);
    else this.#settle(() => this.#recording.answered(answer));
  }

  /** The request has ended, with any result. */
  close(): void {
    this.#settle(this.#exchange.abandoned ? this.#recording.left : this.#recording.refused);
  }

  /** A separate copy, because the memory of the read may be larger; null if it is not kept. */
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

/** Everything that was kept has been read: from now on, the body is an ordinary one. */
function goOn(hold: SharedResponseHold, done: () => void): void {
  hold.release();
  done();
}
