import type { Update } from './update.ts';

/** How a connection wants its bytes: as chunks (RFC 9112 §7.1), or as they are. */
export type Framing = 'chunked' | 'plain';

/** A comment: keeps proxies and clients from giving up on a silent stream (WHATWG HTML §9.2.6). */
export const HEARTBEAT: Buffer = Buffer.from(':\n');

/** When the clients of a hub that ends are to come back: some sooner, some later, in milliseconds. */
const COME_BACK_MS = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500] as const;
const comeBack = COME_BACK_MS.map((ms) => Buffer.from(`retry: ${ms}\n\n`));

/** Sets the client's reconnection time (WHATWG HTML §9.2.6), so that not all come at one moment. */
export function comeBackLater(): Buffer {
  return comeBack[Math.floor(Math.random() * comeBack.length)] ?? HEARTBEAT;
}

const LINE_END = /\r\n|\r|\n/;

/**
 * An update as a server-sent event (WHATWG HTML §9.2.5). The fields' values have been checked to
 * hold no line ends when the update was accepted; the data may hold any, and each begins a line of
 * its own, so that nothing in it can become a field.
 */
export function encodeEvent(update: Update): Buffer {
  let text = '';
  if (update.type !== null) text += `event: ${update.type}\n`;
  if (update.retry !== null) text += `retry: ${update.retry}\n`;
  text += `id: ${update.id}\n`;
  for (const line of update.data.split(LINE_END)) text += `data: ${line}\n`;
  return Buffer.from(`${text}\n`, 'utf8');
}

/** The pieces as one, framed. A single piece that needs no frame is handed on as it is. */
export function framed(pieces: readonly Buffer[], bytes: number, framing: Framing): Buffer {
  const [first] = pieces;
  if (framing === 'plain') {
    return pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces, bytes);
  }
  const head = `${bytes.toString(16)}\r\n`;
  const chunk = Buffer.allocUnsafeSlow(head.length + bytes + 2);
  chunk.write(head, 0, 'latin1');
  let at = head.length;
  for (const piece of pieces) at += piece.copy(chunk, at);
  chunk.write('\r\n', at, 'latin1');
  return chunk;
}
