import type { SubscriptionRecord } from '../hub/presence.ts';
import type {
  PresenceBoard,
  PresenceChange,
  PresenceMatcher,
  PresencePage,
} from '../hub/presence-board.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { StoreSession } from '../kernel/sessions.ts';
import { PresenceKeeper, type PresenceStore } from './presence-keeper.ts';

/** Entries that are added, read or removed in one step. */
export const PRESENCE_AT_ONCE = 500;

/** The steps of a presence board on one kind of server. */
export interface PresenceSteps<Key> extends Omit<PresenceStore<Key>, 'atOnce'> {
  /** As in {@link PresenceBoard}. */
  page(after: string | null, limit: number, matcher?: PresenceMatcher): Promise<PresencePage>;
  of(subscriber: string): Promise<readonly SubscriptionRecord[]>;
  /** Removes at most {@link PRESENCE_AT_ONCE} subscribers of this process without any announcement; resolves to their number. */
  quit(): Promise<number>;
}

interface ServerPresenceOptions<Session, Key> {
  /** Name of the store in messages. */
  readonly store: string;
  /** @throws while the server is unavailable */
  readonly session: () => Session;
  /** Whether there is no session. */
  readonly isAway: () => boolean;
  /** Whether another server would do what failed with this error. */
  readonly isElsewhere: (error: unknown) => boolean;
  /** @param session the session to use: while the board is being restored, the one that is not in use yet */
  readonly steps: (session: () => Session) => PresenceSteps<Key>;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A presence board on a server, whatever the server is. Each process holds a lease, measured by the server's clock. A
 * process that finds an expired lease removes the entries of its process in the same step, so that no other process does
 * the same.
 */
export class ServerPresence<Session extends StoreSession, Key> implements PresenceBoard {
  readonly #options: ServerPresenceOptions<Session, Key>;
  readonly #steps: PresenceSteps<Key>;
  readonly #keeper: PresenceKeeper<Key>;
  /** The next session, while the board is being restored with it. */
  #next: Session | null = null;
  #isClosed = false;

  constructor(options: ServerPresenceOptions<Session, Key>) {
    this.#options = options;
    const { clock, log } = options;
    const steps = options.steps(() => this.#next ?? options.session());
    this.#steps = steps;
    const store: PresenceStore<Key> = {
      atOnce: PRESENCE_AT_ONCE,
      enter: (entries) => this.#asked(() => steps.enter(entries)),
      leave: (...given) => this.#asked(() => steps.leave(...given)),
      beat: (...given) => this.#asked(() => steps.beat(...given)),
      settle: (claims, name) => this.#asked(() => steps.settle(claims, name)),
    };
    const isAway = (): boolean => this.#next === null && options.isAway();
    this.#keeper = new PresenceKeeper({ store, isAway, clock, log });
  }

  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    return this.#keeper.enter(subscriber, records);
  }

  leave(subscriber: string): Promise<void> {
    return this.#keeper.leave(subscriber);
  }

  page(after: string | null, limit: number, matcher?: PresenceMatcher): Promise<PresencePage> {
    return this.#asked(() => this.#steps.page(after, limit, matcher));
  }

  of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    return this.#asked(() => this.#steps.of(subscriber));
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#keeper.watch(listener);
  }

  /**
   * Updates the board through a session that is not in use yet. The returned function announces the changes;
   * it needs the history.
   */
  async restore(session: Session): Promise<() => void> {
    this.#next = session;
    try {
      return await this.#keeper.restore();
    } finally {
      this.#next = null;
    }
  }

  /** Removes this process from the board if the server is available; otherwise its lease expires. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    try {
      await this.#keeper.close();
      while ((await this.#steps.quit()) === PRESENCE_AT_ONCE);
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.debug('The presence will expire with its lease', { reason });
    }
    this.#isClosed = true;
  }

  async #asked<Reply>(ask: () => Promise<Reply>): Promise<Reply> {
    if (this.#isClosed) {
      const message = `The connection to ${this.#options.store} is closed`;
      throw new HubgateError('transport-closed', message);
    }
    const session = this.#next ?? this.#options.session();
    try {
      return await ask();
    } catch (cause) {
      if (codeOf(cause) === 'transport-failed') throw cause;
      // A process whose clients only subscribe writes nothing else.
      if (this.#options.isElsewhere(cause)) session.close(messageOf(cause));
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }
}
