// `copy_response` sends the response for which its routes run. They run when the head has arrived. One chunk
// of the body may wait until they have decided.

import { Writable } from 'node:stream';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** A response of an upstream for which routes run. */
export interface InterceptedResponse {
  readonly status: number;
  /** The fields as the client would receive them. */
  readonly headers: HeaderList;
  /** Sends it with this status; null if its body is not kept. */
  readonly send: ((status: number) => void) | null;
}

const intercepted = new WeakMap<Exchange, InterceptedResponse>();

/** The response for which the routes of an exchange run; undefined outside of `handle_response`. */
export function interceptedResponse(exchange: Exchange): InterceptedResponse | undefined {
  return intercepted.get(exchange);
}

export function intercept(exchange: Exchange, response: InterceptedResponse): void {
  intercepted.set(exchange, response);
}

/** The destination of a body that waits for a decision. */
export class HeldBody extends Writable {
  /** The stream that receives it; null: it is discarded; undefined: not decided yet. */
  #target: Writable | null | undefined;
  #decided: (() => void) | null = null;
  /** How its destination ends. */
  #end = (target: Writable): void => void target.end();

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#when(() => {
      const target = this.#target;
      if (!target || target.destroyed || target.write(chunk)) {
        done();
        return;
      }
      const goOn = (): void => {
        target.off('drain', goOn).off('close', goOn);
        done();
      };
      target.on('drain', goOn).on('close', goOn);
    });
  }

  override _final(done: () => void): void {
    this.#when(() => {
      if (this.#target) this.#end(this.#target);
      done();
    });
  }

  /** Begins the response with this body. */
  sendTo(exchange: Exchange, head: ResponseHead): void {
    this.#decide(exchange.begin(head));
  }

  /** A body that was not sent is discarded. */
  drop(): void {
    if (this.#target === undefined) this.#decide(null);
  }

  /** Ends its destination in this way after everything has been written. */
  finish(end: (target: Writable) => void): void {
    this.#end = end;
    this.end();
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
