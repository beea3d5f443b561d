import type { Exchange } from '../http/exchange.ts';
import { HttpError } from '../http/errors.ts';
import { wantBody } from '../http/expect.ts';

/**
 * Reads the whole body of a request.
 *
 * @param maxBytes 0 means no limit
 * @throws HttpError 413 as soon as there is more than `maxBytes`; 400 when the client breaks off
 */
export async function readBody(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  const announced = Number(exchange.headers.get('content-length') ?? 0);
  if (maxBytes > 0 && announced > maxBytes) throw tooLarge();
  wantBody(exchange);
  try {
    for await (const chunk of exchange.body) {
      length += chunk.length;
      if (maxBytes > 0 && length > maxBytes) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (cause) {
    if (cause instanceof HttpError) throw cause;
    throw new HttpError(400, 'The client broke its request off', { cause });
  }
  return Buffer.concat(chunks, length);
}

function tooLarge(): HttpError {
  return new HttpError(413, 'The request body exceeds max_request_body_size');
}
