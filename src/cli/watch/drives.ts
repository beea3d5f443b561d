import type { Clock } from '../../kernel/clock.ts';
import type { WatchedPath } from './watched-path.ts';

/** Paths that are asked for at a time, each of another drive. Node has four threads for this, and other needs. */
const WIDTH = 2;
/** Drives that may owe an answer at a time; each holds a thread. */
const MAX_SILENT = 2;
/** A drive that does not answer within this is left alone until it does. */
const PATIENCE_MS = 2_000;

export interface DrivesOptions {
  readonly clock: Clock;
  readonly ask: (path: WatchedPath) => Promise<void>;
  readonly onSilence: (path: string) => void;
  /** One that was silent has answered. */
  readonly onAnswer: (path: string) => void;
}

/** Asks for paths, drive by drive: one that hangs (a network drive) holds up nothing but itself. */
export class Drives {
  readonly #options: DrivesOptions;
  /** Rounds run one after the other: two would ask the same drive. */
  #round: Promise<void> = Promise.resolve();
  /** What is still owed, by drive. */
  readonly #silent = new Map<string, string>();

  constructor(options: DrivesOptions) {
    this.#options = options;
  }

  /** Paths that were asked for and have not answered in time. */
  get unanswered(): readonly string[] {
    return [...this.#silent.values()];
  }

  /** Asks for each once, but for those of silent drives. */
  ask(paths: readonly WatchedPath[]): Promise<void> {
    this.#round = this.#round.then(() => this.#askAll(paths));
    return this.#round;
  }

  async #askAll(paths: readonly WatchedPath[]): Promise<void> {
    const lanes = new Map<string, WatchedPath[]>();
    for (const path of paths) {
      const lane = lanes.get(path.drive);
      if (lane === undefined) lanes.set(path.drive, [path]);
      else lane.push(path);
    }
    const waiting = [...lanes].filter(([drive]) => !this.#silent.has(drive));
    const worker = async (): Promise<void> => {
      while (this.#silent.size < MAX_SILENT) {
        const lane = waiting.shift();
        if (lane === undefined) return;
        await this.#askLane(...lane);
      }
    };
    await Promise.all(Array.from({ length: WIDTH }, worker));
  }

  async #askLane(drive: string, paths: readonly WatchedPath[]): Promise<void> {
    for (const path of paths) if (!(await this.#answers(drive, path))) return;
  }

  #answers(drive: string, path: WatchedPath): Promise<boolean> {
    const { clock, ask, onSilence, onAnswer } = this.#options;
    return new Promise((resolve) => {
      const cancel = clock.after(PATIENCE_MS, () => {
        this.#silent.set(drive, path.path);
        onSilence(path.path);
        resolve(false);
      });
      void ask(path).then(() => {
        cancel();
        resolve(true);
        if (this.#silent.get(drive) !== path.path) return;
        this.#silent.delete(drive);
        onAnswer(path.path);
      });
    });
  }
}
