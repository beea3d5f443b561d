// Until its first request, a connection has one deadline for the PROXY header, the TLS handshake and the head
// together (`read_header`). The handshake may take at most 10 s of it. Afterwards the limits of the protocol
// apply.

import type { Socket } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { carrierOf } from './node-internals.ts';

/** Set on the accepted socket, which is below the TLS socket. */
const DEADLINE = Symbol('deadline of the first request');

interface Deadline {
  readonly cancel: () => void;
  expire: () => void;
}

interface Carrier {
  [DEADLINE]?: Deadline | undefined;
}

/**
 * Sets the deadline of a new connection until its first request: for the PROXY protocol header, the TLS
 * handshake and the head of the request together. 0 milliseconds means no limit.
 */
export function expectFirstRequest(socket: Socket & Carrier, limitMs: number, clock: Clock): void {
  if (limitMs === 0) return;
  const cancel = clock.after(limitMs, () => socket[DEADLINE]?.expire());
  socket[DEADLINE] = { cancel, expire: () => socket.destroy() };
}

/** Sets how the connection is closed at its deadline, now that its protocol is known. */
export function onNoRequest(socket: Socket, expire: () => void): void {
  const deadline = deadlineOf(socket);
  if (deadline !== undefined) deadline.expire = expire;
}

/** Cancels the deadline: a request has arrived, or the connection has closed. */
export function forgetDeadline(socket: Socket): void {
  const deadline = deadlineOf(socket);
  if (deadline === undefined) return;
  deadline.cancel();
  const carrier: Socket & Carrier = carrierOf(socket);
  // Not deleted: V8 turns a socket that has lost a property into a hash table, which is slower and three
  // times as large.
  carrier[DEADLINE] = undefined;
}

function deadlineOf(socket: Socket): Deadline | undefined {
  const carrier: Socket & Carrier = carrierOf(socket);
  return carrier[DEADLINE];
}
