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
    const queues = new Map<string, Node[]>();
    for (const one of ones) {
      const key = free.has(one) ? keyOf(one) : '';
      if (key !== '' && queues.get(key)?.push(one) === undefined) queues.set(key, [one]);
    }
    for (const two of twos) {
      if (matches.has(two)) continue;
      const one = queues.get(keyOf(two))?.shift();
      if (one !== undefined) match(two, one);
    }
  };
  by((node) => idOf(node) && kindOf(node));
  by((node) => (isBlank(node) ? '' : textOf(node)));
  // Another element must not take the place of the only one with a form in which the visitor may be working.
  const repeated = repeatedKeys(formKeyOf, old, next);
  let listed: ReadonlySet<string> | undefined;
  const isItem = (one: Node): boolean =>
    (listed ??= repeatedKeys(listKeyOf, old, next)).has(listKeyOf(one));
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
    for (const one of isMoved ? [] : items) {
      const two = sameItem(one, all, others);
      if (two !== undefined && !matches.has(two)) match(two, one);
    }
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

/** The keys that several nodes of a list have. */
export function repeatedKeys(
  keyOf: (node: Node) => string,
  ...lists: readonly (readonly Node[])[]
): ReadonlySet<string> {
  return new Set(
    lists.flatMap((nodes) => {
      const keys = nodes.map(keyOf).sort();
      return keys.filter((key, index) => key === keys[index + 1]);
    }),
  );
}

/**
 * The new version of an item: the one in its place if the visitor sees no difference, the only one that may be it unless
 * its form is for another record, or the one that is clearly the likest.
 */
function sameItem(one: Node, old: readonly Node[], next: readonly Node[]): Node | undefined {
  const isLike = (node: Node): boolean => kindOf(node) === kindOf(one);
  const ones = old.filter(isLike);
  const twos = next.filter(isLike);
  const level = ones.length === twos.length ? twos[ones.indexOf(one)] : undefined;
  if (level?.textContent === one.textContent) return level;
  if (twos.length === 1 && level !== undefined) {
    return recordOf(one) === recordOf(level) ? level : undefined;
  }
  const [own] = withWords([one]);
  const like = (a: NodeWords | undefined, b: NodeWords | undefined): number =>
    a === undefined || b === undefined ? 0 : likenessOf(a[1], b[1]);
  const [best, second] = withWords(twos).sort((a, b) => like(own, b) - like(own, a));
  const likeness = like(own, best);
  const rivals = withWords(ones.filter((node) => node !== one));
  const isClear =
    likeness > like(own, second) && rivals.every((rival) => like(rival, best) < likeness);
  return isClear ? best?.[0] : undefined;
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
export function listKeyOf(node: Node): string {
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
type NodeWords = readonly [node: Node, words: Words];

function withWords(nodes: readonly Node[]): NodeWords[] {
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
