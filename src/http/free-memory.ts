// Node allocates buffers outside of V8's heap for what it reads. If the garbage collector has to release this
// memory, it is never in the CPU cache, its pages are mapped again and again, and V8 marks the whole heap each
// time: more than half of the CPU time of an upload. So what has been passed on is released at once.

import { MessageChannel } from 'node:worker_threads';

/** It delivers nothing: memory that is transferred to a closed port is freed at once. */
const { port1: closedPort } = new MessageChannel();
closedPort.close();

/** Returns memory to the system. Every view of it has a length of zero afterwards. */
export function freeMemory(memory: ArrayBuffer): void {
  closedPort.postMessage(null, [memory]);
}
