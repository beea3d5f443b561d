import type { Clock } from '../../kernel/clock.ts';
import type { WatchedPath } from './watched-path.ts';

/** Paths that are asked for at a time, each of another drive. Node has four threads for this, and other needs. */
const WIDTH = 2;
/** Devices that may owe an answer at a time; each holds a thread. */
const MAX_UNRESPONSIVE = 2;
/** A drive that does not answer within this is left alone until it does. */
const PATIENCE_MS = 2_000;

export interface DevicesOptions {
  readonly clock: Clock;
  readonly ask: (path: WatchedPath) => Promise<void>;
  readonly onUnresponsive: (path: string) => void;
  /** One that was silent has answered. */
  readonly onAnswer: (path: string) => void;
}

/** Asks for paths, drive by drive: one that hangs (a network drive) holds up nothing but itself. */
export class Devices {
  readonly #options: DevicesOptions;
  /** Rounds run one after the other: two would ask the same drive. */
  #round: Promise<void> = Promise.resolve();
  /** What is still owed, by drive. */
  readonly #unresponsive = new Map<string, string>();

  constructor(options: DevicesOptions) {
    this.#options = options;
  }

  /** Paths that were asked for and have not answered in time. */
  get unanswered(): readonly string[] {
    return [...this.#unresponsive.values()];
  }

  /** Asks for each once, but for those of silent drives. */
  ask(paths: readonly WatchedPath[]): Promise<void> {
    this.#round = this.#round.then(() => this.#askAll(paths));
    return this.#round;
  }

  async #askAll(paths: readonly WatchedPath[]): Promise<void> {
    const lanes = new Map<string, WatchedPath[]>();
    for (const path of paths) {
      const lane = lanes.get(path.device);
      if (lane === undefined) lanes.set(path.device, [path]);
      else lane.push(path);
    }
    const waiting = [...lanes].filter(([device]) => !this.#unresponsive.has(device));
    const worker = async (): Promise<void> => {
      while (this.#unresponsive.size < MAX_UNRESPONSIVE) {
        const lane = waiting.shift();
        if (lane === undefined) return;
        await this.#askLane(...lane);
      }
    };
    await Promise.all(Array.from({ length: WIDTH }, worker));
  }

  async #askLane(device: string, paths: readonly WatchedPath[]): Promise<void> {
    for (const path of paths) if (!(await this.#answers(device, path))) return;
  }

  #answers(device: string, path: WatchedPath): Promise<boolean> {
    const { clock, ask, onUnresponsive, onAnswer } = this.#options;
    return new Promise((resolve) => {
      const cancel = clock.after(PATIENCE_MS, () => {
        this.#unresponsive.set(device, path.path);
        onUnresponsive(path.path);
        resolve(false);
      });
      void ask(path).then(() => {
        cancel();
        resolve(true);
        if (this.#unresponsive.get(device) !== path.path) return;
        this.#unresponsive.delete(device);
        onAnswer(path.path);
      });
    });
  }
}
