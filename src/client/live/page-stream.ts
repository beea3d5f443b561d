import { navigation } from '../discovery.ts';
import { readEvents, type Update } from '../events.ts';
import {
  createTopicOf,
  type PageAlias,
  type PageTopic,
  queryMark,
  type TopicOf,
  withoutParameters,
} from '../page-topics.ts';

/** How long a hidden page keeps its stream, so that a quick return costs nothing. */
const HIDDEN_MS = 10_000;
/**
 * How long a fetch that renews the cookie of the stream may take. The stream has to wait for it. Of the gateway, only
 * the cache may hold it.
 */
const LONGEST_RENEWAL_MS = 45_000;
/** The cursor before the first update. */
const EARLIEST = 'earliest';
const FIRST_WAIT_MS = 500;
/** Whatever has failed is tried again after this time at the latest. */
export const LONGEST_WAIT_MS = 30_000;
/** A hub refuses subscriptions with more matchers, and those with a longer one. */
const MAX_TOPICS = 100;
const MAX_TOPIC_LENGTH = 4096;

/** The stream of the updates that concern the page. */
export class PageStream {
  /** The id of the last update that the page knows; null if it may have missed some. */
  cursor = cursorIn(JSON.stringify(navigation()?.serverTiming));
  readonly #settings: DOMStringMap;
  readonly #topicOf: TopicOf;
  readonly #onOutdated: () => void;
  #topics: Topics = { named: [], followed: [] };
  /** Closes the stream; null if there is none. */
  #stream: AbortController | null = null;
  #hiddenTimer = 0;

  /**
   * @param settings what the gateway has written at the script
   * @param onOutdated is called when the page may lack an update
   */
  constructor(settings: DOMStringMap, onOutdated: () => void) {
    this.#settings = settings;
    const aliases = JSON.parse(settings.aliases ?? '[]') as PageAlias[];
    this.#topicOf = createTopicOf(aliases, (url) => new URL(url).href);
    this.#onOutdated = onOutdated;
  }

  /** Opens the stream of a page, unless it is hidden or its stream is open and has the same topics. */
  follow(page: URL): void {
    if (document.hidden) return;
    clearTimeout(this.#hiddenTimer);
    const { followed } = this.#topics;
    this.#topics = topicsOfPage(page, this.#settings.origin ?? location.origin, this.#topicOf);
    if (!this.#stream || this.#topics.followed.join() !== followed.join()) this.#open();
  }

  close(): void {
    this.#stream?.abort();
    this.#stream = null;
  }

  /** Closes the stream of a page that stays hidden. */
  closeSoon(): void {
    this.#hiddenTimer = setTimeout(() => this.close(), HIDDEN_MS);
  }

  #open(): void {
    this.close();
    this.#stream = new AbortController();
    const link = document.querySelector<HTMLLinkElement>('link[rel~=hub]');
    const address = new URL(link?.href ?? this.#settings.hub ?? '', location.href);
    void this.#receive(address, this.#topics.followed, this.#stream.signal);
  }

  /** Receives updates across lost connections until `signal` is aborted or the hub refuses the topics. */
  async #receive(address: URL, topics: readonly string[], signal: AbortSignal): Promise<void> {
    const relation = this.#settings.relation ?? 'hub';
    let wait = FIRST_WAIT_MS;
    while (!signal.aborted) {
      try {
        const { cursor } = this;
        const target = new URL(address);
        for (const topic of topics) target.searchParams.append('match', topic);
        if (cursor !== null) target.searchParams.set('last_event_id', cursor);
        const response = await fetch(target, { credentials: 'include', signal, cache: 'no-store' });
        if (response.status === 401) await this.#renewCookie();
        if (response.status === 400) {
          // The hub would refuse the same topics again.
          return console.error(address.href, await response.text());
        }
        // The request may have been redirected to a login page, which also has a 2xx status.
        if (response.headers.get('Content-Type')?.includes('event-stream')) {
          wait = FIRST_WAIT_MS;
          // The history no longer reaches back to the cursor.
          const isLost = response.headers.get(`${relation}-Last-Event-ID`) === EARLIEST;
          if (cursor === null || (isLost && cursor !== EARLIEST)) {
            // Updates are missing from the history, so this cursor is useless.
            this.cursor = null;
            this.#onOutdated();
          }
          await readEvents(response.body as ReadableStream<Uint8Array>, {
            update: (update) => {
              this.cursor = update.id || this.cursor;
              if (!isOfOthers(update, this.#topics) && dispatch('update', update))
                this.#onOutdated();
            },
            retry: (milliseconds) => {
              wait = milliseconds;
            },
          });
        } else await response.body?.cancel();
      } catch {
        // Whatever the error, the only reaction is another attempt.
      }
      // Pages that lost the same hub must not reconnect at the same moment.
      await sleep(wait * (0.5 + Math.random()));
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  /** Fetching the page renews the cookie; its content does not matter here, and must not enter the browser's cache. */
  async #renewCookie(): Promise<void> {
    await fetch(location.href, {
      headers: { 'Hub-Renew': '' },
      cache: 'no-store',
      signal: AbortSignal.timeout(LONGEST_RENEWAL_MS),
    });
  }
}

/** The cursor in the address of a stream, which may be part of a field. */
export function cursorIn(address?: string | null): string | null {
  const cursor = /last_event_id=([^"&]*)/.exec(address ?? '')?.[1];
  return cursor ? decodeURIComponent(cursor) : null;
}

/** Dispatches an event. Returns whether no listener has prevented the next step. */
export function dispatch(name: string, detail: object): boolean {
  return document.dispatchEvent(
    new CustomEvent(`hub:${name}`, { detail, bubbles: true, cancelable: true }),
  );
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, milliseconds));
}

interface Topics {
  /**
   * The topics of the page itself and those that it names, in the form in which the gateway announces them.
   */
  readonly named: readonly PageTopic[];
  /** The topics of the subscription. */
  readonly followed: readonly string[];
}

/**
 * The topics of a page: its own URL, the URLs that the app names as canonical or self in the page or in the
 * fields of its response, and those in `data-hub-topic`. Each is used as `changes` announces it, and as it is
 * written, for publishers that use that form. If there are too many, the latter are left out first. A short link
 * (`/?p=7`) is added if an alias knows its query, because all short links of a site have the same path, often that
 * of its front page.
 *
 * @param page its URL, without a fragment
 * @param origin the site's origin as the gateway knows it
 */
function topicsOfPage(page: URL, origin: string, topicOf: TopicOf): Topics {
  const { href, pathname, search } = page;
  const names = [withoutParameters(pathname) + search, ...namesInFields(href)];
  for (const element of document.querySelectorAll<HTMLLinkElement>(
    'link[rel~=self],link[rel~=canonical],[data-hub-topic]',
  )) {
    names.push(...(element.dataset['hubTopic'] ?? withoutParameters(element.href)).split(/\s+/));
  }
  const urlsOf = (name: string): URL[] => {
    if (name === '' || !URL.canParse(name, href)) return [];
    const url = new URL(name, href);
    url.hash = '';
    const isOwn = url.origin === location.origin;
    return [isOwn ? new URL(origin + url.href.slice(url.origin.length)) : url];
  };
  const short = document.querySelector<HTMLLinkElement>('link[rel~=shortlink]')?.href ?? '';
  const urls = [
    ...urlsOf(short).filter((url) => topicOf(url).mark === ''),
    ...names.flatMap(urlsOf),
  ];
  const named = urls.map((url) =>
    url.origin === origin ? topicOf(url) : { topic: url.href, mark: queryMark(url.search) },
  );
  const all = [...named.map(({ topic }) => topic), ...urls.map(({ href }) => href)];
  const followed = [...new Set(all)].filter(({ length }) => length <= MAX_TOPIC_LENGTH);
  return { named, followed: followed.slice(0, MAX_TOPICS) };
}

export function withoutHash(url: string): string {
  return url.replace(/#.*/, '');
}

/**
 * The names that the gateway has found in the fields of the response. They are valid as long as the loaded
 * page is shown.
 */
function namesInFields(page: string): string[] {
  const { name = '', serverTiming = [] } = navigation() ?? {};
  if (withoutHash(name) !== page) return [];
  return serverTiming.flatMap(({ name: metric, description }) =>
    metric === 'hub-page' ? description.split(' ') : [],
  );
}

/** Whether an update of the gateway concerns only other queries than those that the page names. */
function isOfOthers({ type, data }: Update, { named }: Topics): boolean {
  if (type !== 'change') return false;
  try {
    const { queries } = JSON.parse(data) as { queries?: Record<string, readonly string[]> };
    const concerned = named.flatMap(({ topic, mark }) => {
      const marks = queries?.[topic.split('?', 1).join()];
      return marks === undefined ? [] : { marks, mark };
    });
    return (
      concerned.length > 0 &&
      concerned.every(({ marks, mark }) => {
        // A page without a query is about all queries, and so is a change without one.
        return mark !== '' && !marks.includes('') && !marks.includes(mark);
      })
    );
  } catch {
    // The publisher has sent other data.
    return false;
  }
}
