// `copy_response` sends the response that its routes were run for. They run when the head is there: what the
// upstream writes waits, one piece of it, until they have decided.

import { Writable } from 'node:stream';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** A response of an upstream in front of which routes run. */
export interface InterceptedResponse {
  readonly status: number;
  /** As the client would get them. */
  readonly headers: HeaderList;
  /** Sends it, with this status; null where its body is not kept. */
  readonly send: ((status: number) => void) | null;
}

const intercepted = new WeakMap<Exchange, InterceptedResponse>();

/** What the routes of an exchange are run for; undefined outside of `handle_response`. */
export function interceptedResponse(exchange: Exchange): InterceptedResponse | undefined {
  return intercepted.get(exchange);
}

export function intercept(exchange: Exchange, response: InterceptedResponse): void {
  intercepted.set(exchange, response);
}

/** Where the body of a response goes that waits for a decision. */
export class HeldBody extends Writable {
  /** Where it goes; null: nowhere; undefined: that is not decided yet. */
  #target: Writable | null | undefined;
  #decided: (() => void) | null = null;

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#when(() => {
      if (!this.#target || this.#target.destroyed || this.#target.write(chunk)) done();
      else this.#target.once('drain', done).once('close', done);
    });
  }

  override _final(done: () => void): void {
    this.#when(done);
  }

  /** Begins the response that it is the body of. */
  sendTo(exchange: Exchange, head: ResponseHead): void {
    this.#decide(exchange.begin(head));
  }

  /** What was not sent is dropped. */
  drop(): void {
    if (this.#target === undefined) this.#decide(null);
  }

  /** Ends what it was sent to, once all is written. */
  finish(end: (target: Writable) => void): void {
    this.end(() => {
      if (this.#target) end(this.#target);
    });
  }

  #decide(target: Writable | null): void {
    this.#target = target;
    this.#decided?.();
    this.#decided = null;
  }

  #when(decided: () => void): void {
    if (this.#target === undefined) this.#decided = decided;
    else decided();
  }
}
