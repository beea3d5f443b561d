import { setImmediate as turn } from 'node:timers/promises';

/** Turns of the event loop without a change. */
const QUIET_TURNS = 300;
/** A busy machine may run these turns before the kernel has passed on what another process has written. */
const QUIET_MS = 50;

/** Resolves when a count has not changed for a while: what was sent has been taken, as far as it is. */
export async function settled(count: () => number): Promise<void> {
  let seen = count();
  let [turns, since] = [0, Date.now()];
  while (turns < QUIET_TURNS || Date.now() - since < QUIET_MS) {
    await turn();
    turns += 1;
    if (count() !== seen) [seen, turns, since] = [count(), 0, Date.now()];
  }
}
