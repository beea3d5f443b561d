import { Writable } from 'node:stream';
import type { BodyWrapper } from '../http/exchange.ts';

/**
 * Copies a body that goes to the client.
 *
 * @param maxBytes of a copy
 * @param done called once, however the body ends: with its bytes as they went, or null for one that
 *   is too large or was broken off
 */
export function copyBody(maxBytes: number, done: (bytes: Buffer | null) => void): BodyWrapper {
  return (body) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let complete = false;
    const copying = new Writable({
      write(chunk: Buffer, _encoding, written) {
        size += chunk.length;
        if (size <= maxBytes) chunks.push(chunk);
        else chunks.length = 0;
        body.write(chunk, written);
      },
      final(ended) {
        complete = true;
        body.end();
        ended();
      },
    });
    body.once('close', () => copying.destroy());
    // Told to whoever writes by `close`; unheard it would end the process.
    copying.on('error', () => {});
    copying.once('close', () => done(complete && size <= maxBytes ? Buffer.concat(chunks) : null));
    return copying;
  };
}
