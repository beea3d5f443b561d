import { defaultsOf, object, type Of, optional, withDefault } from '../config/shape.ts';
import { duration, size } from '../config/shape-values.ts';
import { oneStep } from '../hubfile/scope.ts';
import { optionsOf } from '../hubfile/values.ts';
import type { Readable } from 'node:stream';
import { RelayedBody } from '../http/client-body.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

const members = {
  /** Bytes; null means no limit. */
  maxSize: optional(size()),
  /** Time from here to the end of the body; 0 means no limit. */
  readTimeoutMs: withDefault(duration(), 0),
  /** Time from here to the end of the response; 0 means no limit. */
  writeTimeoutMs: withDefault(duration(), 0),
};

export interface RequestBodyConfig extends Of<typeof members> {
  readonly kind: 'request_body';
}

export const defaultRequestBody = defaultsOf(members);

const USAGE = `
request_body [<matcher>] {
    max_size <size>
    read_timeout <duration>
    write_timeout <duration>
}
`;

export const requestBody: HandlerDirective<RequestBodyConfig> = {
  data: { shape: () => object(members) },
  syntax: {
    usage: USAGE,
    summary: 'limits the size of request bodies, and the time for bodies and responses',
    read: oneStep((cursor) => {
      if (cursor.block().length === 0) {
        const hint = 'max_size 10MiB, read_timeout 30s or write_timeout 1m';
        cursor.fail(cursor.span, 'missing-option', 'request_body needs a limit', hint);
      }
      const start: RequestBodyConfig = { kind: 'request_body', ...defaultRequestBody };
      return cursor.options(start, optionsOf(members), {
        unsupported: { set: 'hubgate streams bodies; let the app change them' },
      });
    }),
  },
  compile: limitRequestBody,
};

/**
 * `request_body [<matcher>] { max_size; read_timeout; write_timeout }`: the response to a longer body is 413,
 * to one that takes longer 408. A response that takes longer is aborted.
 */
export function limitRequestBody(
  { maxSize, readTimeoutMs, writeTimeoutMs }: RequestBodyConfig,
  { clock }: Pick<HandlerContext, 'clock'>,
): Handler {
  return async (exchange, next) => {
    if (maxSize !== null && Number(exchange.headers.get('content-length') ?? 0) > maxSize) {
      throw tooLong(maxSize);
    }
    let stopReading = (): void => {};
    let stopWriting = (): void => {};
    let limited: LimitedBody | null = null;
    if (exchange.hasBody && (maxSize !== null || readTimeoutMs > 0)) {
      const body = new LimitedBody(exchange.body, maxSize ?? Number.POSITIVE_INFINITY);
      exchange.body = body;
      limited = body;
      const tooSlow = (): void => breakOffBody(exchange, body, readTimeoutMs);
      if (readTimeoutMs > 0) {
        stopReading = clock.after(readTimeoutMs, tooSlow);
        body.once('close', stopReading);
      }
    }
    if (writeTimeoutMs > 0) stopWriting = clock.after(writeTimeoutMs, () => exchange.abort());
    try {
      await next();
    } finally {
      stopWriting();
      // The error routes may read a body of which nobody has received any byte. Its limits stay in force there.
      if (exchange.begun || !exchange.isBodyWhole) {
        stopReading();
        limited?.discard();
      }
    }
  };
}

function tooLong(maxSize: number): HttpError {
  return new HttpError(413, `request body beyond ${maxSize} bytes`);
}

function breakOffBody(exchange: Exchange, body: Readable, limitMs: number): void {
  if (body.readableEnded) return;
  exchange.discardBody();
  body.destroy(new HttpError(408, `the request body took longer than ${limitMs} ms`));
}

/**
 * Ends with an HttpError 413 when more than `maxSize` bytes have arrived. What nobody wants is discarded with the source
 * after the response.
 */
class LimitedBody extends RelayedBody {
  readonly #maxSize: number;
  #size = 0;

  constructor(source: Readable, maxSize: number) {
    super(source);
    this.#maxSize = maxSize;
  }

  /** No reader comes any more. Whatever a reader has begun to read is discarded. */
  discard(): void {
    if (this.isAttached) this.resume();
  }

  protected receive(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > this.#maxSize) this.destroy(tooLong(this.#maxSize));
    else this.relay(chunk);
  }

  /** The rest is read and discarded, so that the client can read the response. */
  protected leave(): void {
    this.source.resume();
  }
}
