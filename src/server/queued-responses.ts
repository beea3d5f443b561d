import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Of each connection the responses that had to wait for the answers to earlier requests. */
const queued = new WeakMap<Socket, Set<ServerResponse>>();

/**
 * Closes a response whose turn has not come with its connection. Node closes only the one whose turn
 * it is: whatever is written to the others, and what they wait for, would be held for nobody.
 */
export function closeWithConnection(socket: Socket, response: ServerResponse): void {
  const known = queued.get(socket);
  const all = known ?? new Set();
  if (known === undefined) {
    queued.set(socket, all);
    // One for all of a connection.
    socket.once('close', () => {
      for (const one of all) closeUnlessItsTurn(one);
    });
  }
  all.add(response);
  response.once('close', () => all.delete(response));
}

function closeUnlessItsTurn(response: ServerResponse): void {
  if (response.socket !== null) return;
  response.destroy();
  response.emit('close');
}
