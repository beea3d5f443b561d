/*
 * Applies the difference between two responses of the server to the page, but only where the page is still as the server
 * sent it. Withheld changes stay out of the stored old response. So when the page returns to that state (a form is reset,
 * a script removes its changes), the next patch applies them.
 */
import { isOfFramework, isState, showsChanges } from './framework-elements.ts';
import {
  fieldsIn,
  idOf,
  isBlank,
  itemsOf,
  longestIncreasing,
  matchChildren,
  textOf,
} from './child-matching.ts';
import {
  copyTemplate,
  hasStrays,
  inert,
  isActive,
  isElement,
  isGone,
  isShadow,
  isTemplate,
  nextOf,
  pair,
  sentFor,
  show,
  shownFor,
  snapshot,
  UNSEEN,
} from './sent-document.ts';
import {
  formOf,
  holdsRevision,
  isAtWork,
  isBusy,
  isField,
  isRevisionOfWork,
  mayHoldWork,
  showDefaults,
  takeSaved,
  takeUndone,
  valueOf,
} from './visitor-state.ts';

/** The number of changes by the server that are not shown because the visitor is active or a script was. */
export interface Withheld {
  visitor: number;
  script: number;
  /** Changes among those of scripts that a framework may be about to show. */
  framework: number;
  /** Removals of what a script has moved elsewhere, as the server may have, too. */
  moved: number;
  /** Revisions of what the visitor is changing. They are not visible, so nobody is told of them. */
  revision: number;
}

/**
 * Turns the last response of the server into the next one, and the page with it.
 *
 * @param sent is changed with the page, except for withheld changes
 * @param next is consumed
 */
export function patch(sent: Node, next: Node): Withheld {
  const withheld = { visitor: 0, script: 0, framework: 0, moved: 0, revision: 0 };
  patchNode(sent, next, withheld);
  return withheld;
}

function patchNode(sent: Node, next: Node, withheld: Withheld): void {
  // `isEqualNode` ignores the content of templates.
  if (sent.isEqualNode(next) && textOf(sent) === textOf(next)) {
    if (isElement(sent)) takeUndone(sent);
    return;
  }
  if (isShadow(sent) && isShadow(next)) return patchShadow(sent, next, withheld);
  const shown = shownFor.get(sent);
  // A script acts only once, when it runs.
  if (isActive(sent) || isActive(next) || shown?.nodeName === 'NOSCRIPT') return;
  if (shown === undefined || isGone(sent)) withheld.script += 1;
  else if (isElement(sent) && isElement(next) && isElement(shown)) {
    attempt(withheld, () => patchElement(sent, next, shown, withheld));
  } else if (shown.nodeValue === sent.nodeValue || shown.nodeValue === next.nodeValue) {
    setText(shown as CharacterData, (next as CharacterData).data);
    sent.nodeValue = next.nodeValue;
  } else withheld.script += 1;
}

/** Replaces only what differs, so that what the visitor has selected in the rest of the text stays selected. */
function setText(shown: CharacterData, text: string): void {
  const { data } = shown;
  let [start, end] = [0, data.length];
  while (start < end && data[start] === text[start]) start += 1;
  const rest = text.length - end;
  while (start < end && start < end + rest && data[end - 1] === text[end - 1 + rest]) end -= 1;
  shown.replaceData(start, end - start, text.slice(start, end + rest));
}

/** If a change throws, such as in a method that a script has replaced, it is withheld, and the rest is shown. */
export function attempt(withheld: Withheld, change: () => void): void {
  try {
    change();
  } catch (error) {
    reportError(error);
    withheld.script += 1;
  }
}

/** A shadow tree belongs to its component, which may show the change by itself. */
function patchShadow(
  sent: HTMLTemplateElement,
  next: HTMLTemplateElement,
  withheld: Withheld,
): void {
  const host = shownFor.get(sent.parentNode as Node);
  const root = isElement(host) ? host.shadowRoot : null;
  if (root !== null && showsChanges(sent.content, next.content, root)) copyTemplate(sent, next);
  else {
    withheld.script += 1;
    withheld.framework += 1;
  }
}

function patchElement(sent: Element, next: Element, shown: Element, withheld: Withheld): void {
  if (isOff(shown)) return;
  if (isOfFramework(shown)) {
    if (showsChanges(sent, next, shown)) updateSent(sent, next);
    else {
      withheld.script += 1;
      withheld.framework += 1;
    }
    return;
  }
  const belongsToVisitor = (): boolean => isHeld(shown) || isBusy(shown);
  if (belongsToVisitor()) {
    takeSaved(shown, next);
    if (belongsToVisitor()) {
      withheld.visitor += 1;
      return;
    }
  }
  if (isCopied(sent, next, shown)) {
    withheld.script += 1;
    return;
  }
  const { script } = withheld;
  const revisions = revisionsOf(shown);
  const mode = shown.getAttribute('data-hub-live');
  if (mode !== 'children') patchAttributes(sent, next, shown, withheld);
  if (mode === 'replace') {
    if (isVisitorAt(shown)) withheld.visitor += 1;
    else replaceChildren(sent, next, shown);
  } else if (isTemplate(sent)) patchTemplate(sent, next, shown, withheld);
  else patchChildren(sent, next, shown, withheld);
  // What a form goes on showing must be sent with the revision that it had. Otherwise, the app would find no edit conflict.
  if (withheld.script > script) for (const [field, value] of revisions) field.value = value;
  showDefaults(shown);
}

/**
 * Whether the visitor sees another value of a field than the server now sends: a widget shows a copy of the field and
 * writes its own state into it, or a script has filled a `select`.
 */
function isCopied(sent: Element, next: Element, shown: Element): boolean {
  if (shown.localName === 'select' && additionsIn(shown).length > 0) return true;
  const { tabIndex } = sent as HTMLElement;
  return isField(shown) && shown.tabIndex < tabIndex && valueOf(sent) !== valueOf(next);
}

/** The hidden values of a form, in the page and as the server has sent them. */
function revisionsOf(shown: Element): (readonly [HTMLInputElement, string])[] {
  return [...shown.querySelectorAll<HTMLInputElement>('form:scope [type=hidden]')]
    .flatMap((field) => [field, (sentFor.get(field) as typeof field | undefined) ?? field])
    .map((one) => [one, one.value]);
}

/** Turns an element of the last response into that of the next one, without a change of the page. */
function updateSent(sent: Element, next: Element): void {
  for (const name of namesOf(sent, next)) copyAttribute(name, next, sent);
  sent.replaceChildren(...next.childNodes);
}

/** A field outside of its form still belongs to it. */
function isHeld(shown: Element): boolean {
  const form = formOf(shown);
  if (form === null) return holdsRevision(shown);
  if (form !== shown && shown.closest('form') === form) return false;
  return isAtWork(form, () => isSame(sentFor.get(form), form));
}

function isOff(shown: Element): boolean {
  return (
    shown.getAttribute('data-hub-live') === 'off' || shown.hasAttribute('data-turbo-permanent')
  );
}

function patchAttributes(sent: Element, next: Element, shown: Element, withheld: Withheld): void {
  for (const name of namesOf(sent, next)) {
    const [was, is, seen] = [sent, next, shown].map((one) => one.getAttribute(name));
    if (was === is) continue;
    // The visitor has read what belongs to the revision before.
    if (isRevisionOfWork(name, shown)) {
      withheld.revision += 1;
      continue;
    }
    if (seen === was && !isState(name, shown)) copyAttribute(name, next, shown);
    else if (name === 'class') {
      // Scripts use classes to show that something is open, selected or loaded, so each class is treated
      // individually.
      shown.classList.remove(...[...sent.classList].filter((one) => !next.classList.contains(one)));
      shown.classList.add(...[...next.classList].filter((one) => !sent.classList.contains(one)));
    } else if (seen !== is) {
      if (name !== 'open') withheld.script += 1;
      continue;
    }
    copyAttribute(name, next, sent);
  }
}

/** The names of the attributes of two elements. */
function namesOf(one: Element, two: Element): Set<string> {
  return new Set([...one.getAttributeNames(), ...two.getAttributeNames()]);
}

/**
 * Sets or removes an attribute as another element has it. `setAttribute` makes no attribute with a namespace. It
 * refuses names that the parser accepts, such as `=x`, and in older browsers the `@click` of Alpine.
 */
function copyAttribute(name: string, from: Element, to: Element): void {
  const attribute = from.getAttributeNode(name);
  if (attribute === null) to.removeAttribute(name);
  else to.setAttributeNode(attribute.cloneNode() as Attr);
}

function patchTemplate(sent: Element, next: Element, shown: Element, withheld: Withheld): void {
  if (shown.innerHTML === sent.innerHTML) copyTemplate(shown, next);
  else if (shown.innerHTML !== next.innerHTML) {
    withheld.script += 1;
    return;
  }
  copyTemplate(sent, next);
}

function replaceChildren(sent: Element, next: Element, shown: Element): void {
  const children = [...next.childNodes];
  shown.replaceChildren(...children.flatMap((child) => show(child) ?? []));
  sent.replaceChildren(...children);
}

function patchChildren(sent: Element, next: Element, shown: Element, withheld: Withheld): void {
  const after = [...next.childNodes];
  const mayWork = mayHoldWork(shown);
  const isAtWork = (child: Node): boolean => mayWork && isVisitorAt(shownFor.get(child));
  const matches = matchChildren([...sent.childNodes], after, isAtWork);
  const taken = takeShown(sent, after, matches, shown);
  const before = [...sent.childNodes];
  const isOwned = isOwnedByScripts([...before, ...taken], shown);
  for (const [nextChild, sentChild] of matches) patchNode(sentChild, nextChild, withheld);
  const isItem = itemsOf(before, after);
  const matched = new Set(matches.values());
  const kept = before.filter((child) => !matched.has(child) && !remove(child, shown, withheld));

  const moves = orderOf(before, after, matches, shown, withheld);
  let last: Node | null = null;
  for (const nextChild of after) {
    const sentChild = matches.get(nextChild);
    if (taken.has(nextChild)) {
      sent.insertBefore(nextChild, nextOf(last, sent));
      last = nextChild;
    } else if (sentChild !== undefined && !moves.has(sentChild)) last = sentChild;
    else if (hasStrays(nextChild)) withheld.script += 1;
    else if (sentChild !== undefined) {
      move(sentChild, sent, shown, last);
      last = sentChild;
    } else {
      // The form in which the visitor works may have another id by now, and is not shown twice. In a list, it is another.
      const names = kept.length === 0 || isItem(nextChild) ? '' : fieldsIn(nextChild);
      const at = names === '' ? -1 : kept.findIndex((old) => fieldsIn(old) === names);
      if (at !== -1) {
        kept.splice(at, 1);
        continue;
      }
      if (isOwned && !isBlank(nextChild)) {
        withheld.script += 1;
        continue;
      }
      insert(nextChild, sent, shown, last);
      last = nextChild;
    }
  }
}

/**
 * A script may have replaced nodes with equal ones, or may already show what the server sends now, such as what htmx has
 * loaded. Takes these nodes for the server's. Returns those that are new.
 */
function takeShown(
  sent: Element,
  after: readonly Node[],
  matches: Map<Node, Node>,
  shown: Element,
): ReadonlySet<Node> {
  const taken = new Set<Node>();
  const take = (nextChild: Node): void => {
    taken.add(nextChild);
    const sentChild = matches.get(nextChild);
    (sentChild as ChildNode | undefined)?.remove();
    matches.delete(nextChild);
  };
  for (const [node, sentChild] of matchChildren(
    [...sent.childNodes].filter(isGone),
    additionsIn(shown),
  )) {
    const nextChild = after.find((it) => matches.get(it) === sentChild);
    if (textOf(node) === textOf(sentChild)) adopt(sentChild, node);
    else if (
      isElement(sentChild) &&
      isElement(nextChild) &&
      takeReplaced(sentChild, nextChild, node) === nextChild
    )
      take(nextChild);
  }
  const left = after.filter((nextChild) => isGone(matches.get(nextChild)) && !taken.has(nextChild));
  for (const [nextChild, node] of matchChildren(additionsIn(shown), left)) {
    const was = sentFor.get(node);
    if (textOf(node) === textOf(nextChild)) {
      adopt(nextChild, node);
      take(nextChild);
    } else if (was !== undefined && idOf(nextChild) !== '')
      matches.set(nextChild, sent.appendChild(was));
  }
  return taken;
}

/** Whether scripts have taken over the content: nothing from the server is left, but something else is there. */
function isOwnedByScripts(children: readonly Node[], shown: Element): boolean {
  const mine = children.filter(isPart);
  if (mine.some((one) => shownFor.get(one)?.parentNode === shown)) return false;
  return mine.length > 0 || additionsIn(shown).length > 0;
}

/** What the server has not sent here. */
function additionsIn(shown: Node): Node[] {
  const sent = sentFor.get(shown);
  return [...shown.childNodes].filter(
    (node) => !isBlank(node) && sentFor.get(node)?.parentNode !== sent,
  );
}

function isPart(sent: Node): boolean {
  return !isBlank(sent) && !isActive(sent);
}

/** Whether a library has replaced all that the server has sent for the page. */
export function isReplaced(sent: Node): boolean {
  const mine = [...sent.childNodes].filter(isPart);
  return shownFor.get(sent) !== document.body || (mine.length > 0 && mine.every(isGone));
}

/**
 * A library may have replaced the page, or an element of it, with the response to a form, or with what it was. Takes
 * what it shows for the server's, as far as the server sends, or had sent, the same. Returns what is then sent.
 */
export function takeReplaced(sent: Element, next: Element, shown: Node): Element {
  const isNext = showsChanges(sent, next, shown);
  const one = isNext ? next : sent;
  if (isNext || showsChanges(inert, sent, shown)) adopt(one, shown);
  return one;
}

/**
 * A library has shown another page, or a part of it. Takes the elements that are in the place of the server's for
 * the server's. What scripts have made of the rest stays theirs.
 */
export function renew(sent: Node, shown: Node): Node {
  if (shownFor.get(sent) !== shown) return snapshot(shown);
  if (!isElement(sent)) return sent;
  const gone = [...sent.childNodes].filter(
    (one) => isGone(one) && !isActive(one) && !isShadow(one),
  );
  const added = [...shown.childNodes].filter((node) => sentFor.get(node)?.parentNode !== sent);
  // A script that changes a text may replace it.
  const isReplaced = added.length > 0 && gone.some(isElement);
  const isAll = isReplaced && [...sent.children].every(isGone);
  const replaced = matchChildren(isReplaced ? gone : [], added);
  for (const one of isAll ? gone : replaced.values()) sent.removeChild(one);
  for (const node of shown.childNodes) {
    let one = sentFor.get(node);
    if (one?.parentNode === sent) renew(one, node);
    else if (isAll || replaced.has(node)) one = snapshot(node);
    else continue;
    sent.appendChild(one);
  }
  return sent;
}

/** Removes a node as the server did. Returns whether the last response is now without it. */
function remove(sent: Node, parent: Element, withheld: Withheld): boolean {
  const shown = shownFor.get(sent);
  // Where a script has moved it, the server may have sent it as well.
  if (shown !== undefined && !isGone(sent) && sentFor.get(shown) === sent) {
    if (isElement(shown) && isOff(shown)) return false;
    if (isElement(sent)) takeUndone(sent);
    if (shown.parentNode !== parent) withheld.moved += 1;
    if (shown.parentNode !== parent || !isAsSent(sent, shown)) {
      if (isVisitorAt(shown)) withheld.visitor += 1;
      else withheld.script += 1;
      return false;
    }
    (shown as ChildNode).remove();
  }
  (sent as ChildNode).remove();
  return true;
}

function insert(next: Node, sent: Element, shown: Element, last: Node | null): void {
  const copy = show(next);
  if (copy !== null) shown.insertBefore(copy, nextOf(last, shown));
  sent.insertBefore(next, nextOf(last, sent));
}

export function adopt(sent: Node, shown: Node): void {
  pair(sent, shown);
  for (const [child, other] of matchChildren([...shown.childNodes], [...sent.childNodes])) {
    adopt(child, other);
  }
}

function move(one: Node, sent: Element, shown: Element, last: Node | null): void {
  const node = shownFor.get(one);
  if (node?.parentNode === shown) {
    const place = nextOf(last, shown);
    // `moveBefore` keeps focus, frames and running media.
    const mover = shown as { moveBefore?(node: Node, next: Node | null): void };
    if (mover.moveBefore === undefined) shown.insertBefore(node, place);
    else mover.moveBefore(node, place);
  }
  sent.insertBefore(one, nextOf(last, sent));
}

/** The smallest set of nodes that have to move for the server's order; empty if a script has sorted them. */
function orderOf(
  before: readonly Node[],
  after: readonly Node[],
  matches: ReadonlyMap<Node, Node>,
  shown: Element,
  withheld: Withheld,
): ReadonlySet<Node> {
  const places = new Map(before.map((child, index) => [child, index]));
  const wanted = after.flatMap((nextChild) => matches.get(nextChild) ?? []);
  const stay = new Set(longestIncreasing(wanted, (child) => places.get(child) ?? 0));
  const moves = new Set(wanted.filter((child) => !stay.has(child)));
  if (moves.size === 0) return moves;
  const page = new Map([...shown.childNodes].map((child, index) => [child as Node, index]));
  const isShown = (order: readonly Node[]): boolean => {
    const seen = order.flatMap((child) =>
      isBlank(child) ? [] : (page.get(shownFor.get(child) ?? child) ?? []),
    );
    return seen.every((place, index) => place >= (seen[index - 1] ?? 0));
  };
  // A script may already have sorted them as the server does now.
  if (isShown(before) || isShown(wanted)) return moves;
  withheld.script += 1;
  return new Set();
}

/** Whether the page shows exactly what the server has sent, and the visitor has changed nothing there. */
function isAsSent(sent: Node, shown: Node): boolean {
  if (shownFor.get(sent) !== shown) {
    return !isElement(sent) && !sentFor.has(shown) && sent.isEqualNode(shown);
  }
  if (!isElement(sent) || !isElement(shown)) {
    return shown.nodeName === 'NOSCRIPT' || sent.nodeValue === shown.nodeValue;
  }
  if (isActive(sent)) return true;
  // What a framework knows of an element is not visible in it.
  if (isOfFramework(shown)) return false;
  return !isOff(shown) && !isBusy(shown) && !isHeld(shown) && isSame(sent, shown);
}

function isSame(sent: Node | undefined, shown: Element): boolean {
  if (!isElement(sent)) return false;
  const names = namesOf(sent, shown);
  // Visitors change `open`.
  for (const name of [...UNSEEN, 'open']) names.delete(name);
  for (const name of names) if (sent.getAttribute(name) !== shown.getAttribute(name)) return false;
  if (isTemplate(sent)) return sent.innerHTML === shown.innerHTML;
  const children = [...sent.childNodes].filter((child) => shownFor.has(child));
  return (
    children.length === shown.childNodes.length &&
    children.every((child, index) => {
      const other = shown.childNodes[index];
      return other !== undefined && isAsSent(child, other);
    })
  );
}

function isVisitorAt(shown: Node | undefined): boolean {
  if (!isElement(shown)) return false;
  return [shown, ...shown.querySelectorAll('*')].some((one) => isBusy(one) || isHeld(one));
}
