import { findHub, type HubAddress, hubOfPage, navigation, utf8 } from './discovery.ts';
import { pause, readEvents, type Update } from './events.ts';

export type { Update } from './events.ts';

/** A topic, or a URL Pattern. One that begins with `/` belongs to the origin of the source. */
export type Matcher = string | { readonly urlpattern: string };

export type Status = 'open' | 'connecting' | 'refused';

export interface SubscribeOptions {
  /** Called with every update in order, each once. */
  readonly update: (update: Update) => void;
  /**
   * Called with the whole resource: at the start, unless the source is the page itself, and again when updates
   * were lost because the hub's history no longer reaches back. The updates that follow apply to the state of
   * this resource. Without this function, the page is reloaded if it is the source, and a subscription to a URL
   * continues with later updates.
   */
  readonly state?: (response: Response) => Promise<void>;
  /**
   * Called when the connection is established or lost. After `refused` (401, also with a renewed cookie)
   * there are no more attempts, unless `token` is a function: it is called until it returns another token.
   */
  readonly status?: (status: Status) => void;
  /**
   * The access token, or a function that returns it, for a hub to which the browser does not send the cookie.
   */
  readonly token?: string | (() => string | Promise<string>);
  /**
   * Fetches the resource before each new connection, so that it can renew the cookie. For hubs that admit
   * anonymous clients and so do not refuse a client whose cookie has expired.
   */
  readonly renew?: boolean;
  /** `include` for a hub on another subdomain. @default "same-origin" */
  readonly credentials?: 'include' | 'same-origin' | 'omit';
  /** Link relation of the hub. @default "hub" */
  readonly relation?: string;
  /** Ends the subscription when it is aborted. */
  readonly signal?: AbortSignal;
}

/** The types are those of Node, which has no page to reload. */
declare const location: { reload(): void };

/** First wait before a new attempt, in milliseconds; it doubles up to the longest. */
const FIRST_WAIT = 500;
const LONGEST_WAIT = 30_000;
/** Thrown if the hub refuses the client, even with a renewed cookie. */
const REFUSED = new Error();

/**
 * Follows the updates of a page or resource from its current state, across lost connections, until the
 * returned function is called or `signal` is aborted.
 *
 * @param source the page itself (`document`), or the URL of a resource; its `Link` header contains the hub
 * and the update after which to subscribe
 * @example
 * subscribe('/api/books', { urlpattern: '/books/:id' }, {
 *   state: async (response) => show(await response.json()),
 *   update: ({ data }) => change(JSON.parse(data)),
 * });
 */
export function subscribe(
  source: string | URL | { readonly URL: string },
  matchers: Matcher | readonly Matcher[],
  options: SubscribeOptions,
): () => void {
  // The types do not bind a page in JavaScript, and otherwise each update would fail.
  if (typeof options?.update !== 'function')
    throw new TypeError('subscribe needs the function update');
  const end = new AbortController();
  options.signal?.addEventListener('abort', () => end.abort(), { signal: end.signal });
  if (options.signal?.aborted) end.abort();
  void new Follower(source, [matchers].flat(), options, end.signal).run();
  return () => end.abort();
}

class Follower {
  readonly #url: URL;
  /** Whether it follows the page that it runs in. */
  readonly #isPage: boolean;
  readonly #matchers: readonly Matcher[];
  readonly #options: SubscribeOptions;
  readonly #signal: AbortSignal;
  readonly #relation: string;
  #hub: HubAddress | null;
  #firstWait = FIRST_WAIT;
  #wait = FIRST_WAIT;
  #wasOpen = false;
  /** How often in a row the history did not reach back to the cursor. */
  #lost = 0;
  #bearer: string | undefined;

  constructor(
    source: string | URL | { readonly URL: string },
    matchers: readonly Matcher[],
    options: SubscribeOptions,
    signal: AbortSignal,
  ) {
    const page = Object(source).URL;
    this.#isPage = page !== undefined;
    // The types are those of Node, which has no document.
    const { document } = globalThis as { document?: { baseURI: string } };
    // A router of the page may change its address (`history.pushState`) before the resource is fetched again.
    this.#url = new URL(page ?? source, document?.baseURI);
    this.#matchers = matchers;
    this.#options = options;
    this.#signal = signal;
    this.#relation = options.relation ?? 'hub';
    this.#hub = this.#isPage ? hubOfPage(this.#relation, page) : null;
  }

  async run(): Promise<void> {
    while (!this.#signal.aborted) {
      try {
        this.#hub ??= await this.#load();
        if (!(await this.#listen(this.#hub))) {
          // A page that comes from a cache in the same outdated state must not be reloaded forever.
          const isFresh = this.#wasOpen || navigation()?.type !== 'reload';
          if (this.#isPage && !this.#options.state && isFresh) return location.reload();
          this.#hub = null;
          this.#lost += 1;
          if (this.#lost === 1) continue;
        }
      } catch (error) {
        if (error === REFUSED && !(await this.#hasOtherToken())) return;
        // Whatever the error, the only reaction is another attempt; `status` reports it.
      }
      if (this.#signal.aborted) return;
      this.#report('connecting');
      await this.#pause(this.#wait);
      this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    }
  }

  /** Fetches the resource, passes it to the application, and returns the address of its updates. */
  async #load(): Promise<HubAddress> {
    const { state } = this.#options;
    // What the browser has stored names the update that the hub no longer knows, also after a 304.
    const response = await this.#fetch(this.#url, this.#lost ? { cache: 'reload' } : {});
    const link = response.ok ? response.headers.get('Link') : null;
    const hub = findHub(link, this.#relation, response.url);
    if (hub && state) {
      // A body that breaks off is fetched again, and not left to the function.
      await response.clone().arrayBuffer();
      await guard(() => state(response));
    } else await response.body?.cancel();
    if (hub) return hub;
    throw new Error('no hub');
  }

  /** Receives updates until the stream ends. Resolves to false if updates were lost. */
  async #listen({ url, cursor }: HubAddress): Promise<boolean> {
    const stream = await this.#connect(this.#streamUrl(url, cursor));
    const began = stream.headers.get(`${this.#relation}-Last-Event-ID`);
    if (cursor !== null && began !== null && utf8(began) !== cursor) {
      await stream.body?.cancel();
      return false;
    }
    this.#wasOpen = true;
    this.#lost = 0;
    this.#wait = this.#firstWait;
    this.#report('open');
    // Only responses that are no stream have no body.
    await readEvents(stream.body as ReadableStream<Uint8Array>, {
      update: (update) => {
        if (update.id) this.#hub = { url, cursor: update.id };
        void guard(() => this.#options.update(update));
      },
      retry: (milliseconds) => {
        this.#wait = this.#firstWait = milliseconds;
      },
    });
    return true;
  }

  async #connect(target: URL): Promise<Response> {
    if (this.#options.renew && this.#wasOpen) await this.#renew();
    let stream = await this.#authorised(target);
    if (stream.status === 401) {
      await stream.body?.cancel();
      await this.#renew();
      stream = await this.#authorised(target);
    }
    // The request may have been redirected to a login page, which also has a 2xx status.
    if (stream.headers.get('Content-Type')?.includes('event-stream')) return stream;
    await stream.body?.cancel();
    throw stream.status === 401 ? REFUSED : new Error('no hub');
  }

  /** Waits for a token other than the refused one; resolves to false if there is none to wait for. */
  async #hasOtherToken(): Promise<boolean> {
    this.#report('refused');
    if (typeof this.#options.token !== 'function') return false;
    while (!this.#signal.aborted) {
      await this.#pause(LONGEST_WAIT);
      const bearer = await this.#token().catch(() => this.#bearer);
      if (bearer !== this.#bearer) return true;
    }
    return false;
  }

  /**
   * Fetching the resource renews the cookie, unless the browser takes it from its cache; its content does not matter
   * here.
   */
  async #renew(): Promise<void> {
    const response = await this.#fetch(this.#url, { cache: 'reload' });
    await response.body?.cancel();
    // An app that is being restarted, for example, refuses nobody.
    if (response.status > 499) throw new Error('no hub');
  }

  /** Clients that lost the same hub must not come back at the same moment. */
  #pause(milliseconds: number): Promise<unknown> {
    return pause(milliseconds * (0.5 + Math.random()), this.#signal);
  }

  async #authorised(target: URL): Promise<Response> {
    this.#bearer = await this.#token();
    const headers = this.#bearer === undefined ? {} : { Authorization: `Bearer ${this.#bearer}` };
    return this.#fetch(target, { headers });
  }

  /** Rejects with whatever the function throws. */
  async #token(): Promise<string | undefined> {
    const { token } = this.#options;
    return typeof token === 'function' ? token() : token;
  }

  /** The types are those of Node, which has no cache. */
  #fetch(url: string | URL, init: RequestInit & { cache?: 'reload' }): Promise<Response> {
    const { credentials } = this.#options;
    return fetch(url, { ...(credentials && { credentials }), signal: this.#signal, ...init });
  }

  #streamUrl(hub: string, cursor: string | null): URL {
    const url = new URL(hub);
    for (const matcher of this.#matchers) {
      if (typeof matcher === 'string') url.searchParams.append('match', matcher);
      else url.searchParams.append('match_urlpattern', this.#absolute(matcher.urlpattern));
    }
    if (cursor !== null) url.searchParams.set('last_event_id', cursor);
    return url;
  }

  /** The hub does not know the page, so relative patterns are made absolute here. */
  #absolute(pattern: string): string {
    if (!pattern.startsWith('/')) return pattern;
    const { protocol, origin } = this.#url;
    return (pattern.startsWith('//') ? protocol : origin) + pattern;
  }

  #report(status: Status): void {
    void guard(() => this.#options.status?.(status));
  }
}

/** Calls a function of the page, and reports its error as a browser does for one in an event listener. */
async function guard(callback: () => unknown): Promise<void> {
  try {
    await callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
