import { fieldText } from '../http/header-list.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { outcomeStatus } from '../http/request-variables.ts';
import { type Clock, pauseUntil } from '../kernel/clock.ts';
import { parseUrl } from '../kernel/parse.ts';
import { FailureLog, type Logger } from '../kernel/log.ts';
import { codeOf, messageOf } from '../kernel/error.ts';

// Updates of the gateway itself reach the hub's history through a function, with the rules of every
// publication.

/** An update that the gateway publishes in the app's name. */
export interface AnnouncedUpdate {
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly data: string;
  readonly type?: string | undefined;
  readonly id?: string | undefined;
}

/** Counters of what the gateway does in the app's name. They never decrease. */
export interface AnnouncementCounts {
  /** Updates that result from responses of the app. */
  announced: number;
  /** Changes that were merged into another update. */
  merged: number;
  /** Updates that the hub, or the limits of `Hub-Publish`, refused. */
  refused: number;
  /** Fetches of pages that got the response to another request. */
  collapsed: number;
  /** Pages with withheld changes because their visitor is active there. */
  withheldForVisitor: number;
  /** Pages with withheld changes because a script has changed the same part. */
  withheldForScript: number;
  /** Pages that are gone but still shown, because leaving them would lose data. */
  withheldGone: number;
}

/** Looks by their outcome, and the pages that are watched now. */
export interface WatchCounts {
  watched: number;
  /** Pages for which there was no room. */
  refused: number;
  first: number;
  unchanged: number;
  changed: number;
  unfit: number;
  failed: number;
}

export function noWatchCounts(): WatchCounts {
  return { watched: 0, refused: 0, first: 0, unchanged: 0, changed: 0, unfit: 0, failed: 0 };
}

/** Whether this process is to look at a page, among all that share the history. */
export interface WatchDuty {
  isElected(): Promise<boolean>;
  leave(): Promise<void>;
}

/** Who follows what, for the pages that are watched. */
export interface Followers {
  /** The topics that streams of this process follow exactly. They may change while the caller reads them. */
  topics(): Iterable<string>;
  /** Notifies of changes of {@link topics}. The returned function ends that. */
  observe(observer: FollowObserver): () => void;
  /** Enters the election of the process that does some work for all that share the history. */
  standFor(work: string): WatchDuty;
  readonly counts: WatchCounts;
}

export interface FollowObserver {
  /** A topic has its first follower in this process. */
  began(topic: string): void;
  /** A topic has lost its last one. */
  ended(topic: string): void;
}

/** The hub that a site's pages announce. */
export interface AnnouncedHub {
  /** Path, or absolute URL when the hub is on another site. */
  readonly target: string;
  readonly path: string;
  readonly relation: string;
  readonly cookieName: string;
  /** Returns the hub-wide cursor; null for an external hub. */
  readonly lastEventId: () => string | null;
  /** Host of the hub for a page on that host. */
  readonly hostFor: (pageHost: string) => string;
  /** Whether scripts of an origin may use the hub; null if only those of its own origin may. */
  readonly allowsOrigin: ((origin: string) => boolean) | null;
  /**
   * Publishes an update on the hub; null for an external hub.
   *
   * @throws HubgateError (rejects with it) for an update that the hub refuses or cannot store
   */
  readonly publish: ((update: AnnouncedUpdate) => Promise<void>) | null;
  /** The number of streams that have subscribed to exactly this topic. */
  readonly interest: (topic: string) => number;
  readonly announcements: AnnouncementCounts;
  /** Changes that wait for the hub's store; null for an external hub. */
  readonly unstored: UnstoredChanges | null;
  /** null for an external hub. */
  readonly followers: Followers | null;
  /** Ends the streams of a token by its `jti`. */
  readonly revoke: (tokenId: string) => void;
  /** Ends the streams of a browser session by its mark. */
  readonly signOut: (session: string) => void;
}

/** Redirects with which apps respond to a form: the change is made, and the result is at another URL. */
const SEE_OTHER = new Set([301, 302, 303]);

/** A path segment that identifies a login page. */
const LOGIN =
  /(?:^|\/)(?:(?:wp-)?(?:log|sign)[-_]?(?:in|on)(?:\.[a-z]+)?|sso|sessions?\/new)(?:\/|$)/i;

/**
 * Whether a response to an unsafe request means that its target has changed. A 2xx does, and a 301, 302 or
 * 303 to a URL of the same origin that is not a login page. Any other redirect asks for the same request
 * elsewhere, or for a visitor that has to log in first.
 */
export function saysChanged(exchange: Exchange, head: ResponseHead, url: URL): boolean {
  const { headers } = head;
  const status = outcomeStatus(exchange, head);
  if (status >= 200 && status < 300) return true;
  if (!SEE_OTHER.has(status)) return false;
  const location = parseUrl(fieldText(headers.get('location') ?? ''), url.href);
  if (location === null || !headers.has('location')) return false;
  return location.origin === url.origin && !LOGIN.test(location.pathname);
}

/** How long the response to a form waits for its update if the hub is slow. */
const REDIRECT_WAIT_MS = 1000;

export function isSeeOther({ status }: ResponseHead): boolean {
  return SEE_OTHER.has(status);
}

/**
 * Waits until an update is stored, so that the page to which a browser is redirected does not receive the
 * visitor's own change once more. That would fetch the page again, and so remove the app's message about the
 * change. The wait is limited, because no response depends on the hub.
 */
export function waitForStored(stored: Promise<unknown>, clock: Clock): Promise<void> {
  return pauseUntil(REDIRECT_WAIT_MS, clock, (end) => void stored.then(end));
}

/** A topic, or the target of a request, in the form for logs and updates. */
export function withoutQuery(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

/** The queries with which each path has changed, as marks of `queryMark`; '' for none. */
export type QueryMarks = Readonly<Record<string, readonly string[]>>;

/** What became of an update: stored, refused, or not stored because the store cannot be reached now. */
export type Outcome = 'stored' | 'refused' | 'unavailable';

/** Publishes in the app's name. Failures are only logged. */
export type Announce = (update: AnnouncedUpdate, log: Logger, because: string) => Promise<Outcome>;

const REFUSED = 'The hub refused an update of the app';

/** Never rejects: no request fails because its change could not be announced. */
export function createAnnounce({ publish, announcements }: AnnouncedHub, clock: Clock): Announce {
  const failures = new FailureLog(REFUSED, 'warn', clock);
  return async (update, log, because) => {
    if (publish === null) return 'refused';
    const { type, private: isPrivate } = update;
    const topics = update.topics.map(withoutQuery);
    try {
      await publish(update);
      announcements.announced += 1;
      log.debug('Announced', { because, topics, private: isPrivate, type });
      return 'stored';
    } catch (error) {
      const code = codeOf(error);
      const fields = { because, topics, code, error: messageOf(error) };
      if (code === 'transport-failed' || code === 'transport-uncertain') {
        // While the store is unavailable, each change of the site fails alike.
        failures.write(log, fields);
        return 'unavailable';
      }
      announcements.refused += 1;
      log.warn(REFUSED, fields);
      return 'refused';
    }
  };
}

/** A change of the app. Several changes can become one update. */
export interface Change {
  readonly update: AnnouncedUpdate;
  /**
   * Data of an update that combines several changes, so that it is not mistaken for a change of one query.
   */
  readonly data: string;
  /** Called after the first attempt to store it, for the responses that wait for it. */
  readonly whenTried?: readonly (() => void)[];
}

/** Most topics of one update. */
export const MAX_TOPICS = 32;

/** One change for an earlier and a later one. */
export function merged(one: Change, { update, data, whenTried = [] }: Change): Change {
  const topics = [...new Set([...update.topics, ...one.update.topics])];
  return {
    update: { ...update, data, topics: topics.slice(0, MAX_TOPICS) },
    data,
    whenTried: [...(one.whenTried ?? []), ...whenTried],
  };
}

const RETRY_MS = 2000;
/** Changes that wait for a store. Further ones are lost. */
const MAX_UNSTORED = 1000;
/** Characters of their topics and data. */
const MAX_UNSTORED_LENGTH = 8 * 1024 * 1024;

interface Unstored {
  readonly change: Change;
  readonly announce: (update: AnnouncedUpdate) => Promise<Outcome>;
  /** A larger number for a change that was announced later. */
  readonly order: number;
}

/** The attempts to store changes of one key. */
interface Attempts {
  running: number;
  /** The latest change that was stored while another one was on its way; null if there is none. */
  stored: { readonly order: number; readonly change: Change } | null;
}

/**
 * Changes that could not be stored because the store could not be reached. They are announced when it is back,
 * in their order, so that open pages do not keep showing what the app changed meanwhile. After a newer change, an older
 * one is only announced with the data of the newer one. They belong to the hub core, so that a reload does not lose them.
 */
export class UnstoredChanges {
  readonly #clock: Clock;
  readonly #waiting = new Map<string, Unstored>();
  readonly #attempts = new Map<string, Attempts>();
  #order = 0;
  #length = 0;
  #cancel: (() => void) | null = null;
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Announces a change, combined with the one that waits under the same key. If the store cannot be reached, the change
   * waits. Resolves to `unavailable` if there is no room for it.
   *
   * @param key the same for changes that may be combined
   */
  async announce(
    key: string,
    change: Change,
    announce: Unstored['announce'],
  ): Promise<Outcome | 'waits'> {
    const all = this.#join(key, change);
    this.#order += 1;
    const order = this.#order;
    const attempts = this.#attempts.get(key) ?? { running: 0, stored: null };
    this.#attempts.set(key, attempts);
    attempts.running += 1;
    const outcome = await announce(all.update);
    for (const resolve of all.whenTried ?? []) resolve();
    attempts.running -= 1;
    if (attempts.running === 0) this.#attempts.delete(key);
    if (outcome === 'unavailable') {
      const { stored } = attempts;
      const change = stored !== null && order < stored.order ? withData(all, stored.change) : all;
      return this.#add(key, { change, announce, order }) ? 'waits' : 'unavailable';
    }
    if (outcome === 'stored') this.#stored(key, attempts, order, all);
    return outcome;
  }

  /** Returns the number of changes that are lost. */
  close(): number {
    this.#isClosed = true;
    this.#cancel?.();
    return this.#waiting.size;
  }

  /** An older change that waits gets the data of this one. It still names pages that this one may not name. */
  #stored(key: string, attempts: Attempts, order: number, change: Change): void {
    if (order > (attempts.stored?.order ?? 0)) attempts.stored = { order, change };
    const waiting = this.#waiting.get(key);
    if (waiting === undefined || waiting.order > order) return;
    this.#delete(key, waiting);
    this.#set(key, { ...waiting, change: withData(waiting.change, change) });
  }

  /**
   * Returns a change, combined with the one that waits under the same key, which does not wait any more. If both
   * have too many topics for one update, the older one keeps those that the newer one does not have.
   */
  #join(key: string, change: Change): Change {
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return change;
    const { topics } = change.update;
    if (new Set([...waiting.change.update.topics, ...topics]).size > MAX_TOPICS) {
      this.#delete(key, waiting);
      const older = withoutTopics(waiting.change, topics);
      if (older !== null) this.#set(`${key} ${waiting.order}`, { ...waiting, change: older });
      // It now stands for the older one as well.
      return withData(change, change);
    }
    this.#delete(key, waiting);
    return merged(waiting.change, change);
  }

  /** Lets a change wait. Returns false if there is no room for it. */
  #add(key: string, { change, announce, order }: Unstored): boolean {
    // Without those who have waited for the first attempt: there may be any number of them.
    const added = { announce, order, change: { update: change.update, data: change.data } };
    let latest: Unstored = added;
    const waiting = this.#waiting.get(key);
    if (waiting !== undefined && waiting.order > order) {
      this.#delete(key, waiting);
      this.#set(key, added);
      latest = waiting;
    }
    const { update, data } = this.#join(key, latest.change);
    latest = { ...latest, change: { update, data } };
    const isFull =
      this.#waiting.size >= MAX_UNSTORED || this.#length + lengthOf(latest) > MAX_UNSTORED_LENGTH;
    if (this.#isClosed || isFull) return false;
    this.#set(key, latest);
    this.#cancel ??= this.#clock.after(RETRY_MS, () => void this.#retry());
    return true;
  }

  async #retry(): Promise<void> {
    for (const [key, waiting] of this.#waiting) {
      if ((await waiting.announce(waiting.change.update)) === 'unavailable') break;
      // A later change may have taken its place.
      if (this.#waiting.get(key) === waiting) this.#delete(key, waiting);
    }
    const isDone = this.#isClosed || this.#waiting.size === 0;
    this.#cancel = isDone ? null : this.#clock.after(RETRY_MS, () => void this.#retry());
  }

  #set(key: string, waiting: Unstored): void {
    this.#waiting.set(key, waiting);
    this.#length += lengthOf(waiting);
  }

  #delete(key: string, waiting: Unstored): void {
    this.#waiting.delete(key);
    this.#length -= lengthOf(waiting);
  }
}

/** A change with the data of a newer one that combines several changes. */
function withData({ update, ...rest }: Change, { data }: Change): Change {
  return { ...rest, update: { ...update, data }, data };
}

/** A change without some of its topics; null if it has no others. */
function withoutTopics(change: Change, topics: readonly string[]): Change | null {
  const left = change.update.topics.filter((topic) => !topics.includes(topic));
  return left.length === 0 ? null : { ...change, update: { ...change.update, topics: left } };
}

function lengthOf({ change: { update } }: Unstored): number {
  return update.topics.reduce((sum, topic) => sum + topic.length, update.data.length);
}
