import { PassThrough, type Readable } from 'node:stream';
import { HttpError } from '../../http/errors.ts';
import type { Handler } from '../../http/exchange.ts';
import type { RequestBodyConfig } from './data.ts';

/** `request_body [<matcher>] { max_size <size> }`: longer bodies are answered with 413. */
export function requestBody({ maxSize }: RequestBodyConfig): Handler {
  return (exchange, next) => {
    if (Number(exchange.headers.get('content-length') ?? 0) > maxSize) {
      throw new HttpError(413, `request body beyond ${maxSize} bytes`);
    }
    if (exchange.hasBody) exchange.body = limited(exchange.body, maxSize);
    return next();
  };
}

/** Ends with an HttpError 413 once more than `maxSize` bytes have come. */
function limited(source: Readable, maxSize: number): Readable {
  const passed = new PassThrough();
  let size = 0;
  const count = (chunk: Buffer): void => {
    size += chunk.length;
    if (size <= maxSize) return;
    source.off('data', count);
    source.unpipe(passed);
    passed.destroy(new HttpError(413, `request body beyond ${maxSize} bytes`));
    // The rest is read and dropped, so that the client comes to read the answer.
    source.resume();
  };
  source.on('data', count);
  source.on('error', (error) => passed.destroy(error));
  source.on('close', () => {
    if (!source.readableEnded) passed.destroy();
  });
  // Nobody may be listening when the limit is reached after the answer began.
  passed.on('error', () => {});
  source.pipe(passed);
  return passed;
}
