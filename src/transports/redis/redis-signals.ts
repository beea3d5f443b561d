import type { TransportSignals } from '../../hub/transport.ts';
import { WaitingSignals } from '../waiting-signals.ts';
import type { HubKeys } from './keys.ts';
import { listOf } from './stored-entry.ts';
import type { Session } from './session.ts';

/** Signals that the store keeps for nodes that are unavailable for a while. */
const KEPT = 10_000;
/** Signals that are read in one step. */
const AT_ONCE = 1_000;

interface RedisSignalsOptions {
  readonly keys: HubKeys;
  readonly process: string;
  /** @throws while Redis is unavailable */
  readonly session: () => Session;
}

/**
 * Signals to the hubs of all nodes, in a stream next to the history. Nodes that were unavailable read them
 * later.
 */
export class RedisSignals implements TransportSignals {
  readonly #options: RedisSignalsOptions;
  readonly waiting = new WaitingSignals((message) => this.#add(message));
  #listener: (message: string) => void = () => {};
  /** Stream id of the last signal that was read. */
  last = '0';

  constructor(options: RedisSignalsOptions) {
    this.#options = options;
  }

  send(message: string): void {
    this.waiting.send(message);
  }

  receive(listener: (message: string) => void): void {
    this.#listener = listener;
  }

  /** Earlier signals do not concern a process that had no streams at the time. */
  async begin(session: Session): Promise<void> {
    const { signals } = this.#options.keys;
    const newest = await session.command('XREVRANGE', signals, '+', '-', 'COUNT', '1');
    const [entry] = Array.isArray(newest) ? newest : [];
    this.last = Array.isArray(entry) ? String(entry[0]) : '0';
  }

  /**
   * Delivers all signals that have arrived in the meantime. Only then may entries of the history be
   * delivered.
   */
  async catchUp(session: Session): Promise<void> {
    const { signals } = this.#options.keys;
    for (let count = AT_ONCE; count === AT_ONCE; ) {
      const from = `(${this.last}`;
      const reply = await session.command('XRANGE', signals, from, '+', 'COUNT', String(AT_ONCE));
      const entries = listOf(reply);
      this.take(entries);
      count = entries.length;
    }
  }

  /** Delivers entries of the stream, except those of this process. */
  take(entries: readonly unknown[]): void {
    for (const entry of entries) {
      if (!Array.isArray(entry)) continue;
      const [place, fields] = entry;
      this.last = String(place);
      if (!Array.isArray(fields)) continue;
      const [, process, , message] = fields;
      if (process !== this.#options.process) this.#listener(String(message));
    }
  }

  async #add(message: string): Promise<void> {
    const { keys, process, session } = this.#options;
    const bound = ['MAXLEN', '~', String(KEPT)];
    await session().command('XADD', keys.signals, ...bound, '*', 'p', process, 'm', message);
  }
}
