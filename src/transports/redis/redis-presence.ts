import type { SubscriptionRecord } from '../../hub/presence.ts';
import type { PresenceBoard, PresencePage } from '../../hub/presence-board.ts';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { HubKeys } from './keys.ts';
import { BEAT, ENTER, LEAVE, QUIT } from './scripts.ts';
import type { Session } from './session.ts';

/** How long a process is believed to live after it was last heard of. */
const LEASE_MS = 15_000;
/** How often it says that it lives, and looks for those that no longer do. */
const HEARTBEAT_MS = 5_000;
/** Entered, read or taken off in one step. */
const AT_ONCE = 500;

interface RedisPresenceOptions {
  readonly keys: HubKeys;
  readonly process: string;
  /** @throws while Redis is away */
  readonly session: () => Session;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A board in Redis. Each process holds a lease, measured by the server's clock; whoever finds one
 * that has run out takes the entries of that process off, in the same step, so that nobody else does.
 */
export class RedisPresence implements PresenceBoard {
  readonly #options: RedisPresenceOptions;
  /** What this process has entered, in case the store loses it. */
  readonly #own = new Map<string, string>();
  #changed: (records: readonly SubscriptionRecord[], active: boolean) => void = () => {};
  #stopHeartbeat: () => void = () => {};
  #closed = false;

  constructor(options: RedisPresenceOptions) {
    this.#options = options;
    this.#armHeartbeat();
  }

  async enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    const entry = JSON.stringify(records);
    this.#own.set(subscriber, entry);
    await this.#asked(() => this.#enter(this.#options.session(), [[subscriber, entry]]));
  }

  async leave(subscriber: string): Promise<void> {
    const { keys, process, session } = this.#options;
    this.#own.delete(subscriber);
    const touched = [keys.present, keys.records, keys.owned];
    await this.#asked(() => session().run(LEAVE, touched, [process, subscriber]));
  }

  async list(): Promise<readonly SubscriptionRecord[]> {
    const records: SubscriptionRecord[] = [];
    let next: string | null = null;
    do {
      const page: PresencePage = await this.page(next, AT_ONCE);
      records.push(...page.records);
      next = page.next;
    } while (next !== null);
    return records;
  }

  async page(after: string | null, limit: number): Promise<PresencePage> {
    const { keys, session } = this.#options;
    return this.#asked(async () => {
      const reply = await session().command(
        ...['ZRANGEBYSCORE', keys.present, after === null ? '-inf' : `(${after}`, '+inf'],
        ...['WITHSCORES', 'LIMIT', '0', String(limit + 1)],
      );
      // Members and scores by turns.
      const flat = Array.isArray(reply) ? reply.map(String) : [];
      const members = flat.filter((_, index) => index % 2 === 0);
      const shown = members.slice(0, limit);
      if (shown.length === 0) return { records: [], next: null };
      const found = await session().command('HMGET', keys.records, ...shown);
      const records = Array.isArray(found) ? found.flatMap(recordsOf) : [];
      const last = flat[shown.length * 2 - 1];
      return { records, next: members.length > limit && last !== undefined ? last : null };
    });
  }

  watch(listener: (records: readonly SubscriptionRecord[], active: boolean) => void): void {
    this.#changed = listener;
  }

  /** Enters again what a server that has taken over may not know. */
  async restore(session: Session): Promise<void> {
    await this.#enter(session, [...this.#own]);
  }

  /** Takes this process off the board, if the store is there; else its lease does. */
  async close(): Promise<void> {
    this.#stopHeartbeat();
    if (this.#closed) return;
    this.#closed = true;
    const { keys, process, session } = this.#options;
    const touched = [keys.present, keys.records, keys.owned, keys.processes];
    try {
      const one = session();
      while (Number(await one.run(QUIT, touched, [process, String(AT_ONCE)])) === AT_ONCE);
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.debug('The presence is left to its lease', { reason });
    }
  }

  #armHeartbeat(): void {
    this.#stopHeartbeat = this.#options.clock.after(HEARTBEAT_MS, () => {
      this.#beat().catch((error: unknown) => {
        const reason = messageOf(error);
        this.#options.log.debug('Presence could not be kept', { reason });
      });
      if (!this.#closed) this.#armHeartbeat();
    });
  }

  async #beat(): Promise<void> {
    const { keys, process, session } = this.#options;
    const touched = [keys.present, keys.records, keys.owned, keys.processes];
    const args = [process, String(LEASE_MS), String(AT_ONCE)];
    for (let more = true; more; ) {
      const reply = await session().run(BEAT, touched, args);
      const [lived, gone]: readonly unknown[] = Array.isArray(reply) ? reply : [];
      const lost = Array.isArray(gone) ? gone.flatMap(recordsOf) : [];
      if (lost.length > 0) this.#changed(lost, false);
      if (lived === 0 && this.#own.size > 0) {
        // It was taken for dead and announced as gone, when it was only slow.
        await this.#enter(session(), [...this.#own]);
        this.#changed([...this.#own.values()].flatMap(recordsOf), true);
      }
      more = lost.length > 0;
    }
  }

  async #enter(session: Session, entries: readonly (readonly [string, string])[]): Promise<void> {
    const { keys, process } = this.#options;
    const touched = [keys.meta, keys.present, keys.records, keys.owned, keys.processes];
    for (let from = 0; from < entries.length; from += AT_ONCE) {
      const some = entries.slice(from, from + AT_ONCE).flat();
      await session.run(ENTER, touched, [process, String(LEASE_MS), ...some]);
    }
  }

  async #asked<Reply>(ask: () => Promise<Reply>): Promise<Reply> {
    if (this.#closed) {
      throw new HubgateError('transport-closed', 'The connection to Redis is closed');
    }
    try {
      return await ask();
    } catch (cause) {
      if (codeOf(cause) === 'transport-failed') throw cause;
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }
}

function recordsOf(entry: unknown): readonly SubscriptionRecord[] {
  // Written by enter, which was given such records.
  return typeof entry === 'string' ? (JSON.parse(entry) as readonly SubscriptionRecord[]) : [];
}
