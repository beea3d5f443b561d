// Nothing is delivered before it is as durable as the transport promises.

import { type Update, updateSize } from '../hub/update.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';

/** Most updates of a group, which limits the length of its transaction. */
const GROUP_UPDATES = 512;
/** Characters of updates in a group. A larger update gets in if it is the first of its kind. */
const GROUP_CHARACTERS = 4 * 1024 * 1024;
/** Characters of updates that may wait. Beyond this limit, publications are refused. */
const WAITING_CHARACTERS = 64 * 1024 * 1024;
/**
 * Characters of presence events in a group, and of those that may wait. Clients that only subscribe cause them, and an
 * update must not wait behind all of them.
 */
const GROUP_EVENT_CHARACTERS = GROUP_CHARACTERS / 8;
const WAITING_EVENT_CHARACTERS = (WAITING_CHARACTERS / 4) * 3;
/** Characters counted for an update in addition to its own. */
const UPDATE_OVERHEAD_CHARACTERS = 1024;
/** How long a publisher waits for a store that does not answer. */
const DEADLINE_MS = 10_000;
const TICK_MS = 1000;

interface Waiting {
  /** Updates that are in one group, or in none. */
  readonly updates: readonly Update[];
  readonly characters: number;
  readonly isEvent: boolean;
  readonly since: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Appends that arrive while a group is being stored form the next group: one commit, one flush or one round
 * trip for all of them. One group is stored at a time, so the order is kept.
 */
export class GroupCommit {
  readonly #store: (group: readonly Update[]) => Promise<void>;
  readonly #clock: Clock;
  readonly #most: number;
  #waiting: Waiting[] = [];
  #waitingCharacters = 0;
  #waitingEventCharacters = 0;
  #underway: readonly Waiting[] = [];
  #running: Promise<void> | undefined;
  #stopTicking: (() => void) | undefined;

  /**
   * @param store stores a group, or throws the error for each of its appends
   * @param most updates of a group, for a history that keeps fewer than a group could have
   */
  constructor(
    store: (group: readonly Update[]) => Promise<void>,
    clock: Clock,
    most = GROUP_UPDATES,
  ) {
    this.#store = store;
    this.#clock = clock;
    this.#most = Math.min(most, GROUP_UPDATES);
  }

  /**
   * @throws HubgateError `transport-failed` if the update was never being stored, `transport-uncertain` if
   * the store did not answer in time; and what the store throws
   */
  append(update: Update): Promise<void> {
    return this.#add([update]);
  }

  /**
   * All of these updates in one group, whatever its limits, without those whose ids are known.
   *
   * @throws as {@link append}
   */
  appendOnce(updates: readonly Update[]): Promise<void> {
    if (updates.length === 0) return Promise.resolve();
    return this.#add(updates.map((update) => ({ ...update, once: true })));
  }

  #add(updates: readonly Update[]): Promise<void> {
    const characters = updates.reduce(
      (sum, update) => sum + updateSize(update) + UPDATE_OVERHEAD_CHARACTERS,
      0,
    );
    const isEvent = updates.every(({ presence }) => presence === true);
    const eventCharacters = isEvent ? this.#waitingEventCharacters + characters : 0;
    if (
      this.#waitingCharacters + characters > WAITING_CHARACTERS ||
      eventCharacters > WAITING_EVENT_CHARACTERS
    ) {
      const message = 'The update could not be stored: too many updates are waiting';
      return Promise.reject(new HubgateError('transport-failed', message));
    }
    this.#count({ characters, isEvent }, 1);
    return new Promise((resolve, reject) => {
      const since = this.#clock.monotonic();
      this.#waiting.push({ updates, characters, isEvent, since, resolve, reject });
      this.#running ??= this.#run();
      this.#stopTicking ??= this.#clock.after(TICK_MS, () => this.#tick());
    });
  }

  /** Resolves when nothing waits or is being stored. */
  async drained(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    // Appends of the same turn of the event loop form one group.
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const group = this.#nextGroup();
      this.#underway = group;
      try {
        await this.#store(group.flatMap(({ updates }) => updates));
        for (const { resolve } of group) resolve();
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
      this.#underway = [];
    }
    this.#running = undefined;
    this.#stopTicking?.();
    this.#stopTicking = undefined;
  }

  /**
   * Keeps the order of the updates, and that of the presence events. One of each kind gets in however large it is, if the
   * number of updates permits.
   */
  #nextGroup(): readonly Waiting[] {
    const group: Waiting[] = [];
    const left: Waiting[] = [];
    const events = { characters: 0, isFull: false };
    const updates = { characters: 0, isFull: false };
    let size = 0;
    for (const waiting of this.#waiting) {
      const { isEvent, characters } = waiting;
      const kind = isEvent ? events : updates;
      const isTooLarge =
        events.characters + updates.characters + characters > GROUP_CHARACTERS ||
        (isEvent && events.characters + characters > GROUP_EVENT_CHARACTERS);
      const isTooMany = group.length > 0 && size + waiting.updates.length > this.#most;
      kind.isFull ||= isTooMany || (kind.characters > 0 && isTooLarge);
      if (kind.isFull) {
        left.push(waiting);
        continue;
      }
      group.push(waiting);
      kind.characters += characters;
      size += waiting.updates.length;
      this.#count(waiting, -1);
    }
    this.#waiting = left;
    return group;
  }

  #count({ characters, isEvent }: Pick<Waiting, 'characters' | 'isEvent'>, sign: 1 | -1): void {
    this.#waitingCharacters += sign * characters;
    if (isEvent) this.#waitingEventCharacters += sign * characters;
  }

  /** A settled promise ignores later results, so a store that answers late does no harm. */
  #tick(): void {
    const due = this.#clock.monotonic() - DEADLINE_MS;
    for (const { since, reject } of this.#underway) {
      if (since <= due) reject(new HubgateError('transport-uncertain', SILENT));
    }
    const late = this.#waiting.filter(({ since }) => since <= due);
    if (late.length > 0) {
      this.#waiting = this.#waiting.filter(({ since }) => since > due);
      for (const waiting of late) {
        this.#count(waiting, -1);
        waiting.reject(
          new HubgateError('transport-failed', 'The update was not stored: the store is busy'),
        );
      }
    }
    this.#stopTicking = this.#clock.after(TICK_MS, () => this.#tick());
  }
}

const SILENT = 'It is not known whether the update was stored: the store did not answer in time';
