import { Writable } from 'node:stream';
import type { ResponseHead } from '../http/exchange.ts';

/** Whether a response has no content (RFC 9110 §15); puts the length right that its head gives. */
export function isBodyless(method: string, { status, headers }: ResponseHead): boolean {
  switch (status) {
    case 204:
      // RFC 9110 §8.6: what is lawful for HEAD and 304 is not for 204.
      headers.delete('content-length');
      return true;
    case 205:
      headers.set('content-length', '0');
      return true;
    case 304:
      return true;
    default:
      return method === 'HEAD';
  }
}

/** Takes a body that is not to be sent, and ends with it. */
export function discarding(body: Writable): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => done(),
    final: (done) => {
      if (!body.writableEnded) body.end();
      done();
    },
  });
}
