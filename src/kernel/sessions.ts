// The libraries of stores never reconnect by themselves here, because a store that has failed over is looked for
// again, and because what a session knew must be checked before the next one is used.

import { type Clock, pauseUntil } from './clock.ts';
import { HubgateError, messageOf } from './error.ts';
import type { Logger } from './log.ts';

const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 2000;

/** The connections to one server, until the first of them is lost. */
export interface StoreSession {
  readonly isLost: boolean;
  /** @param reason why it is of no further use, for the log */
  close(reason?: string): void;
}

/** How a process uses its sessions. */
export interface SessionUse<Session extends StoreSession> {
  /** Called with the first session before it is used. */
  begin(session: Session): Promise<void>;
  /** Called with each session that follows a lost one, before it is used. */
  resume(session: Session): Promise<void>;
  /** Uses a session until it is lost; resolves to the reason. */
  follow(session: Session): Promise<string>;
  /** Called when no further session follows. */
  ended(): void;
}

interface SessionsOptions<Session extends StoreSession> {
  /** Name of the store in messages. */
  readonly store: string;
  /** What does not work while the store is away, as a part of a sentence. */
  readonly meanwhile: string;
  /** @throws HubgateError `transport-failed` */
  readonly connect: () => Promise<Session>;
  /** Whether another server, or this one after a new start, would do what failed with this error. */
  readonly isElsewhere: (error: unknown) => boolean;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
}

/** One {@link StoreSession} after the other, with a random and growing pause between them, until they are closed. */
export class Sessions<Session extends StoreSession> {
  readonly #options: SessionsOptions<Session>;
  #current: Session | null = null;
  #waiters: (() => void)[] = [];
  #closing = false;
  #living: Promise<void> | undefined;
  /** Why the store could not be reached since it was lost. */
  readonly #reasons = new Set<string>();
  #stopBackoff: () => void = () => {};

  constructor(options: SessionsOptions<Session>) {
    this.#options = options;
  }

  /**
   * Connects for the first time, and stays connected from then on.
   *
   * @throws HubgateError `transport-failed`, and the errors of `use.begin`
   */
  async open(use: SessionUse<Session>): Promise<void> {
    const session = await this.#options.connect();
    try {
      await use.begin(session);
    } catch (error) {
      session.close();
      throw error;
    }
    this.#living = this.#liveOn(session, use);
  }

  get isAway(): boolean {
    return this.#current === null || this.#current.isLost;
  }

  /** @throws HubgateError `transport-failed` while the store is unavailable */
  live(): Session {
    if (this.#current !== null && !this.#current.isLost) return this.#current;
    throw new HubgateError('transport-failed', `${this.#options.store} is unreachable`);
  }

  /** The session that follows a lost one; null if there is none until `end` on the monotonic clock. */
  async next(end: number): Promise<Session | null> {
    const { clock } = this.#options;
    while (this.isAway) {
      const left = end - clock.monotonic();
      if (left <= 0 || this.#closing) return null;
      await pauseUntil(left, clock, (end) => void this.#waiters.push(end));
    }
    return this.#current;
  }

  /**
   * Runs a request on the active session.
   *
   * @throws HubgateError `transport-failed`, and the errors of the request
   */
  async ask<Reply>(question: (session: Session) => Promise<Reply>): Promise<Reply> {
    const { store, isElsewhere } = this.#options;
    const session = this.live();
    try {
      return await question(session);
    } catch (cause) {
      if (cause instanceof HubgateError) throw cause;
      if (isElsewhere(cause)) session.close(messageOf(cause));
      const message = `${store} refused a command or did not answer (${messageOf(cause)})`;
      throw new HubgateError('transport-failed', message, { cause });
    }
  }

  /** The active session is the last one. */
  openNoMore(): void {
    this.#closing = true;
    this.#stopBackoff();
    this.#wakeWaiters();
  }

  /** Must be called after {@link openNoMore}. */
  async close(): Promise<void> {
    this.#current?.close();
    await this.#living;
  }

  async #liveOn(first: Session, use: SessionUse<Session>): Promise<void> {
    const { clock } = this.#options;
    let session: Session | null = first;
    let failures = 0;
    for (;;) {
      if (session !== null) {
        const began = clock.monotonic();
        await this.#use(session, use);
        // A session that is lost at once would be lost again, because the cause may be what it reads.
        if (clock.monotonic() - began >= MAX_BACKOFF_MS) failures = 0;
      }
      if (this.#closing) break;
      await this.#backOff(failures);
      if (this.#closing) break;
      failures += 1;
      session = await this.#reopen(failures, use);
      if (this.#closing) {
        // `close` was called before this session existed.
        session?.close();
        break;
      }
    }
    use.ended();
  }

  async #use(session: Session, use: SessionUse<Session>): Promise<void> {
    this.#current = session;
    this.#wakeWaiters();
    const reason = await use.follow(session);
    session.close();
    this.#current = null;
    if (this.#closing) return;
    const { store, meanwhile, log } = this.#options;
    log.warn(`${store} is unreachable; ${meanwhile} until it is back`, { reason });
  }

  async #reopen(attempt: number, use: SessionUse<Session>): Promise<Session | null> {
    const { store, connect, log } = this.#options;
    let session: Session | null = null;
    try {
      session = await connect();
      await use.resume(session);
      log.info(`${store} is back`, { attempt });
      this.#reasons.clear();
      return session;
    } catch (error) {
      session?.close();
      const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
      const reason = messageOf(cause);
      // A changed password is not the reason for which the connection was lost.
      const level = this.#reasons.has(reason) ? 'debug' : 'warn';
      this.#reasons.add(reason);
      log[level](`${store} is still unreachable`, { attempt, error: reason });
      return null;
    }
  }

  /** The wait grows, and is random, so that the nodes of a hub do not reconnect at the same moment. */
  async #backOff(failures: number): Promise<void> {
    const { clock, random } = this.#options;
    const longest = Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** failures);
    await pauseUntil(longest * (0.5 + random() / 2), clock, (end) => {
      this.#stopBackoff = end;
    });
  }

  #wakeWaiters(): void {
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
}
