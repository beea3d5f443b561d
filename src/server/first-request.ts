// A connection has one deadline until its first request, for the PROXY header, the TLS handshake
// and the head together (`read_header`). The handshake may take 10 s of it. Then the limits of the
// protocol apply.

import type { Socket } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { carrierOf } from './node-internals.ts';

/** On the socket that was accepted, which TLS speaks through. */
const DEADLINE = Symbol('deadline of the first request');

interface Deadline {
  readonly cancel: () => void;
  expire: () => void;
}

interface Carrier {
  [DEADLINE]?: Deadline | undefined;
}

/**
 * Gives a connection that was just accepted its time until the first request: PROXY protocol
 * header, TLS handshake and the head of the request together. 0 milliseconds for no limit.
 */
export function expectFirstRequest(socket: Socket & Carrier, limitMs: number, clock: Clock): void {
  if (limitMs === 0) return;
  const cancel = clock.after(limitMs, () => socket[DEADLINE]?.expire());
  socket[DEADLINE] = { cancel, expire: () => socket.destroy() };
}

/** Says how a connection ends when its time is up, now that a protocol is spoken on it. */
export function onNoRequest(socket: Socket, expire: () => void): void {
  const deadline = deadlineOf(socket);
  if (deadline !== undefined) deadline.expire = expire;
}

/** A request has come, or the connection is gone. */
export function forgetDeadline(socket: Socket): void {
  const deadline = deadlineOf(socket);
  if (deadline === undefined) return;
  deadline.cancel();
  const carrier: Socket & Carrier = carrierOf(socket);
  // Not deleted: a socket that has lost a property is a hash table from then on, slower to use and
  // three times as large.
  carrier[DEADLINE] = undefined;
}

function deadlineOf(socket: Socket): Deadline | undefined {
  const carrier: Socket & Carrier = carrierOf(socket);
  return carrier[DEADLINE];
}
