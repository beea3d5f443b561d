/*
 * Matches the children of the last response with those of the next: by `id`, then by equality, then by
 * the fields in them, then by attributes that act as keys, then by the visible text, then by likeness, then by
 * name and position.
 */
import { isElement, isShadow } from './sent-document.ts';
import { ENTRIES } from './visitor-state.ts';

const IDS = 'id data-id data-key key'.split(' ');
const KEYS = 'name action for value href src'.split(' ');
/** Comparisons of nodes by their words between two matched positions. Beyond it, the order decides. */
const MAX_COMPARISONS = 10_000;
/** Characters of the shortest usual token against forged requests. A UUID has 36. */
const TOKEN_LENGTH = 40;
/** Comparisons of items in which the visitor works with all items. Beyond it, the order decides as well. */
const MAX_ITEM_COMPARISONS = 100_000;
/** Words of a node that are compared. */
const MAX_WORDS = 200;

/**
 * The old node for each new node that has one.
 *
 * @param isAtWork whether the visitor works in what is shown for an old node. In a list, such a node is matched only with
 * a node that is certainly the same item. Otherwise, its field would get the label of another one.
 */
export function matchChildren(
  old: readonly Node[],
  next: readonly Node[],
  isAtWork: (one: Node) => boolean = () => false,
): Map<Node, Node> {
  const matches = new Map<Node, Node>();
  const free = new Set(old);
  const match = (two: Node, one: Node): void => {
    matches.set(two, one);
    free.delete(one);
  };
  /** Nodes with the same key are matched in their order, so a key may occur several times. */
  const by = (
    keyOf: (node: Node) => string,
    ones: readonly Node[] = old,
    twos: readonly Node[] = next,
  ): void => {
    const queues = grouped(
      ones.filter((one) => free.has(one)),
      keyOf,
    );
    for (const two of twos) {
      if (matches.has(two)) continue;
      const key = keyOf(two);
      const one = key === '' ? undefined : queues.get(key)?.shift();
      if (one !== undefined) match(two, one);
    }
  };
  by((node) => idOf(node) && kindOf(node));
  by((node) => (isBlank(node) ? '' : textOf(node)));
  // Another element must not take the place of the only one with a form in which the visitor may be working.
  const repeated = repeatedKeys(formKeyOf, old, next);
  const isItem = itemsOf(old, next);
  by((node) => (repeated.has(formKeyOf(node)) ? '' : formKeyOf(node)));
  by((node) => {
    const key = isElement(node) && KEYS.find((name) => node.hasAttribute(name));
    return key ? [node.nodeName, key, node.getAttribute(key)].join() : '';
  });
  // Tokens and revisions may differ in each response, but visitors do not see them.
  by((node) =>
    isElement(node) && node.textContent.trim() !== '' ? kindOf(node) + node.textContent : '',
  );
  // The remaining nodes are between matched ones. The likest are matched first, equally like ones in their order.
  const rest = (from: number, to: number, ones: readonly Node[], isMoved = false): void => {
    const all = ones.filter((one) => free.has(one));
    const items = all.filter((one) => isAtWork(one) && isItem(one));
    const others = next.slice(from, to).filter((two) => !matches.has(two));
    if (!isMoved) matchItems(items, all, others, match);
    const left = others.filter((two) => !matches.has(two));
    const mine = all.filter((one) => !items.includes(one));
    const choices = mine.length * left.length;
    if (choices > 1 && choices < MAX_COMPARISONS) {
      const twos = withWords(left);
      const pairs = withWords(mine).flatMap(([one, words]) =>
        twos.map(([two, others]) => ({ one, two, likeness: likenessOf(words, others) })),
      );
      for (const { one, two } of pairs.sort((a, b) => b.likeness - a.likeness)) {
        if (free.has(one) && !matches.has(two) && kindOf(one) === kindOf(two)) match(two, one);
      }
    }
    by(kindOf, mine, left);
  };
  let [start, position] = [0, 0];
  for (let end = 0; end <= next.length; end += 1) {
    const one = matches.get(next[end] as Node);
    if (end < next.length && one === undefined) continue;
    const at = one === undefined ? old.length : old.indexOf(one);
    if (at >= position) {
      rest(start, end, old.slice(position, at));
      [start, position] = [end + 1, at + 1];
    }
  }
  // Nodes that have changed both their position and their content.
  rest(0, next.length, old, true);
  return matches;
}

function grouped(nodes: readonly Node[], keyOf: (node: Node) => string): Map<string, Node[]> {
  const groups = new Map<string, Node[]>();
  for (const node of nodes) {
    const key = keyOf(node);
    if (groups.get(key)?.push(node) === undefined) groups.set(key, [node]);
  }
  return groups;
}

/** The keys that several nodes of one of the lists have. */
function repeatedKeys(
  keyOf: (node: Node) => string,
  ...lists: readonly (readonly Node[])[]
): ReadonlySet<string> {
  const groups = lists.flatMap((nodes) => [...grouped(nodes, keyOf)]);
  return new Set(groups.flatMap(([key, nodes]) => (nodes.length > 1 ? key : [])));
}

/** Tells which nodes are items of a list: others have the same fields. */
export function itemsOf(...lists: readonly (readonly Node[])[]): (node: Node) => boolean {
  let keys: ReadonlySet<string> | undefined;
  return (node) => (keys ??= repeatedKeys(listKeyOf, ...lists)).has(listKeyOf(node));
}

/** Matches items in which the visitor works with their new versions, where these are certain. */
function matchItems(
  items: readonly Node[],
  old: readonly Node[],
  next: readonly Node[],
  match: (two: Node, one: Node) => void,
): void {
  if (items.length === 0) return;
  const [before, after] = [grouped(old, kindOf), grouped(next, kindOf)];
  const isFew = items.length * (old.length + next.length) < MAX_ITEM_COMPARISONS;
  const words = isFew ? new Map(withWords([...old, ...next])) : null;
  const found = new Set<Node>();
  for (const one of items) {
    const kind = kindOf(one);
    const two = sameItem(one, before.get(kind) ?? [], after.get(kind) ?? [], words);
    if (two === undefined || found.has(two)) continue;
    found.add(two);
    match(two, one);
  }
}

/**
 * The new version of an item: the one in its place if the visitor sees no difference, the only one that may be it unless
 * its form is for another record, or the one that is clearly the likest.
 *
 * @param ones the old nodes of its kind
 * @param twos the new ones
 * @param words of all these nodes; null if there are too many to compare, so that the order decides
 */
function sameItem(
  one: Node,
  ones: readonly Node[],
  twos: readonly Node[],
  words: ReadonlyMap<Node, Words> | null,
): Node | undefined {
  const level = ones.length === twos.length ? twos[ones.indexOf(one)] : undefined;
  if (words === null || level?.textContent === one.textContent) return level;
  if (twos.length === 1 && level !== undefined) {
    return recordOf(one) === recordOf(level) ? level : undefined;
  }
  const like = (old: Node, two: Node): number =>
    likenessOf(words.get(old) ?? new Set(), words.get(two) ?? new Set());
  const likeness = twos.map((two) => like(one, two));
  const most = likeness.reduce((one, other) => Math.max(one, other), 0);
  const best = twos[likeness.indexOf(most)];
  const isOnly = likeness.indexOf(most) === likeness.lastIndexOf(most);
  if (best === undefined || !isOnly) return undefined;
  return ones.every((rival) => rival === one || like(rival, best) < most) ? best : undefined;
}

/** Values that tell the records of a list apart. Longer ones are tokens, which differ in each response. */
function recordOf(node: Node): string {
  if (!isElement(node)) return '';
  const values = [...node.querySelectorAll('form,button,[type=hidden]')].flatMap((one) =>
    ['action', 'formaction', 'value'].map((name) => one.getAttribute(name) ?? ''),
  );
  return values.filter((value) => value.length < TOKEN_LENGTH).join();
}

/** The only thing that tells many a wrapper of a form from its siblings. */
function formKeyOf(node: Node): string {
  return [kindOf(node), fieldsIn(node)].join();
}

/** The same for the items of a list, whose fields may have numbers in their names. */
function listKeyOf(node: Node): string {
  return formKeyOf(node).replaceAll(/\d+/g, '');
}

/** Only nodes of one kind can be the same. */
function kindOf(node: Node): string {
  return [node.nodeName, idOf(node)].join();
}

/** The identity of an element. A different element must not take its place. */
export function idOf(node: Node): string {
  if (!isElement(node)) return '';
  return IDS.map((name) => node.getAttribute(name)).find(Boolean) ?? '';
}

type Words = ReadonlySet<string>;

function withWords(nodes: readonly Node[]): (readonly [Node, Words])[] {
  return nodes
    .filter((node) => !isBlank(node))
    .map((node) => [node, new Set(textOf(node).split(/\W+/, MAX_WORDS))]);
}

/** The share of the words that two nodes have in common. */
function likenessOf(one: Words, two: Words): number {
  return [...one].filter((word) => two.has(word)).length / (one.size + two.size);
}

/** The names of the fields in a node. */
export function fieldsIn(node: Node): string {
  const fields = isElement(node) ? node.querySelectorAll(ENTRIES) : [];
  return [...fields].map((field) => field.getAttribute('name')).join('');
}

/** White space between elements, and what is not among the children of a shown element. */
export function isBlank(node: Node): boolean {
  const isText = node instanceof Text && node.data.trim() === '';
  return isText || node instanceof Comment || isShadow(node);
}

/** The HTML of an element, or the text of another node. */
export function textOf(node: Node): string {
  return isElement(node) ? node.outerHTML : [node.nodeName, node.textContent].join();
}

/** The longest part of a list, in its order, whose values increase. */
export function longestIncreasing<T>(items: readonly T[], valueOf: (item: T) => number): T[] {
  /** By length: the smallest end of all sequences with that length. Most items belong at the end. */
  const ends: End<T>[] = [];
  for (const member of items) {
    const value = valueOf(member);
    const length = ends.findLastIndex((end) => end.value < value) + 1;
    ends[length] = { member, value, before: ends[length - 1] };
  }
  const found: T[] = [];
  for (let end = ends.at(-1); end !== undefined; end = end.before) found.push(end.member);
  return found;
}

interface End<T> {
  readonly member: T;
  readonly value: number;
  readonly before: End<T> | undefined;
}
