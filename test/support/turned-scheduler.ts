import { setImmediate as settled } from 'node:timers/promises';
import { Scheduler } from '../../src/kernel/scheduler.ts';

/** Scheduler whose turns the test takes, one at a time. */
export class TurnedScheduler extends Scheduler {
  /** How often tasks have rested. The end of a rest counts as a turn. */
  rests = 0;
  readonly #turns: (() => void)[];

  constructor() {
    const turns: (() => void)[] = [];
    super(
      (turn) => void turns.push(turn),
      (wake) => {
        this.rests += 1;
        turns.push(wake);
      },
    );
    this.#turns = turns;
  }

  /** Takes the next turn, and lets the promises that it has resolved go on; false when there is none. */
  async turn(): Promise<boolean> {
    const turn = this.#turns.shift();
    turn?.();
    await settled();
    return turn !== undefined;
  }

  /** Takes turns until there are none, and says how many there were. */
  async all(each: () => void = () => {}): Promise<number> {
    let turns = 0;
    while (await this.turn()) {
      turns += 1;
      each();
    }
    return turns;
  }
}
