import type { ResponseHead } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
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
  /** Pages that do not show everything that the server sends because their visitor is active there, */
  withheldForVisitor: number;
  /** because a script has changed the same part, */
  withheldForScript: number;
  /** or because they are gone, and leaving them would lose data. */
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
export function saysChanged({ status, headers }: ResponseHead, url: URL): boolean {
  if (status >= 200 && status < 300) return true;
  if (!SEE_OTHER.has(status)) return false;
  const location = parseUrl(headers.get('location') ?? '', url.href);
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
  return new Promise((resolve) => {
    const cancel = clock.after(REDIRECT_WAIT_MS, resolve);
    void stored.then(() => {
      cancel();
      resolve();
    });
  });
}

/** A topic, or the target of a request, in the form for logs and updates. */
export function withoutQuery(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

/** The queries with which each path has changed, as marks of `queryMark`; '' for none. */
export type QueryMarks = Readonly<Record<string, readonly string[]>>;

/** Publishes in the app's name, and resolves to whether the hub has stored it. Failures are only logged. */
export type Announce = (update: AnnouncedUpdate, log: Logger, because: string) => Promise<boolean>;

const REFUSED = 'The hub refused an update of the app';

/** Never rejects: no request fails because its change could not be announced. */
export function createAnnounce({ publish, announcements }: AnnouncedHub, clock: Clock): Announce {
  const failures = new FailureLog(REFUSED, 'warn', clock);
  return async (update, log, because) => {
    if (publish === null) return false;
    const { type, private: isPrivate } = update;
    const topics = update.topics.map(withoutQuery);
    try {
      await publish(update);
      announcements.announced += 1;
      log.debug('Announced', { because, topics, private: isPrivate, type });
      return true;
    } catch (error) {
      announcements.refused += 1;
      const code = codeOf(error);
      const fields = { because, topics, code, error: messageOf(error) };
      // While the store is unavailable, each change of the site fails alike.
      if (code?.startsWith('transport-') === true) failures.write(log, fields);
      else log.warn(REFUSED, fields);
      return false;
    }
  };
}
