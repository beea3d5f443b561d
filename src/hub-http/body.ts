import type { Exchange } from '../http/exchange.ts';
import { wantBody } from '../http/hop-by-hop.ts';
import { badRequest, RefusedRequest } from './refusal.ts';

/**
 * Reads the whole body of a request.
 *
 * @param maxBytes 0 means no limit
 * @throws RefusedRequest 413 as soon as there are more than `maxBytes`; 400 if the client aborts
 */
export async function readBody(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  const announced = Number(exchange.headers.get('content-length') ?? 0);
  if (maxBytes > 0 && announced > maxBytes) throw tooLarge();
  wantBody(exchange);
  const { body } = exchange;
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const take = (chunk: Buffer): void => {
      length += chunk.length;
      if (maxBytes === 0 || length <= maxBytes) {
        chunks.push(chunk);
        return;
      }
      // Further data is read and discarded, so that the client can read the response.
      body.off('data', take);
      body.resume();
      reject(tooLarge());
    };
    body.on('data', take);
    body.once('end', () => {
      const [first] = chunks;
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, length));
    });
    const brokenOff = (): void => {
      if (!body.readableEnded) reject(badRequest());
    };
    body.once('error', brokenOff);
    body.once('close', brokenOff);
  });
}

/** With the reason phrase that clients of such hubs know. */
function tooLarge(): RefusedRequest {
  return new RefusedRequest(413, { text: 'Request Entity Too Large' });
}

/** A media type in lower case without parameters; null if the field cannot be parsed. */
export function mediaType(field: string): string | null {
  const [type = '', ...parameters] = field.split(';').map((part) => part.trim());
  if (!/^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/.test(type)) return null;
  const valid = parameters.every((parameter) => /^[\w!#$&^.+-]+=(?:[^\s"]+|".*")$/.test(parameter));
  return valid || parameters.every((parameter) => parameter === '') ? type.toLowerCase() : null;
}

export const FORM = 'application/x-www-form-urlencoded';
