import { hash } from 'node:crypto';
import { Writable } from 'node:stream';
import { type Clock, pause } from '../kernel/clock.ts';
import { setNewest } from '../kernel/collections.ts';
import type { BodyWrapper, Exchange, RequestHook, ResponseHead } from '../http/exchange.ts';
import { MAX_DISCARDED_BYTES } from '../http/deferred-body.ts';
import { hasField } from '../http/field-values.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { type AnnouncedHub, isSeeOther } from './announced-hub.ts';
import { DATA_FIELD, PUBLISH_FIELD } from './hub-publish.ts';
import type { TopicOf } from '../client/page-topics.ts';
import { requestUrl } from '../http/request-path.ts';
import { sessionCookieName } from '../http/session-mark.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { parseUrl } from '../kernel/parse.ts';

export interface LiveRefetchesOptions {
  readonly hub: AnnouncedHub;
  readonly concerns: (exchange: Exchange) => boolean;
  /** For how long a response is shared with other requests, counted from its own request. */
  readonly windowMs: number;
  readonly topicOf: TopicOf;
  readonly clock: Clock;
  /** Returns a number from 0 up to 1. */
  readonly random: () => number;
  /** Fields of the app's responses that concern one user: the token, or what it is created from. */
  readonly personalFields: readonly string[];
}

/** The field in which the script of live pages names the update that causes its fetch. */
const CAUSE = 'Hub-Live';
/** Variable of a request with this field. */
export const REFETCH = 'hub.live.refetch';
/** The field with which the script fetches the page only because its response renews the cookie of the stream. */
const RENEWAL = 'Hub-Renew';
/** How long a visitor's next page may take until it is asked for, and until its response begins. */
const NEXT_PAGE_MS = 2000;
/** Longest wait of a fetch for such pages. */
const MAX_NEXT_PAGES_MS = 5000;
/** Most visitors whose next pages are awaited, and most pages of one of them. */
const MAX_VISITORS = 10_000;
const MAX_NEXT_PAGES = 32;
/** Characters of a `User-Agent` that tell visitors apart. */
const MAX_BROWSER = 256;
/** Private pages that are fetched per second because of one update. */
const REFETCHES_PER_SECOND = 200;
/** Longest wait of the last of them. The script of the page gives up a fetch much later (`LONGEST_FETCH_MS`). */
const MAX_SPREAD_MS = 30_000;

/**
 * Handles the pages that are fetched because of an update. Equal requests can share one response of the app;
 * others are spread over time. This is decided next to the upstream, after each request has passed all rules
 * of its site.
 */
export function createLiveRefetches(options: LiveRefetchesOptions) {
  const { hub, concerns, windowMs, topicOf, clock, random, personalFields } = options;
  /** For requests of clients, not for requests on their behalf. */
  const causes = new WeakMap<Exchange, string>();
  const nextPages = new NextPages(clock);
  const cookies = cookieChanges(clock);
  const isOfGateway = (name: string): boolean =>
    name === hub.cookieName || name === sessionCookieName(hub.cookieName);
  /** Removes the fields with which the script says why it sends a request. */
  const take: RequestHook = (exchange) => {
    const { headers, method } = exchange;
    const cause = headers.get(CAUSE);
    const isByScript = method === 'GET' && (cause !== undefined || headers.has(RENEWAL));
    cookies.watch(exchange, isByScript, isOfGateway);
    headers.delete(RENEWAL);
    if (cause === undefined) {
      if (!isByScript) nextPages.watch(exchange);
      return;
    }
    headers.delete(CAUSE);
    exchange.variables.set(REFETCH, '');
    if (method === 'GET' && concerns(exchange)) causes.set(exchange, cause);
  };
  return {
    take,
    /** Which requests because of one update are equal, for the handler that forwards them. */
    sharing: {
      // If a page fetches because of a named update, later requests for the same page get the same response.
      // If a page does not know which updates it has missed, it shares only a response that was requested
      // after its own request had arrived.
      groupOf(exchange: Exchange) {
        const name = causes.get(exchange.standsFor ?? exchange);
        if (name === undefined) return null;
        const gathers = name === '';
        return { name, gatherMs: gathers ? windowMs : 0, keepMs: gathers ? 0 : windowMs };
      },
      ownPages: (exchange: Exchange) => nextPages.before(exchange.standsFor ?? exchange),
      async spread(exchange: Exchange): Promise<void> {
        const url = requestUrl(exchange);
        if (url === null) return;
        const readers = hub.interest(topicOf(url).topic);
        const spreadMs = Math.min(((readers - 1) * 1000) / REFETCHES_PER_SECOND, MAX_SPREAD_MS);
        if (spreadMs > 0) await pause(clock, random() * spreadMs, exchange);
      },
      forOthers(fields: HeaderList): HeaderList | null {
        if (hasField(fields, personalFields)) return null;
        const others = fields.clone();
        // A response is published only once.
        for (const name of [PUBLISH_FIELD, DATA_FIELD]) others.delete(name);
        return others;
      },
      shared: () => {
        hub.announcements.collapsed += 1;
      },
    },
  };
}

/** A page to which a visitor is redirected. */
interface NextPage {
  /** Changes if the page redirects to another one. */
  href: string;
  /** Resolves once its response begins, or takes too long. */
  readonly begun: Promise<void>;
  /** Gives it time to be asked for, or to be answered. */
  extend(): void;
  end(): void;
}

/**
 * The pages to which visitors are redirected after a form. Apps keep a message such as "Saved" for the next
 * request of the session, which must be that of this page. Another window of the visitor hears of the change
 * at the same time, and its fetch may be faster than the redirect. So it waits until the page is answered.
 *
 * A visitor is an address with a browser, because a session may begin with the redirect itself. If several
 * visitors look like one, their fetches only wait for each other's pages.
 */
class NextPages {
  readonly #clock: Clock;
  readonly #visitors = new Map<string, Set<NextPage>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Looks at a request that no update has caused. */
  watch(exchange: Exchange): void {
    const isRead = exchange.method === 'GET' || exchange.method === 'HEAD';
    if (isRead && this.#visitors.size === 0) return;
    const visitor = visitorOf(exchange);
    const url = requestUrl(exchange);
    if (url === null) return;
    const pages = isRead ? [...(this.#visitors.get(visitor) ?? [])] : [];
    const page = pages.find(({ href }) => href === url.href);
    if (isRead && page === undefined) return;
    page?.extend();
    exchange.onHead((head) => {
      const next = isSeeOther(head)
        ? parseUrl(fieldText(head.headers.get('location') ?? ''), url.href)
        : null;
      if (next === null || next.origin !== url.origin) {
        page?.end();
        return;
      }
      next.hash = '';
      if (page === undefined) this.#expect(visitor, next.href);
      else {
        page.href = next.href;
        page.extend();
      }
    });
  }

  /** null if nothing is to be waited for. A request without credentials is of no session. */
  before(exchange: Exchange): Promise<void> | null {
    const { headers } = exchange;
    const pages = this.#visitors.get(visitorOf(exchange));
    if (pages === undefined || !(headers.has('cookie') || headers.has('authorization')))
      return null;
    return Promise.race([
      Promise.all([...pages].map(({ begun }) => begun)).then(() => {}),
      pause(this.#clock, MAX_NEXT_PAGES_MS, exchange),
    ]);
  }

  #expect(visitor: string, href: string): void {
    const pages = this.#visitors.get(visitor) ?? new Set();
    const isFull =
      pages.size === 0 ? this.#visitors.size >= MAX_VISITORS : pages.size >= MAX_NEXT_PAGES;
    if (isFull) return;
    this.#visitors.set(visitor, pages);
    let begin = (): void => {};
    let cancel = (): void => {};
    const page: NextPage = {
      href,
      begun: new Promise((resolve) => {
        begin = resolve;
      }),
      extend: () => {
        cancel();
        cancel = this.#clock.after(NEXT_PAGE_MS, page.end);
      },
      end: () => {
        cancel();
        // A page may be asked for twice, and the visitor may be redirected again meanwhile.
        if (!pages.delete(page)) return;
        if (pages.size === 0) this.#visitors.delete(visitor);
        begin();
      },
    };
    pages.add(page);
    page.extend();
  }
}

/** How long a request with the old value of a cookie may be on its way after a response has changed it. */
const CROSSING_MS = 10_000;
/** Most cookies whose changes are remembered, and most pages whose fetches were answered without a result. */
const MAX_COOKIES = 20_000;
/** Cookies of one message that are looked at: as many as browsers keep for a site. */
const MAX_OF_MESSAGE = 200;
const MAX_PAGES = 10_000;
/** Characters from which on a value is taken for one that only one browser has. */
const OWN_VALUE = 16;
/** How often in a row a fetch of a page is asked for again. After that, the page is shown, without its cookies. */
const MAX_REPEATS = 2;

/** What has become of a cookie of one browser. */
interface CookieState {
  /** Monotonic time of the last change that no script of a live page has caused. */
  changedAt: number;
  /** The key of the value that it had last. */
  current: string;
}

/** The values that a message sends or sets, by name; null if there are several, which paths or domains tell apart. */
type Cookies = ReadonlyMap<string, string | null>;

/**
 * The changes of cookies, so that a fetch of a live page never undoes one. An app that keeps its session in a cookie sends
 * a new one with many responses. If such a response to a fetch arrived after the response to a form, the browser would lose
 * what the form has put into the session, or a logout. So a response to a fetch whose cookies have changed meanwhile
 * is dropped, with its cookies, and the script asks again. Where cookies change all the time, the page is shown in the end,
 * but without its cookies.
 */
class CookieChanges {
  readonly #clock: Clock;
  /** By a value that the cookie has had. Values that follow each other share their state. */
  readonly #states = new Map<string, CookieState>();
  /** By visitor and page: how many fetches in a row were outdated. */
  readonly #repeats = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param isByScript whether the script of a live page sends the request, and not the visitor
   * @param ignored names of cookies that the gateway itself sets, beside those of the app
   */
  watch(exchange: Exchange, isByScript: boolean, ignored: (name: string) => boolean): void {
    const arrivedAt = this.#clock.monotonic();
    const fields = exchange.headers.getAll('cookie');
    const { originalTarget } = exchange;
    // Routes may change the fields.
    const visitor = visitorOf(exchange);
    exchange.onHead((head) => {
      const changes = head.headers.getAll('set-cookie').slice(0, MAX_OF_MESSAGE);
      if (changes.length === 0 && !isByScript) return undefined;
      const sent = cookiesIn(fields.flatMap((field) => field.split(';')).filter(isNotBlank));
      // A response that moves a cookie to another domain or path deletes the old one.
      const set = new Map(
        [...cookiesIn(changes.map((field) => field.split(';', 1)[0] ?? ''))].map(
          ([name, value]) => [name, value ?? lastSet(changes, name)],
        ),
      );
      for (const name of [...set.keys()]) {
        if (ignored(name) || (sent.has(name) && sent.get(name) === set.get(name))) set.delete(name);
      }
      if (isByScript) {
        const key = keyOf([visitor, originalTarget]);
        if (this.#isOutdated(visitor, sent, set, arrivedAt)) return this.#refuse(key, head);
        this.#repeats.delete(key);
      }
      for (const [name, value] of set) {
        this.#change(visitor, name, sent.get(name) ?? null, value, isByScript);
      }
      return undefined;
    });
  }

  #refuse(key: string, head: ResponseHead): BodyWrapper | undefined {
    const repeats = this.#repeats.get(key) ?? 0;
    setNewest(this.#repeats, key, repeats + 1, MAX_PAGES);
    if (repeats < MAX_REPEATS) return askAgain(head);
    head.headers.delete('set-cookie');
    return undefined;
  }

  #isOutdated(visitor: string, sent: Cookies, set: Cookies, arrivedAt: number): boolean {
    return [...new Set([...sent.keys(), ...set.keys()])].some((name) => {
      const unknown = this.#states.get(keyOf([visitor, name]));
      if (unknown !== undefined && unknown.changedAt >= arrivedAt) return true;
      const value = sent.get(name) ?? null;
      if (value === null) return false;
      const key = valueKey(visitor, name, value);
      const state = this.#states.get(key);
      if (state === undefined) return false;
      return (
        state.changedAt >= arrivedAt ||
        (state.current !== key && arrivedAt - state.changedAt < CROSSING_MS)
      );
    });
  }

  /** @param before null if it is unknown: the browser has not sent the cookie, at least not to this path */
  #change(
    visitor: string,
    name: string,
    before: string | null,
    value: string,
    isByScript: boolean,
  ): void {
    const key = before === null ? keyOf([visitor, name]) : valueKey(visitor, name, before);
    const next = valueKey(visitor, name, value);
    const state = this.#states.get(key) ?? { changedAt: Number.NEGATIVE_INFINITY, current: key };
    // A script may still get the response to a fetch with an older value.
    if (!isByScript || state.current === key) state.current = next;
    if (!isByScript) state.changedAt = this.#clock.monotonic();
    setNewest(this.#states, key, state, MAX_COOKIES);
    // What several browsers may begin with, or end with, says nothing about what follows.
    if (before === null || before.length < OWN_VALUE || value.length < OWN_VALUE) return;
    setNewest(this.#states, next, state, MAX_COOKIES);
  }
}

/** The changes that all sites of this process have seen, by their clock: an app may be on several sites. */
const changesBy = new WeakMap<Clock, CookieChanges>();

function cookieChanges(clock: Clock): CookieChanges {
  const changes = changesBy.get(clock) ?? new CookieChanges(clock);
  changesBy.set(clock, changes);
  return changes;
}

/** Watches the cookies of a site without live pages, beside one that has some. */
export function watchCookies(clock: Clock): RequestHook {
  const changes = cookieChanges(clock);
  return (exchange) => changes.watch(exchange, false, () => false);
}

function isNotBlank(text: string): boolean {
  return text.trim() !== '';
}

function cookiesIn(pairs: readonly string[]): Map<string, string | null> {
  const cookies = new Map<string, string | null>();
  for (const pair of pairs.slice(0, MAX_OF_MESSAGE)) {
    const [name, value] = pairOf(pair);
    cookies.set(name, cookies.has(name) ? null : value);
  }
  return cookies;
}

/** The last value that a response sets for a name, and not a deletion beside it. */
function lastSet(changes: readonly string[], name: string): string {
  const values = changes.map((field) => pairOf(field.split(';', 1)[0] ?? ''));
  return values.findLast(([one, value]) => one === name && value !== '')?.[1] ?? '';
}

function pairOf(text: string): readonly [name: string, value: string] {
  const at = text.indexOf('=');
  return [text.slice(0, Math.max(0, at)).trim(), text.slice(at + 1).trim()];
}

/** A value that several browsers may have is told apart by the visitor. */
function valueKey(visitor: string, name: string, value: string): string {
  return keyOf([value.length < OWN_VALUE ? visitor : '', name, value]);
}

function keyOf(parts: readonly string[]): string {
  return hash('sha256', JSON.stringify(parts), 'base64url');
}

/** The script takes this for a passing failure, and asks again with the cookies that the browser has by then. */
function askAgain(head: ResponseHead): BodyWrapper {
  head.status = 425;
  head.headers.deleteWhere(() => true);
  head.headers.set('Cache-Control', 'no-store');
  head.headers.set('Content-Length', '0');
  return endingAtOnce;
}

/** A body that is complete without what is written. A long rest is not read. */
function endingAtOnce(body: Writable): Writable {
  let left = MAX_DISCARDED_BYTES;
  body.end();
  const rest = new Writable({
    write(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      done(
        left < 0 ? new HubgateError('client-left', 'Another response has replaced this one') : null,
      );
    },
  });
  return rest.on('error', ignore);
}

function visitorOf({ clientAddress, headers }: Exchange): string {
  const browser = headers.get('user-agent')?.slice(0, MAX_BROWSER) ?? '';
  return `${clientAddress} ${browser}`;
}
