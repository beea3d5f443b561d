import { hasOtherWork, mayLeave, on } from './visitor-state.ts';
import {
  adopt,
  attempt,
  isReplaced,
  patch,
  renew,
  takeReplaced,
  type Withheld,
} from './three-way-patch.ts';

/*
 * The script that `discovery { live }` inserts into pages. It follows the page's URL and any other topics
 * that the page names. After an update it fetches the page again and shows what the server has changed. It
 * keeps one stream, one timer, the id of the last update, the last response of the server and those of a few
 * pages before; nothing grows with time.
 */
import { navigation } from '../discovery.ts';
import type { Update } from '../events.ts';
import { followHub, sleep } from './hub-stream.ts';
import { parsePage, recordBody, trustServer, unpair } from './sent-document.ts';
import { createTopicOf, type PageAlias } from '../page-topics.ts';
import { isOfOthers, type Topics, topicsOfPage, withoutHash } from './topics.ts';

/** A burst of updates causes one fetch, once to twice this long after the first one, and never more often. */
const PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 30_000;
/**
 * How long a fetch may take. After that, another one may reach the app. The gateway itself may hold a fetch for 70
 * seconds: 30 in its cache, and 40 before it asks the app (`live-refetches.ts`, `shared-forwarding.ts`).
 */
const LONGEST_FETCH_MS = 120_000;
/** The same for a fetch that renews the cookie of the stream, which has to wait for it. Only the cache may hold it. */
const LONGEST_RENEWAL_MS = 45_000;
/** How long a framework has to show a change itself. */
const FRAMEWORK_MS = 1000;
/** How long the next page may take to arrive. If it does not, it was a download, or the visitor has stayed. */
const LEAVING_MS = 5000;
/** The field with the cursor of a response. */
const TIMING = 'Server-Timing';
/** How long a page that the browser has reloaded is not reloaded again. */
const RELOAD_MS = 30_000;
/** How many pages before are known, about as many as libraries keep. */
const MAX_LEFT = 10;
/** How long a hidden page keeps its stream, so that a quick return costs nothing. */
const HIDDEN_MS = 10_000;

const script = document.currentScript;
// Another page may have loaded another version of this script.
if (script instanceof HTMLScriptElement && !('hubLive' in window)) {
  Object.assign(window, { hubLive: true });
  const { dataset } = script;
  if ('trusted' in dataset) trustServer();
  void recordBody().then((sent) => {
    // Nothing reports what is typed in the frames of a frameset.
    if (document.body.localName === 'body') start(sent, dataset);
  });
}

function start(
  sent: Node,
  {
    hub = '',
    relation = 'hub',
    origin = location.origin,
    aliases = '[]',
    report,
    notice,
    noticeStyle,
  }: DOMStringMap,
): void {
  /**
   * The URL of the sent page; scripts may have changed the URL since. Each visit has another object, so that a
   * late response is not taken for one to this visit.
   */
  let page = new URL(withoutHash(location.href));
  /** Whether a library shows the response to a form, so that the app may have no such page. */
  let isOfForm = false;
  /** The last response of the server, while parts of it are withheld. */
  let pending: string | null = null;
  /** The last response that Turbo has received. */
  let visited: Response | null = null;
  /** By URL, what the server had sent for the pages before. */
  const left = new Map<string, Node>();
  /** The URL to which the browser has gone back. */
  let restored = '';
  /** What the server had sent for this page when the visitor left it, if a library may have shown that again. */
  let earlier: Node | undefined;
  let cursor = cursorIn(JSON.stringify(navigation()?.serverTiming));
  const topicOf = createTopicOf(JSON.parse(aliases) as PageAlias[], (url) => new URL(url).href);
  let topics: Topics = { named: [], followed: [] };
  let stream: AbortController | null = null;
  let timer = 0;
  let pause = PAUSE_MS;
  let isFetching = false;
  /** Aborts the last fetch. */
  let fetching = new AbortController();
  let isOutdated = false;
  /** Whether the visitor may have finished during the fetch. */
  let hasFinished = false;
  /** Whether updates wait until the visitor has finished. */
  let isWaiting = false;
  let leaving = 0;
  /** When to see whether a framework shows the change by now. */
  let recheck = 0;
  let recheckMs = FRAMEWORK_MS;
  /** What the last fetch has brought. */
  let latest: string | null = null;

  /** The gateway counts pages with withheld changes. Each page reports each reason once. */
  const reported = new Set<string>();
  const tellGateway = (reason: 'visitor' | 'script' | 'gone'): void => {
    if (!report || reported.has(reason)) return;
    reported.add(reason);
    navigator.sendBeacon(new URL(`${report}?withheld=${reason}`, location.href));
  };

  const listen = (): void => {
    stream?.abort();
    stream = new AbortController();
    const address = new URL(
      document.querySelector<HTMLLinkElement>('link[rel~=hub]')?.href ?? hub,
      location.href,
    );
    void followHub({
      address,
      topics: topics.followed,
      relation,
      cursor: () => cursor,
      signal: stream.signal,
      update,
      outdated: () => {
        // Updates are missing from the history, so this cursor is useless.
        cursor = null;
        refetchSoon();
      },
      // Fetching the page renews the cookie; its content does not matter here, and does not belong into the cache.
      renew: () =>
        fetch(location.href, {
          headers: { 'Hub-Renew': '' },
          cache: 'no-store',
          signal: AbortSignal.timeout(LONGEST_RENEWAL_MS),
        }),
    });
  };

  const rest = (): void => {
    stream?.abort();
    stream = null;
  };

  /** The page may name other topics than before, or may be another page. */
  const check = (): void => {
    if (document.hidden) return;
    clearTimeout(hidden);
    const [before, now] = [topics, topicsOfPage(page, origin, topicOf)];
    topics = now;
    if (stream && now.followed.join() === before.followed.join()) return;
    listen();
  };

  const update = (news: Update): void => {
    cursor = news.id || cursor;
    if (!isOfOthers(news, topics) && tell('update', news)) refetchSoon();
  };

  const refetchSoon = (): void => {
    isOutdated = true;
    if (!timer && !isFetching) {
      timer = setTimeout(refetch, pause * (1 + Math.random()));
    }
  };

  /**
   * The app may give a message about the visitor's change to the first fetch after it, which must be that of
   * the next page.
   */
  const leave = (): void => {
    clearTimeout(leaving);
    leaving = setTimeout(stay, LEAVING_MS);
  };
  const stay = (): void => {
    clearTimeout(leaving);
    leaving = 0;
    if (isOutdated) refetchSoon();
    check();
  };

  /** Whether a fetch would endanger what the visitor is doing, because the app keeps only some views. */
  const isCostly = (): boolean =>
    'Wicket' in window ||
    // Wicket numbers the renderings of a page in the session (`?0-1.-form`). It drops what is sent from any but
    // the last one, also if only a fetch has rendered the page since.
    document.querySelector('form[action*=".-"]') !== null ||
    // The view that JavaServer Faces keeps in the session. Each fetch creates one and drops an old one.
    (document.querySelector('input[name$=".faces.ViewState"]') !== null &&
      (pending !== null || !mayLeave()));

  const refetch = async (): Promise<void> => {
    timer = 0;
    if (leaving || !isOutdated) return;
    if (isCostly()) {
      isWaiting = true;
      stale({ visitor: 1, script: 0 });
      return;
    }
    isFetching = true;
    isOutdated = false;
    fetching = new AbortController();
    const late = setTimeout(() => fetching.abort(), LONGEST_FETCH_MS);
    const asked = page;
    // If the browser or the app is offline, the page stays as it is until it can be fetched.
    const failed = await show().catch(() => asked === page);
    clearTimeout(late);
    // Each fetch is work for the app, in vain as long as its result cannot be shown.
    isWaiting = pending !== null && !mayLeave();
    pause = failed || isWaiting ? Math.min(pause * 2, LONGEST_PAUSE_MS) : PAUSE_MS;
    isFetching = false;
    if (failed || isOutdated) refetchSoon();
    if (hasFinished) applyAgain();
    check();
  };

  /** Fetches the page and shows it. Resolves to true if the app could not serve it now. */
  const show = async (): Promise<boolean> => {
    const asked = page;
    const response = await fetch(asked, {
      headers: { Accept: 'text/html', 'Hub-Live': encodeURIComponent(cursor ?? '') },
      // After going back, browsers fill what was entered into the page that they have stored. If that was a newer one
      // than the visitor has seen, in this tab or in another one, the app would find no edit conflict.
      cache: 'no-store',
      // A redirect leads elsewhere, perhaps to another site, from which a script may read nothing.
      redirect: 'manual',
      signal: fetching.signal,
    });
    // Among them 425, with which the gateway asks for another fetch, and 429.
    if (response.status > 424) return true;
    // These are no page, or a part of one, whatever their type is.
    if (response.ok && response.status > 203) return false;
    // `text()` takes every response for UTF-8.
    const text = new TextDecoder(document.characterSet).decode(await response.arrayBuffer());
    // In the meantime, a library may have moved to another page without leaving this document.
    if (asked !== page) return false;
    if (!response.ok) {
      // A page that does not know what it has missed is fetched whenever it is loaded.
      const isLoaded = cursor === null && navigation()?.type === 'reload';
      if (isOfForm || isLoaded || !isHere()) return false;
      // The page is gone, or no longer accessible to this visitor. The browser shows the result, unless data would be lost,
      // or a reload has just brought the page that a fetch does not get.
      const isInVain = navigation()?.type === 'reload' && performance.now() < RELOAD_MS;
      if (mayLeave() && !hasOtherWork() && !isInVain) location.reload();
      else stale({ visitor: 1, script: 1 }, 'gone');
      return false;
    }
    // What the visitor has entered may be in the same page, because a change was taken back.
    if (
      (text === latest && mayLeave()) ||
      !/^text\/html/i.test(response.headers.get('Content-Type') ?? '')
    )
      return false;
    latest = text;
    const fetched = parsePage(text);
    recheckMs = FRAMEWORK_MS;
    if (tell('morphed', { document: fetched })) {
      let withheld = apply(text, fetched);
      if (withheld.framework) {
        // It may be about to show the change, as in the page of whoever has made it.
        await sleep(FRAMEWORK_MS);
        if (asked !== page) return false;
        withheld = apply(text);
      }
      stale(withheld);
    }
    return false;
  };

  const apply = (text: string, fetched = parsePage(text)): Withheld => {
    if (isReplaced(sent) && isHere())
      sent = takeReplaced(sent as Element, fetched.body, document.body);
    let withheld = morphPage(sent, fetched);
    // A field may have been released after what waits for it, and a move may have been seen at its other end since.
    if (withheld.visitor + withheld.moved) withheld = morphPage(sent, parsePage(text));
    // What a library has stored has what scripts had made of the page. Now it shows all that the server sends, except
    // where a script has been active since. There, only what the server has changed since the earlier visit counts.
    if (earlier && withheld.script && !withheld.visitor) {
      unpair();
      sent = earlier;
      adopt(sent, document.body);
      withheld = patch(sent, parsePage(text).body);
    }
    earlier = undefined;
    const isAll = withheld.visitor + withheld.script === 0;
    pending = isAll ? null : text;
    clearTimeout(recheck);
    if (withheld.framework && recheckMs < LONGEST_PAUSE_MS) {
      recheckMs *= 2;
      recheck = setTimeout(applyAgain, recheckMs);
    }
    if (isAll) shownNotice?.remove();
    return withheld;
  };

  /** The visitor may have finished in the parts where changes were withheld. */
  const applyAgain = (): void => {
    // The form is reset and the focus moved only after the event.
    setTimeout(() => {
      hasFinished = isFetching;
      if (isFetching) return;
      if (pending !== null) apply(pending);
      if (!isWaiting || !mayLeave()) return;
      clearTimeout(timer);
      timer = 0;
      pause = PAUSE_MS;
      if (isOutdated) refetchSoon();
    });
  };

  const stale = (
    { visitor, script }: Pick<Withheld, 'visitor' | 'script'>,
    reason?: 'gone',
  ): void => {
    if (visitor) tellGateway(reason ?? 'visitor');
    if (script) tellGateway(reason ?? 'script');
    if (visitor + script === 0) return;
    if (tell('stale', { visitor, script }) && script && isHere()) {
      showNotice(notice, noticeStyle);
    }
  };

  /**
   * Whether the browser is still at the path of the fetched page. After a script has navigated elsewhere, its
   * changes do not matter.
   */
  const isHere = (): boolean => page.pathname === location.pathname;

  /** A library may have replaced the page with the server's response for another URL. */
  const checkPage = (event: Event): void => {
    // While Unpoly shows an overlay, the URL is that of the overlay.
    const { up } = window as { up?: Unpoly };
    const url = withoutHash(new URL(up?.layer?.root?.location ?? '', location.href).href);
    if (url !== page.href) {
      if (left.size === MAX_LEFT) left.clear();
      left.set(page.href, sent.cloneNode(true));
      page = new URL(url);
      const { requestConfig, xhr } = (event as CustomEvent<HtmxDetail | undefined>).detail ?? {};
      isOfForm =
        requestConfig !== undefined &&
        requestConfig.verb !== 'get' &&
        new URL(requestConfig.path, url).pathname === location.pathname;
      // An update before this response is in it, such as the one that the visitor's form has caused. A fetch
      // because of it would remove the app's message about the form. What the library has left is older.
      const shown = cursorIn(
        xhr?.getResponseHeader(TIMING) ??
          (visited?.url === url ? visited.headers.get(TIMING) : null),
      );
      if (shown && isReplaced(sent)) {
        cursor = shown;
        isOutdated = false;
        // A fetch in progress is of the page before, so its response is not shown.
      } else isOutdated ||= isFetching;
      fetching.abort();
      lastTitle = document.title;
      if (!isOfForm) sent = renew(sent, document.body);
      earlier = url === restored ? left.get(url) : undefined;
      restored = '';
      latest = pending = null;
    }
    stay();
  };

  let hidden = 0;
  on('visibilitychange', () => {
    if (document.hidden) hidden = setTimeout(rest, HIDDEN_MS);
    else check();
  });
  // An open stream would keep the page out of the back-forward cache.
  on('pagehide', rest);
  on('beforeunload turbo:submit-start htmx:beforeSend up:request:load', leave);
  on('pageshow turbo:frame-render htmx:afterRequest up:request:loaded', stay);
  on('online', () => {
    pause = PAUSE_MS;
    // Its connection may be of the network before.
    fetching.abort();
    rest();
    check();
  });
  // Everything that was stored during an earlier visit is as old as that visit.
  on('popstate', () => {
    const url = withoutHash(location.href);
    if (url === page.href) return;
    restored = url;
    isOutdated = true;
    leave();
  });
  on('turbo:before-fetch-response', (event) => {
    visited = (event as CustomEvent<TurboDetail>).detail.fetchResponse.response;
    // Turbo shows the page to which a form has led only once it has read and rendered it.
    if (!visited.redirected) stay();
  });
  on('up:fragment:loaded', (event) => {
    // It may be older than the cursor.
    if ((event as UnpolyEvent).request.fromCache) refetchSoon();
  });
  // What a library has shown may come from its cache.
  on('hub:shown', refetchSoon);
  on('turbo:load htmx:afterSettle htmx:historyRestore up:fragment:inserted hub:shown', checkPage);
  on('reset submit focusout pause', applyAgain);
  check();
}

/** The cursor in the address of a stream, which may be part of a field. */
function cursorIn(address?: string | null): string | null {
  const cursor = /last_event_id=([^"&]*)/.exec(address ?? '')?.[1];
  return cursor ? decodeURIComponent(cursor) : null;
}

interface TurboDetail {
  readonly fetchResponse: { readonly response: Response };
}

interface Unpoly {
  readonly layer?: { readonly root?: { readonly location?: string | null } };
}

interface UnpolyEvent extends Event {
  readonly request: { readonly fromCache?: boolean };
}

interface HtmxDetail {
  readonly requestConfig?: { readonly verb: string; readonly path: string };
  readonly xhr?: XMLHttpRequest;
}

/** Dispatches an event. Returns whether no listener has prevented the next step. */
function tell(name: string, detail: object): boolean {
  return document.dispatchEvent(
    new CustomEvent(`hub:${name}`, { detail, bubbles: true, cancelable: true }),
  );
}

let lastTitle = document.title;

/** Shows what the server has changed, except where the visitor or a script is active. */
function morphPage(sent: Node, fetched: Document): Withheld {
  // A script may show the number of new items in the title.
  if ([lastTitle, fetched.title].includes(document.title))
    lastTitle = document.title = fetched.title;
  const withheld = patch(sent, fetched.body);
  // htmx knows only the elements that it has processed.
  const { htmx } = window as { htmx?: { process(element: Element): void } };
  attempt(withheld, () => htmx?.process(document.body));
  return withheld;
}

/** The style has no specificity, so any rule of the page overrides it. */
const STYLE =
  ':where(#hub-stale){position:fixed;inset:auto 1em 1em auto;z-index:9999;padding:.5em 1em}';

let shownNotice: HTMLElement | null = null;

/**
 * Shows a discreet notice that the page is outdated, with a button that loads it. The page can set the text
 * with `<meta name="hub-stale" content="…">`, and the style with `#hub-stale`. The Hubfile can set both for
 * all pages. Text is inserted as text, and declarations apply only to this element.
 */
export function showNotice(ofSite?: string, style = ''): void {
  if (shownNotice?.isConnected) return;
  const text = document.querySelector<HTMLMetaElement>('meta[name=hub-stale]')?.content;
  const notice = document.createElement('button');
  notice.id = 'hub-stale';
  notice.textContent = text ?? ofSite ?? 'This page has changed. Load it again.';
  notice.style.cssText = style;
  notice.ariaLive = 'polite';
  notice.onclick = () => {
    // The browser asks the visitor, in the visitor's language.
    if (!mayLeave() || hasOtherWork())
      addEventListener('beforeunload', (event) => event.preventDefault(), { once: true });
    location.reload();
  };
  document.body.append(notice);
  if (shownNotice === null) {
    // A policy that forbids inline styles allows this one.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    document.adoptedStyleSheets.push(sheet);
  }
  shownNotice = notice;
}
