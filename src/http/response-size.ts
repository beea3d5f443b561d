import type { Writable } from 'node:stream';

/** Tells of each piece that is written to a body. Only for one whose length is not known before. */
export function countWrites(body: Writable, add: (bytes: number) => void): void {
  const inner = { write: body.write.bind(body), end: body.end.bind(body) };
  const count = (chunk: unknown): void => {
    if (typeof chunk === 'string') add(Buffer.byteLength(chunk));
    else if (chunk instanceof Uint8Array) add(chunk.length);
  };
  // Both have overloads that a function of rest parameters cannot be given.
  const write = (chunk: unknown, ...rest: [BufferEncoding]): boolean => {
    count(chunk);
    return inner.write(chunk, ...rest);
  };
  const end = (chunk: unknown, ...rest: [BufferEncoding]): Writable => {
    count(chunk);
    inner.end(chunk, ...rest);
    return body;
  };
  Object.assign(body, { write, end });
}
