import type { Socket } from 'node:net';

/**
 * A listener that many sockets share, told which of them it was: a function for each, and what
 * `once` makes beside it, would be held as long as the connection.
 */
export function sharedListener<Args extends readonly unknown[]>(
  handle: (socket: Socket, ...args: Args) => void,
): (this: Socket, ...args: Args) => void {
  return function (...args) {
    handle(this, ...args);
  };
}
