import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Of each connection on which requests came before the earlier ones were answered. */
const queued = new WeakMap<Socket, Set<() => void>>();

/**
 * Tells when a connection has closed before the turn of a response has come. Node tells only the one
 * whose turn it is: what the others wait for would be held for nobody.
 */
export function onLeftInQueue(
  { socket }: IncomingMessage,
  response: ServerResponse,
  left: () => void,
): void {
  // With a socket it is its turn; finished, it was.
  if (response.socket !== null || response.writableFinished) return;
  let waiting = queued.get(socket);
  if (waiting === undefined) {
    waiting = new Set();
    queued.set(socket, waiting);
    // One for all of a connection.
    socket.once('close', () => {
      for (const tell of queued.get(socket) ?? []) tell();
    });
  }
  const all = waiting.add(left);
  response.once('close', () => all.delete(left));
}
