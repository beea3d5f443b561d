import {
  adopt,
  attempt,
  isReplaced,
  patch,
  renew,
  takeReplaced,
  type Withheld,
} from './three-way-patch.ts';
import { dispatch, LONGEST_WAIT_MS, sleep, withoutHash } from './page-stream.ts';
import { parsePage, unpair } from './sent-document.ts';
import { hasOtherWork, hasReturned, holdReturned, mayLeave } from './visitor-state.ts';

/** How long a framework has to show a change itself. */
const FRAMEWORK_MS = 1000;
/** How many pages before are known, about as many as libraries keep. */
const MAX_FORMER_PAGES = 10;
/** The style has no specificity, so any rule of the page overrides it. */
const NOTICE_STYLE =
  ':where(#hub-stale){position:fixed;inset:auto 1em 1em auto;z-index:9999;padding:.5em 1em}';

/** The last title from the server. Scripts may change the title while the browser still reads the page. */
let lastTitle = document.title;

/** The page as the visitor sees it. It shows what the server has changed, and reports what it withholds. */
export class ShownPage {
  /**
   * The URL of the page that the server has sent. Scripts may have changed the URL of the window since. Each visit has
   * another object, so that a late response is not taken for one to this visit.
   */
  url = new URL(withoutHash(location.href));
  /** The last response of the server, without the changes that are withheld. */
  #sent: Node;
  /** The canonical link of the last response; null if it has none. */
  #canonical = canonicalOf(document);
  /** Whether a library shows the response to a form, so that the app may have another page, or none, at its URL. */
  isOfForm = false;
  /** The last response that was to be shown. */
  #latest: string | null = null;
  /** The last response that was shown in parts; null if nothing is withheld. */
  #pending: string | null = null;
  /** Whether changes are withheld because the visitor is active there. */
  waitsForVisitor = false;
  /** By URL, what the server had sent for the pages before. */
  readonly #formerPages = new Map<string, Node>();
  /** What the server had sent for this page when the visitor left it, if a library may have shown that again. */
  #earlier: Node | undefined;
  readonly #retry: () => void;
  /** The timer after which a framework may show the change. */
  #frameworkTimer = 0;
  #frameworkMs = FRAMEWORK_MS;
  /** The gateway counts pages with withheld changes. Each page reports each reason once. */
  readonly #reported = new Set<string>();
  readonly #settings: DOMStringMap;
  #notice: HTMLElement | null = null;

  /**
   * @param settings what the gateway has written at the script
   * @param retry is called when withheld changes are worth another attempt
   */
  constructor(sent: Node, settings: DOMStringMap, retry: () => void) {
    this.#sent = sent;
    this.#settings = settings;
    this.#retry = retry;
  }

  /** Whether changes are withheld. */
  get hasWithheld(): boolean {
    return this.#pending !== null;
  }

  /**
   * Whether the window is still at the path of the page. After a script has navigated elsewhere, its changes do not
   * matter.
   */
  get isAtPath(): boolean {
    return this.url.pathname === location.pathname;
  }

  /** Whether a library has replaced all that the server has sent. */
  get isReplaced(): boolean {
    return isReplaced(this.#sent);
  }

  /** Shows a response of the server. */
  async showResponse(text: string): Promise<void> {
    const { url } = this;
    // What the visitor has entered may be in the same page, because a change was taken back.
    if (text === this.#latest && mayLeave()) return;
    this.#latest = text;
    const fetched = parsePage(text);
    this.#frameworkMs = FRAMEWORK_MS;
    if (!dispatch('morphed', { document: fetched })) return;
    let withheld = this.#apply(text, fetched);
    if (withheld.framework) {
      // It may be about to show the change, as in the page of whoever has made it.
      await sleep(FRAMEWORK_MS);
      if (url !== this.url) return;
      withheld = this.#apply(text);
    }
    this.reportWithheld(withheld);
  }

  /** Shows what was withheld, where the visitor and scripts are no longer active. */
  applyPending(): void {
    if (this.#pending !== null) this.#apply(this.#pending);
  }

  /** Shows a response, and keeps it if something is withheld. */
  #apply(text: string, fetched = parsePage(text)): Withheld {
    const withheld = this.#show(text, fetched);
    this.waitsForVisitor = withheld.visitor > 0;
    const isAll = withheld.visitor + withheld.script === 0;
    this.#pending = isAll && withheld.revision === 0 ? null : text;
    clearTimeout(this.#frameworkTimer);
    if (withheld.framework && this.#frameworkMs < LONGEST_WAIT_MS) {
      this.#frameworkMs *= 2;
      this.#frameworkTimer = setTimeout(this.#retry, this.#frameworkMs);
    }
    if (isAll) this.#notice?.remove();
    return withheld;
  }

  #show(text: string, fetched: Document): Withheld {
    const canonical = canonicalOf(fetched);
    const isOther = Boolean(canonical && this.#canonical) && canonical !== this.#canonical;
    if (this.isOfForm && !mayLeave() && !hasReturned(fetched)) {
      return { visitor: 1, script: 0, framework: 0, moved: 0, revision: 0 };
    }
    this.isOfForm = false;
    // The URL is that of "the next task" or "my profile". A draft must not stand under the heading of another one, and
    // what a script knows of the page may be about the one before.
    const isAtWork = !mayLeave();
    if (isOther && (isAtWork || hasOtherScripts(fetched))) {
      return { visitor: Number(isAtWork), script: 1, framework: 0, moved: 0, revision: 0 };
    }
    this.#canonical = canonical;
    if (this.isReplaced && this.isAtPath)
      this.#sent = takeReplaced(this.#sent as Element, fetched.body, document.body);
    let withheld = this.#morph(fetched);
    // A field may have been released after what waits for it, and a move may have been seen at its other end since.
    if (withheld.visitor + withheld.moved) withheld = this.#morph(parsePage(text));
    // What a library has stored has what scripts had made of the page. Now it shows all that the server sends, except
    // where a script has been active since. There, only what the server has changed since the earlier visit counts.
    if (this.#earlier && withheld.script && !withheld.visitor) {
      unpair();
      this.#sent = this.#earlier;
      adopt(this.#sent, document.body);
      withheld = patch(this.#sent, parsePage(text).body);
    }
    this.#earlier = undefined;
    return withheld;
  }

  /** Shows what the server has changed, except where the visitor or a script is active. */
  #morph(fetched: Document): Withheld {
    // A script may show the number of new items in the title.
    if ([lastTitle, fetched.title].includes(document.title))
      lastTitle = document.title = fetched.title;
    const withheld = patch(this.#sent, fetched.body);
    // htmx knows only the elements that it has processed.
    const { htmx } = window as { htmx?: { process(element: Element): void } };
    attempt(withheld, () => htmx?.process(document.body));
    return withheld;
  }

  /** Tells the gateway, the page and the visitor that changes are withheld. */
  reportWithheld({ visitor, script }: Pick<Withheld, 'visitor' | 'script'>, reason?: 'gone'): void {
    if (visitor) this.#reportToGateway(reason ?? 'visitor');
    if (script) this.#reportToGateway(reason ?? 'script');
    if (visitor + script === 0) return;
    if (dispatch('stale', { visitor, script }) && script && this.isAtPath) this.#showNotice();
  }

  #reportToGateway(reason: 'visitor' | 'script' | 'gone'): void {
    const { report } = this.#settings;
    if (!report || this.#reported.has(reason)) return;
    this.#reported.add(reason);
    navigator.sendBeacon(new URL(`${report}?withheld=${reason}`, location.href));
  }

  /**
   * Shows a discreet notice that the page is outdated, with a button that loads it. The page can set the text
   * with `<meta name="hub-stale" content="…">`, and the style with `#hub-stale`. The Hubfile can set both for
   * all pages. Text is inserted as text, and declarations apply only to this element.
   */
  #showNotice(): void {
    if (this.#notice?.isConnected) return;
    const text = document.querySelector<HTMLMetaElement>('meta[name=hub-stale]')?.content;
    const { notice: ofSite, noticeStyle = '' } = this.#settings;
    const notice = document.createElement('button');
    notice.id = 'hub-stale';
    notice.textContent = text ?? ofSite ?? 'This page has changed. Load it again.';
    notice.style.cssText = noticeStyle;
    notice.ariaLive = 'polite';
    notice.onclick = () => {
      // The browser asks the visitor, in the visitor's language.
      if (!mayLeave() || hasOtherWork())
        addEventListener('beforeunload', (event) => event.preventDefault(), { once: true });
      location.reload();
    };
    document.body.append(notice);
    if (this.#notice === null) {
      // A policy that forbids inline styles allows this one.
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(NOTICE_STYLE);
      document.adoptedStyleSheets.push(sheet);
    }
    this.#notice = notice;
  }

  /**
   * A library has shown another page of the server. Returns whether it has replaced all of the page before.
   *
   * @param isOfForm whether the page is the response to a form, so that the app may have no such page
   * @param isRestored whether it may be what the library has kept of an earlier visit
   */
  turnTo(url: string, isOfForm: boolean, isRestored: boolean): boolean {
    const wasReplaced = this.isReplaced;
    this.isOfForm = isOfForm;
    holdReturned();
    if (this.#formerPages.size === MAX_FORMER_PAGES) this.#formerPages.clear();
    this.#formerPages.set(this.url.href, this.#sent.cloneNode(true));
    this.url = new URL(url);
    lastTitle = document.title;
    this.#earlier = isRestored ? this.#formerPages.get(url) : undefined;
    this.#latest = this.#pending = null;
    this.waitsForVisitor = false;
    this.#canonical = null;
    if (!isOfForm) this.#sent = renew(this.#sent, document.body);
    return wasReplaced;
  }
}

function canonicalOf(page: Document): string | null {
  return page.querySelector('link[rel~=canonical]')?.getAttribute('href') ?? null;
}

/** Whether a page has an inline script that this page lacks. No script of another page runs in this one. */
function hasOtherScripts(page: Document): boolean {
  const own = new Set([...document.scripts].map(({ text }) => text));
  return [...page.scripts].some(({ text }) => !own.has(text));
}
