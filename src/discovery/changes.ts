import type { ChangesConfig } from '../config/config.ts';
import type { Exchange, Expand, RequestHook, ResponseHead } from '../http/exchange.ts';
import { fieldText } from '../http/header-list.ts';
import { parseJson, parseUrl, requireUrl } from '../kernel/parse.ts';
import type { Clock } from '../kernel/clock.ts';
import {
  type AnnouncedHub,
  type AnnouncedUpdate,
  type Announce,
  type Change,
  isSeeOther,
  MAX_TOPICS,
  merged,
  type Outcome,
  type QueryMarks,
  saysChanged,
  waitForStored,
  withoutQuery,
} from './announced-hub.ts';
import { MAX_DATA_BYTES, readAlong } from './published-answers.ts';
import { linkedPage } from './link.ts';
import {
  type PageTopic,
  queryMark,
  type TopicOf,
  withoutParameters,
} from '../client/page-topics.ts';
import { requestUrl } from '../http/request-path.ts';

export interface ChangesOptions {
  readonly config: ChangesConfig;
  readonly hub: AnnouncedHub;
  /** Whether the change of a request is to be announced. */
  readonly concerns: (exchange: Exchange) => boolean;
  /** Further topics for some requests. */
  readonly alsoFor: readonly {
    readonly matches: (exchange: Exchange) => boolean;
    readonly topics: readonly string[];
  }[];
  readonly topicOf: TopicOf;
  readonly announce: Announce;
  readonly expand: Expand;
  readonly clock: Clock;
}

export interface Changes {
  readonly hook: RequestHook;
  /**
   * Announces that a page is another one than at the last request for it. Resolves to whether the update is
   * stored, or waits for the end of its burst or for the store.
   */
  watched(exchange: Exchange, head: ResponseHead, body: Buffer | null): Promise<boolean>;
  /** Announces the changes that wait for the end of their burst. */
  close(): Promise<void>;
}

/** SSE event name of the updates of {@link createChanges}. */
const TYPE = 'change';
/** Longest topic in characters. No page has a longer URL, and each subscribed pattern examines all of it. */
const MAX_TOPIC_LENGTH = 1024;

/**
 * Announces what requests have changed: the target of an unsafe request if its response passes {@link
 * saysChanged}, and on the same origin the URLs in `Location`, `Content-Location` (RFC 9111 §4.4) and a
 * canonical link (RFC 6596).
 */
export function createChanges(options: ChangesOptions): Changes {
  const { config, hub, concerns, alsoFor, topicOf, announce, clock } = options;
  const methods = new Set(config.methods);
  const debouncer = new Debouncer<Change>(config.windowMs, clock);

  const announceChange = (
    exchange: Exchange,
    change: Change,
    waitsForBurst = false,
  ): Promise<boolean> => {
    const { log } = exchange;
    const { unstored } = hub;
    // Only our own hub accepts changes.
    if (unstored === null) return Promise.resolve(false);
    const key = burstOf(change.update);
    let ended = (): void => {};
    const end = new Promise<void>((resolve) => {
      ended = resolve;
    });
    const store = (update: AnnouncedUpdate): Promise<Outcome> => announce(update, log, 'changes');
    const announceAll = async (all: Change): Promise<boolean> => {
      const outcome = await unstored.announce(key, all, store);
      if (outcome === 'unavailable') hub.announcements.refused += 1;
      return outcome === 'stored' || outcome === 'waits';
    };
    const later = async (all: Change): Promise<void> => void (await announceAll(all));
    const asked = waitsForBurst ? { ...change, whenTried: [ended] } : change;
    if (debouncer.begins(key, asked, merged, later)) return announceAll(change);
    hub.announcements.merged += 1;
    return waitsForBurst ? end.then(() => true) : Promise.resolve(true);
  };

  const hook: RequestHook = (exchange) => {
    if (!methods.has(exchange.method) || !concerns(exchange)) return;
    const bound = alsoFor.flatMap(({ matches, topics }) => (matches(exchange) ? topics : []));
    // RFC 9110 §11.6.2, RFC 6265 §5.4. Fields that handlers add later are not the client's.
    const hasCredentials = exchange.headers.has('cookie') || exchange.headers.has('authorization');
    exchange.onHead((head) => {
      const url = requestUrl(exchange);
      if (head.source !== 'upstream' || url === null || !saysChanged(exchange, head, url))
        return undefined;
      const target = { topic: topicOf(url).topic, mark: '' };
      const { topics, queries } = changedTopics(exchange, url, target, head, options, bound);
      const data = config.data === 'none' ? '' : changeData(exchange);
      const update: AnnouncedUpdate = {
        topics,
        private: (config.visibility ?? (hasCredentials ? 'private' : 'public')) === 'private',
        data: config.data === 'none' ? '' : changeData(exchange, queries),
        type: TYPE,
      };
      if (update.topics.length === 0) return undefined;
      if (config.data === 'body' && hasJson(head)) {
        return readAlong(head, (text) => {
          if (text !== null && parseJson(text) !== undefined)
            void announceChange(exchange, { update: { ...update, data: text }, data: text });
          else void announceChange(exchange, { update, data });
        });
      }
      const isRedirect = isSeeOther(head);
      const isSync = config.mode === 'sync';
      const stored = announceChange(exchange, { update, data }, isRedirect || isSync);
      if (isSync) return stored.then(() => {});
      return isRedirect ? waitForStored(stored, clock) : undefined;
    });
  };

  const watched: Changes['watched'] = (exchange, head, body) => {
    const url = requestUrl(exchange);
    if (url === null) return Promise.resolve(true);
    const bound = alsoFor.flatMap(({ matches, topics }) => (matches(exchange) ? topics : []));
    // Its followers know the query, so its mark reveals nothing.
    const page = topicOf(url);
    const { topics, queries } = changedTopics(exchange, url, page, head, options, bound);
    if (topics.length === 0) return Promise.resolve(true);
    const text = config.data === 'body' && hasJson(head) ? jsonOf(body) : null;
    const data = config.data === 'none' ? '' : (text ?? changeData(exchange, queries));
    const update = { topics, private: config.visibility === 'private', data, type: TYPE };
    const inBurst = config.data === 'none' ? '' : (text ?? changeData(exchange));
    return announceChange(exchange, { update, data: inBurst });
  };
  return { hook, watched, close: () => debouncer.close() };
}

/** Placeholders that exist only in the topics of `changes`. */
export const CHANGE_PLACEHOLDERS: ReadonlySet<string> = new Set([
  'request.uri.without_query',
  'http.response.location',
  'http.response.content_location',
  'http.response.canonical',
]);

/** The target of the request. Its query is not revealed, except for the parts in its alias. */
const TARGET = '{request.uri.without_query}';

/** The URLs that have changed, each once. URLs of other origins are not announced. */
function changedTopics(
  exchange: Exchange,
  url: URL,
  target: PageTopic,
  { headers }: ResponseHead,
  { config, expand, hub, topicOf }: ChangesOptions,
  bound: readonly string[],
): { readonly topics: string[]; readonly queries: QueryMarks } {
  const fields = new Map([
    ['request.uri.without_query', target.topic],
    ['http.response.location', fieldText(headers.get('location') ?? '')],
    ['http.response.content_location', fieldText(headers.get('content-location') ?? '')],
    ['http.response.canonical', linkedPage(headers, exchange.originalTarget) ?? ''],
  ]);
  const topicFor = (template: string): PageTopic | null => {
    if (template === TARGET) return target;
    const named = template.replace(/\{([\w.]+)\}/g, (all, name: string) => fields.get(name) ?? all);
    const text = named === template ? expand(template, exchange, headers) : named;
    const page = text === '' ? null : parseUrl(text, url.href);
    if (page === null) return null;
    const isOwn = page.origin === url.origin;
    // A topic that the operator has written in full may be of any origin.
    if (!isOwn && !/^[a-z][\w+.-]*:/i.test(template)) return null;
    // Queries may contain secrets, and a topic is broadcast and stored. So only a query that the operator has
    // written stays.
    if (isOwn && !template.includes('?')) return topicOf(page);
    if (isOwn) page.pathname = withoutParameters(page.pathname);
    page.hash = '';
    const mark = queryMark(page.search);
    if (!template.includes('?')) page.search = '';
    return { topic: page.href, mark };
  };
  const topics = new Set<string>();
  const queries: Record<string, string[]> = {};
  for (const template of [...config.topics, ...config.also, ...bound]) {
    const page = topicFor(template);
    if (page === null || page.topic.length > MAX_TOPIC_LENGTH || topics.size >= MAX_TOPICS)
      continue;
    const { pathname } = requireUrl(page.topic);
    if (pathname === hub.path || pathname.startsWith(`${hub.path}/`)) continue;
    topics.add(page.topic);
    (queries[withoutQuery(page.topic)] ??= []).push(page.mark);
  }
  return { topics: [...topics], queries };
}

function changeData({ method, originalTarget }: Exchange, queries: QueryMarks = {}): string {
  const change = { url: withoutParameters(withoutQuery(originalTarget)), method };
  const isMarked = Object.values(queries).some((marks) => marks.some((mark) => mark !== ''));
  return JSON.stringify(isMarked ? { ...change, queries } : change);
}

/** Private changes are only combined if their readers are the same. */
function burstOf({ topics, private: isPrivate }: AnnouncedUpdate): string {
  return isPrivate ? `private ${topics.join(' ')}` : `public ${topics[0] ?? ''}`;
}

function hasJson({ status, headers }: ResponseHead): boolean {
  const [type = ''] = (headers.get('content-type') ?? '').split(';', 1);
  const isEmpty = status === 204 || status === 205 || status === 304;
  return !isEmpty && /^application\/(?:[\w.-]+\+)?json$/i.test(type.trim());
}

/** null for a body that cannot be the data of an update. */
function jsonOf(body: Buffer | null): string | null {
  const text = body === null || body.length > MAX_DATA_BYTES ? null : body.toString('utf8');
  return text === null || parseJson(text) === undefined ? null : text;
}

/** Bursts in progress. Beyond this number, each change is an update of its own. */
const MAX_BURSTS = 10_000;

/**
 * The first change of a burst is announced at once. Those that follow within the window are announced
 * together at its end. So the first change is not delayed, and the last one is not lost.
 */
export class Debouncer<T> {
  readonly #windowMs: number;
  readonly #clock: Clock;
  /** The combined change that waits for the end of each burst's window; null if there is none. */
  readonly #waiting = new Map<string, { task: (() => Promise<void>) | null; value: T | null }>();
  #isClosed = false;

  constructor(windowMs: number, clock: Clock) {
    this.#windowMs = windowMs;
    this.#clock = clock;
  }

  /**
   * Returns whether the change is to be announced now. If not, `later` is called at the end of the window
   * with all changes since the first, combined by `merge`.
   */
  begins(
    key: string,
    value: T,
    merge: (one: T, other: T) => T,
    later: (all: T) => Promise<void>,
  ): boolean {
    if (this.#windowMs === 0 || this.#isClosed) return true;
    const burst = this.#waiting.get(key);
    if (burst === undefined) {
      if (this.#waiting.size < MAX_BURSTS) this.#open(key);
      return true;
    }
    const all = burst.value === null ? value : merge(burst.value, value);
    burst.value = all;
    burst.task = () => later(all);
    return false;
  }

  /**
   * Announces the waiting changes. From now on, every change is announced at once, because the process may
   * end before the end of a window.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const tasks = [...this.#waiting.values()].flatMap(({ task }) => task ?? []);
    this.#waiting.clear();
    await Promise.all(tasks.map((task) => task()));
  }

  #open(key: string): void {
    const burst = { task: null, value: null };
    this.#waiting.set(key, burst);
    this.#clock.after(this.#windowMs, () => this.#end(key));
  }

  #end(key: string): void {
    const task = this.#waiting.get(key)?.task ?? null;
    this.#waiting.delete(key);
    if (task === null) return;
    // A change that comes right after this one belongs to the next window.
    this.#open(key);
    void task();
  }
}
