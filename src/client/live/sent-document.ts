// The script blocks the parser because it records what the server sends while the browser parses it. Without
// the server's last response, a removal by the server looks the same as an addition by a script.

/*
 * The document that the server has sent for this page view, as a separate tree.
 *
 * A morph that knows only the page and the new response would treat anything that scripts have added as
 * removed by the server. So the script keeps the last response of the server, and applies the difference
 * between that one and the next.
 *
 * Where does the first response come from? A second request would double the load and return a later state.
 * The HTTP cache does not keep `no-store`, which editors send. Instead, the script reads the page itself
 * while the browser builds it. It is a blocking script at the end of the head, so it runs before the body
 * exists. HTML performs a microtask checkpoint before a script of the page runs, and another one after it. So
 * each batch of MutationObserver records belongs either to the parser or to a script:
 * `document.currentScript` tells which. Nodes that timers and promises insert while the page is being parsed
 * arrive without a current script. They count as the parser's only at its current position, the end of what
 * it has read. Recording ends when the document is `interactive`, before deferred scripts and modules run.
 */

/** The node of the page for a node that the server has sent. */
export const shownFor = new WeakMap<Node, Node>();
/** The node that the server has sent for a node of the page. */
export let sentFor = new WeakMap<Node, Node>();

/** Attributes that act once, when the browser parses the page. Nonces are hidden from scripts afterwards. */
export const UNSEEN = ['nonce', 'autofocus'];

/** A document in which nothing is loaded and nothing runs. */
export const inert = document.implementation.createHTMLDocument('');

export function pair(sent: Node, shown: Node): void {
  shownFor.set(sent, shown);
  sentFor.set(shown, sent);
}

/** Forgets the last response, before another one is paired with the page. */
export function unpair(): void {
  sentFor = new WeakMap();
}

export function isElement(node: Node | null | undefined): node is Element {
  return node instanceof Element;
}

/** A copy of a node of the page without its children. */
function record(shown: Node): Node {
  // Its content is text here, but elements in a document that is parsed without scripting.
  const isSkipped = shown.nodeName === 'NOSCRIPT';
  const sent = isSkipped ? inert.createComment('') : inert.importNode(shown);
  if (isElement(sent)) for (const name of UNSEEN) sent.removeAttribute(name);
  pair(sent, shown);
  return sent;
}

/** Takes the current page as the document that the server has sent. */
export function snapshot(shown: Node): Node {
  const sent = record(shown);
  if (isElement(sent)) {
    for (const child of shown.childNodes) sent.appendChild(snapshot(child));
    recordContent(sent, shown);
  }
  return sent;
}

/** Records what are no children: the content of a template, and a shadow tree as the template in which the server sends it. */
function recordContent(sent: Element, shown: Node | undefined): void {
  copyTemplate(sent, shown);
  const root = isElement(shown) ? shown.shadowRoot : null;
  if (root === null) return;
  const template = inert.createElement('template');
  template.setAttribute(SHADOW, root.mode);
  template.content.append(...[...root.childNodes].map(snapshot));
  sent.prepend(template);
}

const SHADOW = 'shadowrootmode';

export function isTemplate(node: Node | undefined): node is HTMLTemplateElement {
  return node instanceof HTMLTemplateElement;
}

/** A template from which the browser makes the shadow tree of its parent. */
export function isShadow(node: Node): node is HTMLTemplateElement {
  return isTemplate(node) && node.hasAttribute(SHADOW);
}

/** The content of a template belongs to another document. Scripts in it are not copied. */
export function copyTemplate(to: Node, from: Node | undefined): void {
  if (!isTemplate(to) || !isTemplate(from)) return;
  const content = to.content.ownerDocument.importNode(from.content, true);
  if (to.ownerDocument === document) {
    for (const script of content.querySelectorAll('script')) if (isActive(script)) script.remove();
  }
  to.content.replaceChildren(content);
}

/** Resolves to the body that the server has sent, once the browser has read all of it. */
export async function recordBody(): Promise<Node> {
  if (document.readyState !== 'loading') return snapshot(document.body);
  let body: Node | null = document.body && snapshot(document.body);
  /** The node that the parser has inserted last. */
  let last: Node | null = body;
  /**
   * The node inserted last into a table. The parser moves content that is not allowed in the table in front
   * of it.
   */
  let inTable: Node | null = null;

  const isParsers = (sent: Node | undefined): sent is Node =>
    isElement(sent) && (sent.contains(last) || sent.contains(inTable));

  const read = ({ type, target, addedNodes, nextSibling }: MutationRecord): void => {
    const parent = sentFor.get(target);
    if (type === 'characterData') {
      const [one, text] = [parent as Text | undefined, (target as Text).data];
      if (one !== undefined && text.startsWith(one.data)) one.data = text;
      return;
    }
    for (const shown of addedNodes) {
      if (body === null && shown.nodeName === 'BODY') last = body = record(shown);
      if (!isParsers(parent) || (nextSibling !== null && nextSibling.nodeName !== 'TABLE'))
        continue;
      if (sentFor.get(nextSibling as Node)?.contains(last)) inTable = last;
      let next = nextSibling;
      while (next !== null && sentFor.get(next)?.parentNode !== parent) next = next.nextSibling;
      // The parser may move wrongly nested nodes later.
      last = sentFor.get(shown) ?? record(shown);
      parent.insertBefore(last, sentFor.get(next as Node) ?? null);
    }
  };
  const readAll = (records: readonly MutationRecord[]): void => {
    if (document.currentScript !== null) return;
    // The parser lets a custom element act as soon as it has inserted it, and then these records arrive.
    const acts = ({ addedNodes }: MutationRecord): boolean =>
      [...addedNodes].some((node) => 'connectedCallback' in node);
    const end = records.findIndex(acts) + 1 || records.length;
    records.slice(0, end).forEach(read);
    for (const { target, attributeName, oldValue } of records.slice(end).reverse()) {
      const sent = sentFor.get(target);
      if (attributeName === null || !isElement(sent)) continue;
      if (oldValue === null) sent.removeAttribute(attributeName);
      else sent.setAttribute(attributeName, oldValue);
    }
  };
  const observer = new MutationObserver(readAll);
  observer.observe(document, {
    childList: true,
    characterData: true,
    subtree: true,
    attributeOldValue: true,
  });

  return new Promise((resolve) => {
    document.addEventListener(
      'readystatechange',
      () => {
        readAll(observer.takeRecords());
        observer.disconnect();
        const sent = body ?? snapshot(document.body);
        for (const one of (sent as Element).querySelectorAll('*')) {
          recordContent(one, shownFor.get(one));
        }
        resolve(sent);
      },
      { once: true },
    );
  });
}

/** Comments, elements whose text is not parsed as tags, `noscript` elements, and single tags. */
const TAGS =
  /<!--[^]*?(?:--!?>|$)|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b[^]*?(?:<\/\1|$)|<noscript\b[^]*?(?:<\/noscript[^>]*>|$)|<\/?[a-z](?:"[^"]*"|'[^']*'|[^>"'])*>/gi;

interface Policy {
  createHTML(text: string): string;
}

interface Policies {
  createPolicy(name: string, rules: Policy): Policy;
}

let policy: Policy = { createHTML: (text) => text };

/** The page trusts what its own server sends. */
export function trustServer(): void {
  const policies = (window as { trustedTypes?: Policies }).trustedTypes;
  policy = policies?.createPolicy('hubgate', policy) ?? policy;
}

/**
 * Parses a response of the server in the way the browser has parsed the page, with scripting enabled. The
 * content of `noscript` is then not parsed as elements, and a morph must not turn it into elements.
 */
export function parsePage(text: string): Document {
  const plain = text.replace(TAGS, (tag) => (/^<noscript/i.test(tag) ? '<!---->' : tag));
  const page = new DOMParser().parseFromString(policy.createHTML(plain), 'text/html');
  for (const name of UNSEEN) {
    for (const element of page.querySelectorAll(`[${name}]`)) element.removeAttribute(name);
  }
  // A stray quote may have hidden one from the expression.
  for (const one of page.querySelectorAll('noscript')) one.replaceWith(page.createComment(''));
  stripShadows(page);
  return page;
}

/** The other attributes of a shadow tree are not visible in the page. */
function stripShadows(root: ParentNode): void {
  for (const template of root.querySelectorAll('template')) {
    if (!isShadow(template)) continue;
    for (const name of template.getAttributeNames())
      if (name !== SHADOW) template.removeAttribute(name);
    stripShadows(template.content);
  }
}

/** A script that the browser would run, or an element that acts like one when it is inserted. */
export function isActive(node: Node): boolean {
  if (!isElement(node)) return false;
  if (node.localName === 'meta') return node.hasAttribute('http-equiv');
  if (node.localName !== 'script') return false;
  return !/^\s*(?:text|application)\/(?!.*(?:java|ecma|live|j)script)/i.test(
    node.getAttribute('type') ?? node.getAttribute('language') ?? '',
  );
}

/** A copy of a new node from the server, for display; null if it would become active by insertion. */
export function show(sent: Node): Node | null {
  if (isActive(sent) || isShadow(sent)) return null;
  const shown = document.importNode(sent);
  copyTemplate(shown, sent);
  for (const child of sent.childNodes) {
    const copy = show(child);
    if (copy !== null) shown.appendChild(copy);
  }
  pair(sent, shown);
  return shown;
}

/** Whether the page no longer shows what the server has sent. */
export function isGone(sent: Node | undefined): boolean {
  return !shownFor.get(sent as Node)?.isConnected;
}

/** The position for the next sibling of a node: after it, or before all other nodes from the server. */
export function nextOf(last: Node | null, parent: Element): Node | null {
  const ofPage = parent.ownerDocument === document;
  for (let one = last; one !== null; one = one.previousSibling) {
    const node = ofPage ? shownFor.get(one) : one;
    if (node?.parentNode === parent) return node.nextSibling;
  }
  return [...parent.childNodes].find((one) => !ofPage || sentFor.has(one)) ?? null;
}

/**
 * Whether fields belong to an empty form beside them, as in `<table><form><tr><td><input>`. Only the parser makes such
 * fields: when a script inserts or moves them, no form sends them any more.
 */
export function hasStrays(node: Node): boolean {
  return (
    isElement(node) &&
    (node.closest('table') ?? node).querySelector('form:empty') !== null &&
    node.querySelector('[name]:not([form],form *)') !== null
  );
}
