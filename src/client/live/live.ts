/*
 * The script that `discovery { live }` inserts into pages. It follows the page's URL and any other topics
 * that the page names. After an update it fetches the page again and shows what the server has changed. Its memory
 * is bounded: it keeps one stream, two timers, the id of the last update and the last response of the server. For a
 * few earlier pages it also keeps what the server had sent and what the visitor had entered.
 */
import { enteredTexts, hasOtherWork, keepReturned, mayLeave, on } from './visitor-state.ts';
import { ShownPage } from './shown-page.ts';
import { recordBody, trustServer } from './sent-document.ts';
import { cursorIn, LONGEST_WAIT_MS, PageStream, withoutHash } from './page-stream.ts';
import { navigation } from '../discovery.ts';

/** A burst of updates causes one fetch, once to twice this long after the first one, and never more often. */
const PAUSE_MS = 50;
/**
 * How long a fetch may take. After that, another one may reach the app. The gateway itself may hold a fetch for 70
 * seconds: 30 in its cache, and 40 before it asks the app (`live-refetches.ts`, `shared-forwarding.ts`).
 */
const LONGEST_FETCH_MS = 120_000;
/** How long the next page may take to arrive. If it does not, it was a download, or the visitor has stayed. */
const NEXT_PAGE_MS = 5000;
/** How long a page that the browser has reloaded is not reloaded again. */
const RELOAD_MS = 30_000;
/** The number of fetches in a row that requests of a library may abort. A page may send one every second. */
const MAX_ABORTED = 2;
/** The number of pages that htmx stores by default. */
const MAX_STORED = 10;
/** What htmx is about to replace. */
const SWAPPING = '.htmx-swapping';
/** The field with the cursor of a response. */
const TIMING = 'Server-Timing';

/** Keeps the page of this document up to date, also while libraries navigate within the document. */
class LivePage {
  readonly #shown: ShownPage;
  readonly #stream: PageStream;
  /** Whether the page may lack an update. */
  #isOutdated = false;
  /** The timer of the next fetch; 0 if none is planned. */
  #refetchTimer = 0;
  #pauseMs = PAUSE_MS;
  #isFetching = false;
  /** Aborts the last fetch. */
  #lastFetch = new AbortController();
  /** How many fetches in a row were aborted. */
  #aborted = 0;
  /** When the page was first refused; 0 if it was not. */
  #refusedMs = 0;
  /** Whether the visitor may have finished during the fetch. */
  #hasFinished = false;
  /** Whether updates wait until the visitor has finished. */
  #isWaiting = false;
  /** The timer that ends the wait for the next page; 0 if none is expected. */
  #nextPageTimer = 0;
  /** The last response that Turbo has received. */
  #turboResponse: Response | null = null;
  /** What the visitor had entered before the last request, or the last change of a field. */
  #entered: ReadonlySet<string> = new Set();
  /** The same by URL for pages that htmx has stored. */
  readonly #stored = new Map<string, ReadonlySet<string>>();
  /** The URL to which the browser has gone back. */
  #restoredUrl = '';

  /**
   * @param sent the body that the server has sent
   * @param settings what the gateway has written at the script
   */
  constructor(sent: Node, settings: DOMStringMap) {
    this.#shown = new ShownPage(sent, settings, () => this.#retryWithheld());
    this.#stream = new PageStream(settings, () => this.#refetchSoon());
  }

  start(): void {
    this.#listenToBrowser();
    this.#listenToHtmx();
    this.#listenToTurbo();
    this.#listenToOthers();
    this.#updateStream();
  }

  #listenToBrowser(): void {
    on('visibilitychange', () => {
      if (document.hidden) this.#stream.closeSoon();
      else this.#updateStream();
    });
    // An open stream would keep the page out of the back-forward cache.
    on('pagehide', () => this.#stream.close());
    on('beforeunload', () => this.#awaitNextPage());
    on('pageshow', () => this.#resume());
    on('online', () => {
      this.#pauseMs = PAUSE_MS;
      // A connection may be of the network before.
      this.#lastFetch.abort();
      this.#stream.close();
      this.#updateStream();
    });
    // Everything that was stored during an earlier visit is as old as that visit.
    on('popstate', () => {
      const url = withoutHash(location.href);
      if (url === this.#shown.url.href) return;
      this.#restoredUrl = url;
      this.#isOutdated = true;
      this.#awaitNextPage();
    });
    // Before a script of the page sends it, and perhaps shows it again with an error.
    let isRead = false;
    on('change submit', ({ type }) => {
      // A script may change thousands of fields at once.
      if (isRead && type === 'change') return;
      isRead = true;
      setTimeout(() => (isRead = false));
      keepReturned(document.body, this.#entered);
      this.#entered = enteredTexts();
    });
    on('reset submit focusout pause', () => this.#retryWithheld());
  }

  #listenToHtmx(): void {
    // A GET may be one of many that poll, whose end says nothing about a change that the visitor sends meanwhile.
    on('htmx:beforeSend htmx:afterRequest', (event) => {
      if (isHtmxGet(event)) return;
      if (event.type === 'htmx:beforeSend' || leadsElsewhere(event)) this.#awaitNextPage();
      else this.#resume();
    });
    on('htmx:afterSwap', (event) => {
      if (htmxDetail(event).xhr && !isHtmxGet(event) && !isLivePage(event))
        keepReturned(event.target as Element, this.#entered);
    });
    on('htmx:beforeHistorySave', () => {
      const { href } = this.#shown.url;
      this.#stored.delete(href);
      const texts = enteredTexts();
      if (texts.size > 0) this.#stored.set(href, texts);
      const [oldest = ''] = this.#stored.keys();
      if (this.#stored.size > MAX_STORED) this.#stored.delete(oldest);
    });
    on('htmx:historyRestore', (event) => {
      // htmx has stored the page while a part of it faded out, and would now show that part for ever.
      for (const one of document.querySelectorAll(SWAPPING)) {
        one.classList.remove(SWAPPING.slice(1));
        if (one.className === '') one.removeAttribute('class');
      }
      this.#checkPage(event);
    });
    on('htmx:afterSettle', (event) => this.#checkPage(event));
  }

  #listenToTurbo(): void {
    on('turbo:submit-start', () => this.#awaitNextPage());
    on('turbo:frame-render', () => this.#resume());
    on('turbo:before-fetch-response', (event) => {
      const { response } = (event as CustomEvent<TurboDetail>).detail.fetchResponse;
      this.#turboResponse = response;
      // Turbo shows the page to which a form has led only once it has read and rendered it.
      if (!response.redirected) this.#resume();
    });
    // The response to a form with a mistake has such a status.
    on('turbo:render turbo:frame-render', ({ target, type }) => {
      if (!this.#turboResponse || this.#turboResponse.status < 400) return;
      this.#turboResponse = null;
      keepReturned(type === 'turbo:render' ? document.body : (target as Element), this.#entered);
    });
    on('turbo:load', (event) => this.#checkPage(event));
  }

  #listenToOthers(): void {
    on('up:request:load', () => this.#awaitNextPage());
    on('up:request:loaded', () => this.#resume());
    let isUnpolyError = false;
    on('up:fragment:loaded', (event) => {
      const { request, response } = event as UnpolyEvent;
      // It may be older than the cursor.
      if (request.fromCache) this.#refetchSoon();
      isUnpolyError = response?.ok === false;
    });
    on('up:fragment:inserted', (event) => {
      if (isUnpolyError) keepReturned(event.target as Element, this.#entered);
      this.#checkPage(event);
    });
    // What a library has shown may come from its cache.
    on('hub:shown', (event) => {
      this.#refetchSoon();
      this.#checkPage(event);
    });
  }

  /** Follows the topics of the page. It may name others than before, or may be another page. */
  #updateStream(): void {
    this.#stream.follow(this.#shown.url);
  }

  /** The page lacks an update. Fetches it after a pause, together with the updates of that time. */
  #refetchSoon(): void {
    this.#isOutdated = true;
    if (this.#refetchTimer || this.#isFetching) return;
    const pauseMs = this.#pauseMs * (1 + Math.random());
    this.#refetchTimer = setTimeout(() => this.#refetch(), pauseMs);
  }

  async #refetch(): Promise<void> {
    this.#refetchTimer = 0;
    if (this.#nextPageTimer || !this.#isOutdated) return;
    // htmx has the response to the visitor's change, and shows it after a delay.
    if (document.querySelector(SWAPPING)) return this.#refetchSoon();
    if (this.#isCostly()) {
      this.#isWaiting = true;
      this.#shown.reportWithheld({ visitor: 1, script: 0 });
      return;
    }
    this.#isFetching = true;
    this.#isOutdated = false;
    this.#lastFetch = new AbortController();
    const timeout = setTimeout(() => this.#lastFetch.abort(), LONGEST_FETCH_MS);
    const { url } = this.#shown;
    // If the browser or the app is offline, the page stays as it is until it can be fetched.
    const isFailed = await this.#fetchAndShow(url).catch(() => url === this.#shown.url);
    clearTimeout(timeout);
    if (!isFailed) this.#aborted = 0;
    // Each fetch is work for the app, in vain as long as its result cannot be shown.
    this.#isWaiting = this.#shown.waitsForVisitor && !mayLeave();
    this.#pauseMs =
      isFailed || this.#isWaiting ? Math.min(this.#pauseMs * 2, LONGEST_WAIT_MS) : PAUSE_MS;
    this.#isFetching = false;
    if (isFailed || this.#isOutdated) this.#refetchSoon();
    if (this.#hasFinished) this.#retryWithheld();
    this.#updateStream();
  }

  /** Whether a fetch would endanger what the visitor is doing, because the app keeps only some views. */
  #isCostly(): boolean {
    return (
      'Wicket' in window ||
      // Wicket numbers the renderings of a page in the session (`?0-1.-form`). It drops what is sent from any but
      // the last one, also if only a fetch has rendered the page since.
      document.querySelector('form[action*=".-"]') !== null ||
      // The view that JavaServer Faces keeps in the session. Each fetch creates one and drops an old one.
      (document.querySelector('input[name$=".faces.ViewState"]') !== null &&
        (this.#shown.hasWithheld || !mayLeave()))
    );
  }

  /** Fetches the page and shows it. Resolves to true if the app could not serve it now. */
  async #fetchAndShow(url: URL): Promise<boolean> {
    const response = await fetch(url, {
      headers: { Accept: 'text/html', 'Hub-Live': encodeURIComponent(this.#stream.cursor ?? '') },
      // After going back, browsers fill what was entered into the page that they have stored. If that was a newer one
      // than the visitor has seen, in this tab or in another one, the app would find no edit conflict.
      cache: 'no-store',
      // A redirect leads elsewhere, perhaps to another site, from which a script may read nothing.
      redirect: 'manual',
      signal: this.#lastFetch.signal,
    });
    // Among them 425, with which the gateway asks for another fetch, and 429.
    const isFailed = response.status > 424;
    // These are no page, or a part of one, whatever their type is.
    if (isFailed || (response.ok && response.status > 203)) {
      await response.body?.cancel();
      return isFailed;
    }
    // `text()` takes every response for UTF-8.
    const text = new TextDecoder(document.characterSet).decode(await response.arrayBuffer());
    // In the meantime, a library may have moved to another page without leaving this document.
    if (url !== this.#shown.url) return false;
    if (!response.ok) return this.#showRefusal();
    this.#refusedMs = 0;
    if (/^text\/html/i.test(response.headers.get('Content-Type') ?? ''))
      await this.#shown.showResponse(text);
    return false;
  }

  /**
   * The page is gone, or no longer accessible to this visitor. The browser shows the result, unless data would be lost,
   * or a reload has just brought the page that a fetch does not get. Returns whether to ask again: a reload would end
   * what htmx is loading, perhaps the next page.
   */
  #showRefusal(): boolean {
    const isReloaded = navigation()?.type === 'reload';
    // A page that does not know what it has missed is fetched whenever it is loaded.
    const isLoaded = this.#stream.cursor === null && isReloaded;
    if (this.#shown.isOfForm || isLoaded || !this.#shown.isAtPath) return false;
    this.#refusedMs ||= performance.now();
    const isLoading = document.querySelector('.htmx-request') !== null;
    if (isLoading && performance.now() - this.#refusedMs < NEXT_PAGE_MS) return true;
    const isInVain = isReloaded && performance.now() < RELOAD_MS;
    keepReturned(document.body, this.#entered);
    if (mayLeave() && !hasOtherWork() && !isInVain) location.reload();
    else this.#shown.reportWithheld({ visitor: 1, script: 1 }, 'gone');
    return false;
  }

  /** Shows what was withheld, because the visitor may have finished there. Fetches what has waited for that. */
  #retryWithheld(): void {
    // The form is reset and the focus moved only after the event.
    setTimeout(() => {
      this.#hasFinished = this.#isFetching;
      if (this.#isFetching) return;
      this.#shown.applyPending();
      if (!this.#isWaiting || !mayLeave()) return;
      clearTimeout(this.#refetchTimer);
      this.#refetchTimer = 0;
      this.#pauseMs = PAUSE_MS;
      if (this.#isOutdated) this.#refetchSoon();
    });
  }

  /**
   * Fetches nothing until the next page has arrived. The app may give a message about the visitor's change to the
   * first fetch after it, which must be that of the next page.
   */
  #awaitNextPage(): void {
    clearTimeout(this.#nextPageTimer);
    this.#entered = enteredTexts();
    // The response to a fetch in progress may be from before the visitor's change, or from after it.
    if (this.#isFetching && this.#aborted < MAX_ABORTED) {
      this.#aborted += 1;
      this.#isOutdated = true;
      this.#lastFetch.abort();
    }
    this.#nextPageTimer = setTimeout(() => this.#resume(), NEXT_PAGE_MS);
  }

  /** The next page has arrived in this document, or the visitor has stayed. */
  #resume(): void {
    clearTimeout(this.#nextPageTimer);
    this.#nextPageTimer = 0;
    if (this.#isOutdated) this.#refetchSoon();
    this.#updateStream();
  }

  /** A library has shown something, which may be the server's response for another URL. */
  #checkPage(event: Event): void {
    // While Unpoly shows an overlay, the URL is that of the overlay.
    const { up } = window as { up?: Unpoly };
    const url = withoutHash(new URL(up?.layer?.root?.location ?? '', location.href).href);
    const isOther = url !== this.#shown.url.href || this.#isNewResponse(event);
    if (isOther) this.#turnTo(url, event);
    if (isOther || !isHtmxGet(event)) this.#resume();
    else this.#updateStream();
  }

  /** Whether a library has replaced the whole page with another response for its URL, such as after a form. */
  #isNewResponse(event: Event): boolean {
    if (!this.#shown.isReplaced) return false;
    // Turbo shows the errors of a form without this event.
    if (event.type === 'turbo:load') return this.#turboResponse?.url === this.#shown.url.href;
    // htmx may show another page without a change of the URL.
    const shownUrl = withoutHash(htmxDetail(event).xhr?.responseURL ?? '');
    return shownUrl === this.#shown.url.href && (isHtmxGet(event) || isLivePage(event));
  }

  /** @param event may tell which request has brought the page */
  #turnTo(url: string, event: Event): void {
    const { requestConfig, xhr } = htmxDetail(event);
    if (!xhr) keepReturned(document.body, this.#stored.get(url) ?? new Set());
    const isOfForm =
      requestConfig !== undefined &&
      requestConfig.verb !== 'get' &&
      !isLivePage(event) &&
      new URL(requestConfig.path, url).pathname === location.pathname;
    const turbo = this.#turboResponse;
    const cursor = cursorIn(
      xhr?.getResponseHeader(TIMING) ?? (turbo?.url === url ? turbo.headers.get(TIMING) : null),
    );
    const isReplaced = this.#shown.turnTo(url, isOfForm, url === this.#restoredUrl);
    this.#restoredUrl = '';
    this.#refusedMs = 0;
    // An update before this response is in it, such as the one that the visitor's form has caused. A fetch
    // because of it would remove the app's message about the form. What the library has left is older.
    if (cursor && isReplaced) {
      // What the stream has brought since then comes again.
      this.#stream.close();
      this.#stream.cursor = cursor;
      this.#isOutdated = false;
      // A fetch in progress is of the page before, so its response is not shown.
    } else this.#isOutdated ||= this.#isFetching;
    this.#lastFetch.abort();
  }
}

interface TurboDetail {
  readonly fetchResponse: { readonly response: Response };
}

interface Unpoly {
  readonly layer?: { readonly root?: { readonly location?: string | null } };
}

interface UnpolyEvent extends Event {
  readonly request: { readonly fromCache?: boolean };
  readonly response?: { readonly ok?: boolean };
}

interface HtmxDetail {
  readonly requestConfig?: { readonly verb: string; readonly path: string };
  readonly xhr?: XMLHttpRequest;
}

function htmxDetail(event: Event): HtmxDetail {
  return (event as CustomEvent<HtmxDetail | undefined>).detail ?? {};
}

function isHtmxGet(event: Event): boolean {
  return htmxDetail(event).requestConfig?.verb === 'get';
}

/** Whether the response leads htmx, or the browser, to another page, which arrives later. */
function leadsElsewhere(event: Event): boolean {
  const fields = htmxDetail(event).xhr?.getAllResponseHeaders() ?? '';
  return /^hx-(?:location|redirect|refresh):/im.test(fields);
}

/**
 * Whether htmx shows a page to which a form has led, and not the response to the form itself. Only the former can be
 * fetched again, so the gateway inserts this script only there.
 */
function isLivePage(event: Event): boolean {
  const text = htmxDetail(event).xhr?.responseText ?? '';
  return [...text.matchAll(/<script src="([^"]*)/g)].some(([, src]) => src?.includes(path));
}

const script = document.currentScript;
/** What the URL of this script contains in any of its versions. */
let path: string;
// Another page may have loaded another version of this script.
if (script instanceof HTMLScriptElement && !('hubLive' in window)) {
  Object.assign(window, { hubLive: true });
  const { dataset } = script;
  path = `${new URL(script.src, location.href).pathname}?v=`;
  if ('trusted' in dataset) trustServer();
  void recordBody().then((sent) => {
    // Nothing reports what is typed in the frames of a frameset.
    if (document.body.localName === 'body') new LivePage(sent, dataset).start();
  });
}
