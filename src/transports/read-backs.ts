import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { HandedOut } from './handed-out.ts';

interface ReadBack {
  readonly position: number;
  /** Key of the expected entry; null for any. */
  readonly key: string | null;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The callers that wait until the reader has reached a position of the history. */
export class ReadBacks {
  readonly #clock: Clock;
  readonly #waiting = new Set<ReadBack>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Resolves when the reader has delivered the entry with this key, or any entry, at this position.
   *
   * @throws `tooLate` after `limitMs`; HubgateError `transport-uncertain` if the entry is lost
   */
  wait(
    { position, key }: Pick<ReadBack, 'position' | 'key'>,
    limitMs: number,
    tooLate: HubgateError,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = this.#clock.after(limitMs, () => {
        this.#waiting.delete(waiting);
        reject(tooLate);
      });
      const waiting: ReadBack = {
        position,
        key,
        resolve() {
          stop();
          resolve();
        },
        reject(error) {
          stop();
          reject(error);
        },
      };
      this.#waiting.add(waiting);
    });
  }

  /** Resolves the waits for entries that have been delivered by now. */
  settle(handedOut: HandedOut): void {
    for (const waiting of this.#waiting) {
      const { position, key } = waiting;
      if (position > handedOut.stored) continue;
      this.#waiting.delete(waiting);
      if (key === null || handedOut.has(position, key)) waiting.resolve();
      else waiting.reject(uncertain(LOST));
    }
  }

  /** Rejects the waits for everything after this stored position, which is lost. */
  loseBehind(position: number): void {
    for (const waiting of this.#waiting) {
      if (waiting.position <= position) continue;
      this.#waiting.delete(waiting);
      waiting.reject(uncertain(LOST));
    }
  }

  /** Rejects all waits, because nothing is read any more. */
  end(): void {
    const why = uncertain('it was not read back before the end');
    for (const { reject } of this.#waiting) reject(why);
    this.#waiting.clear();
  }
}

const LOST = 'the log has lost it';

/** The error for an append with an unknown result. */
export function uncertain(why: string): HubgateError {
  return new HubgateError(
    'transport-uncertain',
    `It is not known whether the update was stored: ${why}`,
  );
}
