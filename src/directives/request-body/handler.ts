import { PassThrough, type Readable } from 'node:stream';
import { HttpError } from '../../http/errors.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RequestBodyConfig } from './data.ts';

/**
 * `request_body [<matcher>] { max_size; read_timeout; write_timeout }`: longer bodies are answered
 * with 413, those that take longer with 408; an answer that takes longer is broken off.
 */
export function requestBody(
  { maxSize, readTimeoutMs, writeTimeoutMs }: RequestBodyConfig,
  { clock }: Pick<HandlerContext, 'clock'>,
): Handler {
  return async (exchange, next) => {
    if (maxSize !== null && Number(exchange.headers.get('content-length') ?? 0) > maxSize) {
      throw tooLong(maxSize);
    }
    const cancels: (() => void)[] = [];
    if (exchange.hasBody && (maxSize !== null || readTimeoutMs > 0)) {
      const body = limited(exchange.body, maxSize ?? Number.POSITIVE_INFINITY);
      exchange.body = body;
      const tooSlow = (): void => breakOffBody(exchange, body, readTimeoutMs);
      if (readTimeoutMs > 0) {
        const cancel = clock.after(readTimeoutMs, tooSlow);
        cancels.push(cancel);
        body.once('close', cancel);
      }
    }
    if (writeTimeoutMs > 0) cancels.push(clock.after(writeTimeoutMs, () => exchange.abort()));
    try {
      await next();
    } finally {
      for (const cancel of cancels) cancel();
    }
  };
}

function tooLong(maxSize: number): HttpError {
  return new HttpError(413, `request body beyond ${maxSize} bytes`);
}

function breakOffBody(exchange: Exchange, body: Readable, limitMs: number): void {
  if (body.readableEnded) return;
  exchange.forgoBody();
  body.destroy(new HttpError(408, `the request body took longer than ${limitMs} ms`));
}

/** Ends with an HttpError 413 once more than `maxSize` bytes have come. */
function limited(source: Readable, maxSize: number): Readable {
  const passed = new PassThrough();
  let size = 0;
  const count = (chunk: Buffer): void => {
    size += chunk.length;
    if (size <= maxSize) return;
    passed.destroy(tooLong(maxSize));
  };
  source.on('data', count);
  source.on('error', (error) => passed.destroy(error));
  source.on('close', () => {
    if (!source.readableEnded) passed.destroy();
  });
  // Nobody may be listening when a limit is reached after the answer began.
  passed.on('error', () => {
    source.off('data', count);
    source.unpipe(passed);
    // The rest is read and dropped, so that the client comes to read the answer.
    source.resume();
  });
  source.pipe(passed);
  return passed;
}
