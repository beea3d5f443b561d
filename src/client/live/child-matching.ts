/*
 * Matches the children of the last response with those of the next: by `id`, then by equality, then by
 * the fields in them, then by attributes that act as keys, then by the visible text, then by likeness, then by
 * name and position. In a list, the records come after equality: an element that shows one record is never used for
 * another. What the visitor and scripts have made of it, such as an open dialog, would act on that other one. Where the
 * visitor works, the records also decide between items with the same text.
 */
import { isElement, isGone, isShadow } from './sent-document.ts';
import { ENTRIES } from './visitor-state.ts';

const IDS = 'id data-id data-key key'.split(' ');
const KEYS = 'name action for value href src'.split(' ');
/** Comparisons of nodes by their words between two matched positions. Beyond it, the order decides. */
const MAX_COMPARISONS = 10_000;
/** Characters of the shortest usual token against forged requests. A UUID has 36. */
const TOKEN_LENGTH = 40;
/** Comparisons of items in which the visitor works with all items. Beyond it, the order decides as well. */
const MAX_ITEM_COMPARISONS = 100_000;
/** How many nodes with the same key are tried for one that is not of another record. */
const MAX_TRIED = 20;
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
      const queue = (key === '' ? undefined : queues.get(key)) ?? [];
      const one = queue.slice(0, MAX_TRIED).find((other) => !areOthers(other, two));
      if (one === undefined) continue;
      queue.splice(queue.indexOf(one), 1);
      match(two, one);
    }
  };
  const isItem = itemsOf(old, next);
  // Fields and the cells of a row are parts of a record.
  const isRecord = (node: Node): boolean =>
    isElement(node) && !/^(?:INPUT|SELECT|TEXTAREA|T[DH])$/.test(node.nodeName) && isItem(node);
  let records: Records | null = null;
  const areOthers = (one: Node, two: Node): boolean =>
    // What a script has removed shows no record any more. What stands for it now is the script's.
    records !== null &&
    !isGone(one) &&
    isRecord(one) &&
    isRecord(two) &&
    records.differ(one, two, ALL_LEVELS);
  by((node) => idOf(node) && kindOf(node));
  by((node) => (isBlank(node) ? '' : textOf(node)));
  // Another element must not take the place of the only one with a form in which the visitor may be working.
  const repeated = repeatedKeys(formKeyOf, old, next);
  const isFree = (one: Node): boolean => free.has(one) && !isEntry(one);
  const isNew = (two: Node): boolean => !matches.has(two);
  const working = new Set(old.filter((one) => free.has(one) && isAtWork(one) && isItem(one)));
  const left = old.filter((one) => free.has(one) && isRecord(one));
  if (working.size > 0 || (left.length > 0 && next.some((two) => isNew(two) && isRecord(two)))) {
    records = new Records(old, next);
    for (const level of LEVELS) {
      const ones = left.filter((one) => free.has(one));
      for (const [one, two] of records.sameIn(level, ones, next.filter(isNew))) match(two, one);
    }
  }
  const idle = old.filter((one) => !working.has(one) || isEntry(one));
  if (records !== null && working.size > 0) {
    // Two items may have the same text. Each keeps the place of its record, also those in which nobody works.
    for (const keyOf of [everythingOf, textKeyOf]) {
      const twos = grouped(next.filter(isNew), keyOf);
      for (const [key, group] of grouped(old.filter(isFree), keyOf)) {
        const others = twos.get(key) ?? [];
        const isClear = group.length === 1 || keyOf === everythingOf;
        if (key === '' || !isClear || group.length !== others.length) continue;
        group.forEach((one, index) => {
          const two = others[index] as Node;
          if (!records?.differ(one, two)) match(two, one);
        });
      }
    }
  }
  by((node) => (repeated.has(formKeyOf(node)) ? '' : formKeyOf(node)), idle);
  by((node) => {
    const key = isElement(node) && KEYS.find((name) => node.hasAttribute(name));
    return key ? [node.nodeName, key, node.getAttribute(key)].join() : '';
  }, idle);
  // Tokens and revisions may differ in each response, but visitors do not see them.
  by(textKeyOf, idle);
  let labelsOnce: ReadonlyMap<Node, Words> | undefined;
  const labels = (): ReadonlyMap<Node, Words> =>
    (labelsOnce ??= labelsOf([old, next].map((list) => list.filter(isItem))));
  // The remaining nodes are between matched ones. The likest are matched first, equally like ones in their order.
  const rest = (from: number, to: number, ones: readonly Node[], isMoved = false): void => {
    // An item at another place, with other content, is another one: its scripts would act on the one before.
    const all = ones.filter((one) => free.has(one) && !(isMoved && isRecord(one)));
    const items = all.filter((one) => working.has(one));
    const others = next.slice(from, to).filter((two) => !matches.has(two));
    if (!isMoved && records !== null) matchItems(items, all, others, labels, records, match);
    const left = others.filter((two) => !matches.has(two));
    const mine = all.filter((one) => !items.includes(one));
    const choices = mine.length * left.length;
    if (choices > 1 && choices < MAX_COMPARISONS) {
      const twos = withWords(left);
      const pairs = withWords(mine).flatMap(([one, words]) =>
        twos.map(([two, others]) => ({ one, two, likeness: likenessOf(words, others) })),
      );
      for (const { one, two } of pairs.sort((a, b) => b.likeness - a.likeness)) {
        const isPair = free.has(one) && !matches.has(two) && kindOf(one) === kindOf(two);
        if (isPair && !areOthers(one, two)) match(two, one);
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
  let items: ReadonlySet<Node> | undefined;
  const read = (): ReadonlySet<Node> => {
    const keys = new Map(lists.flat().map((node) => [node, listKeyOf(node)]));
    const keyOf = (node: Node): string => keys.get(node) ?? '';
    const repeated = repeatedKeys(keyOf, ...lists);
    return new Set(lists.flat().filter((node) => repeated.has(keyOf(node))));
  };
  return (node) => (items ??= read()).has(node);
}

/** Matches items in which the visitor works with their new versions, where these are certain. */
function matchItems(
  items: readonly Node[],
  old: readonly Node[],
  next: readonly Node[],
  labels: () => ReadonlyMap<Node, Words>,
  records: Records,
  match: (two: Node, one: Node) => void,
): void {
  const [before, after] = [grouped(old, kindOf), grouped(next, kindOf)];
  const isFew = items.length * (old.length + next.length) < MAX_ITEM_COMPARISONS;
  const found = new Set<Node>();
  for (const one of items) {
    const [ones = [], twos = []] = [before, after].map((nodes) => nodes.get(kindOf(one)));
    const two = sameItem(one, ones, twos, isFew ? labels() : null, records);
    if (two === undefined || found.has(two)) continue;
    found.add(two);
    match(two, one);
  }
}

/**
 * The new version of an item: the one that shares most of what the visitor reads in it, if that is more than half, and
 * that is not of another record. Without anything to read, it is the one in its place.
 *
 * @param ones the old nodes of its kind
 * @param twos the new ones
 * @param labels of all items; null if there are too many to compare, so that the order decides
 */
function sameItem(
  one: Node,
  ones: readonly Node[],
  twos: readonly Node[],
  labels: ReadonlyMap<Node, Words> | null,
  records: Records,
): Node | undefined {
  const place = ones.length === twos.length ? twos[ones.indexOf(one)] : undefined;
  const level = place && !records.differ(one, place) ? place : undefined;
  if (labels === null || isEntry(one)) return level;
  const alike = twos.filter((two) => !records.differ(one, two));
  const wordsOf = (node: Node): Words => labels.get(node) ?? new Set();
  const share = (old: Node, two: Node): number => {
    const [was, is] = [wordsOf(old), wordsOf(two)];
    return [...was].filter((word) => is.has(word)).length / Math.max(was.size, is.size);
  };
  if (wordsOf(one).size === 0) return level && wordsOf(level).size === 0 ? level : undefined;
  const most = Math.max(...alike.map((two) => share(one, two)));
  const likest = alike.filter((two) => share(one, two) === most);
  const best = likest.find((two) => two === level) ?? likest[0];
  if (best === undefined || most <= 0.5 || (best !== level && likest.length > 1)) return undefined;
  const isRival = (other: Node): boolean =>
    other !== one && share(other, best) >= most && (best !== level || share(other, best) > most);
  return ones.some(isRival) ? undefined : best;
}

/** The words that the visitor reads in each item, without those that are in all items of a list in the last or the next page. */
function labelsOf(lists: readonly (readonly Node[])[]): ReadonlyMap<Node, Words> {
  const labels = new Map<Node, Words>();
  for (const items of grouped(lists.flat(), listKeyOf).values()) {
    const words = new Map(
      items.map((node) => [node, new Set(labelOf(node).split(/[\s\p{P}]+/u, MAX_WORDS))]),
    );
    const common = lists.flatMap((list) => {
      const [first, ...others] = list.flatMap((node) => words.get(node) ?? []);
      // All words are common to a list of one item.
      if (first === undefined || others.length === 0) return [];
      return [...first].filter((word) => others.every((one) => one.has(word)));
    });
    for (const [node, all] of words) {
      const own = [...all].filter((word) => word !== '' && !common.includes(word));
      // A number beside a name is more likely a count or a time.
      const names = own.filter((word) => !/\d/.test(word));
      labels.set(node, new Set(names.length > 0 ? names : own));
    }
  }
  return labels;
}

/** Whether a node is a field itself. */
function isEntry(node: Node): boolean {
  return isElement(node) && node.matches(ENTRIES);
}

/** The texts in a node, the values of its fields, and its images without what signs their addresses. */
function labelOf(node: Node): string {
  const values = attributesIn(node).flatMap(([one, name, value]) => {
    if (name === 'src') return value.split('?', 1);
    const isRead = name === 'alt' || (name === 'value' && !one.matches(UNREAD));
    return isRead ? value : [];
  });
  return [...textsIn(node), ...values].join(' ');
}

function textsIn(node: Node): (string | null)[] {
  return node.hasChildNodes() ? [...node.childNodes].flatMap(textsIn) : [node.nodeValue];
}

const UNREAD = 'button,[type=hidden],[type=checkbox],[type=radio]';
/** The names of values that differ in each response or with each change. */
const CHANGING =
  /(?:^|[^a-z])(?:at|count|csrf|date|etag|expires|index|lock|nonce|order|position|rev|revision|sig|signature|stamp|status|time|timestamp|token|version|xsrf)(?:$|[^a-z])/i;
/** Attributes that say to which record of the app an element belongs. */
const OF_RECORDS =
  /^(?:action|formaction|href|(?:data-)?hx-(?:delete|get|patch|post|put)|phx-value-.*|wire:.*|data-(?:.*-)?(?:id|key|pk|slug|url|uuid))$/;
/** Attributes with what a script does with a record, or knows of it. */
const OF_SCRIPTS = /^(?:x-data|v-scope|hx-vals|(?:on|@|v-on:|x-on:).*)$/;
/** From the surest to the least sure sign: numbers in such attributes, their other parts, and values that nobody reads. */
const LEVELS = [0, 1, 2] as const;
/** Signs that may change with a record. They only tell items apart in which nobody works. */
const WEAK = 3;
const ALL_LEVELS = [...LEVELS, WEAK] as const;

/** What names the records of a list: parts of attributes that only one of the old and one of the new items has. */
class Records {
  readonly #signs = new Map<Node, readonly ReadonlySet<string>[]>();

  constructor(old: readonly Node[], next: readonly Node[]) {
    for (const list of [old, next]) this.#read(list);
  }

  #read(list: readonly Node[]): void {
    const all = new Map(list.map((node) => [node, signsOf(node)]));
    for (const level of ALL_LEVELS) {
      const repeated = repeatedIn([...all.values()].flatMap((signs) => [...(signs[level] ?? [])]));
      for (const { [level]: signs } of all.values()) {
        for (const sign of signs ?? []) if (repeated.has(sign)) signs?.delete(sign);
      }
    }
    for (const [node, signs] of all) this.#signs.set(node, signs);
  }

  #of(node: Node, level: number): ReadonlySet<string> {
    return this.#signs.get(node)?.[level] ?? new Set();
  }

  /** Whether both have signs of these levels, but none in common. */
  differ(one: Node, two: Node, levels: readonly number[] = LEVELS): boolean {
    const both = levels.filter((at) => this.#of(one, at).size > 0 && this.#of(two, at).size > 0);
    const isShared = both.some((at) =>
      [...this.#of(one, at)].some((it) => this.#of(two, at).has(it)),
    );
    return both.length > 0 && !isShared;
  }

  /** The pairs that share more signs of a level with each other than with any other node. */
  sameIn(level: number, old: readonly Node[], next: readonly Node[]): (readonly [Node, Node])[] {
    const holders = new Map(
      next.flatMap((two) => [...this.#of(two, level)].map((it) => [it, two])),
    );
    const favourites = new Map<Node, Node>();
    for (const one of old) {
      const votes = new Map<Node, number>();
      for (const sign of this.#of(one, level)) {
        const two = holders.get(sign);
        if (two !== undefined) votes.set(two, (votes.get(two) ?? 0) + 1);
      }
      const [first, second] = [...votes].sort((a, b) => b[1] - a[1]);
      const isClear = first !== undefined && first[1] > (second?.[1] ?? 0);
      if (isClear && kindOf(first[0]) === kindOf(one)) favourites.set(one, first[0]);
    }
    const repeated = repeatedIn([...favourites.values()]);
    return [...favourites].filter(([, two]) => !repeated.has(two));
  }
}

function repeatedIn<T>(values: readonly T[]): ReadonlySet<T> {
  const [seen, repeated] = [new Set<T>(), new Set<T>()];
  for (const value of values) (seen.has(value) ? repeated : seen).add(value);
  return repeated;
}

/** The signs of the record of a node, by level. */
function signsOf(node: Node): readonly Set<string>[] {
  const signs = ALL_LEVELS.map(() => new Set<string>());
  for (const [one, name, value] of attributesIn(node)) {
    if (OF_RECORDS.test(name)) {
      for (const [at, part] of value.split(/[/?&#]/).entries()) {
        if (!part.includes('=') || !CHANGING.test(part.split('=', 1).join())) {
          signs[/\d/.test(part) ? 0 : 1]?.add([name, at, part].join());
        }
      }
    } else if (OF_SCRIPTS.test(name)) {
      signs[WEAK]?.add([name, value].join());
    } else if (name === 'value' && one.matches(UNREAD)) {
      const field = one.getAttribute('name') ?? '';
      const isToken = value.length >= TOKEN_LENGTH || CHANGING.test(field);
      if (isToken) continue;
      const sign = [field.replaceAll(/\d+/g, ''), value].join();
      signs[WEAK]?.add(sign);
      if (/\d/.test(value)) signs[2]?.add(sign);
    }
  }
  return signs;
}

/** The attributes of an element and of those in it. */
function attributesIn(node: Node): (readonly [Element, string, string])[] {
  if (!isElement(node)) return [];
  return [node, ...node.querySelectorAll('*')].flatMap((one) =>
    [...one.attributes].map(({ name, value }) => [one, name, value] as const),
  );
}

/** All that the visitor reads in an item; empty for a text or white space between elements. */
function everythingOf(node: Node): string {
  return isElement(node) ? [kindOf(node), labelOf(node)].join() : '';
}

/** The text of an element that has any. */
function textKeyOf(node: Node): string {
  return isElement(node) && node.textContent.trim() !== '' ? kindOf(node) + node.textContent : '';
}

/** The only thing that tells many a wrapper of a form from its siblings. */
function formKeyOf(node: Node): string {
  const fields = isElement(node) ? [...node.querySelectorAll(ENTRIES)] : [];
  return [kindOf(node), ...fields.map((one) => one.getAttribute('name') ?? one.localName)].join();
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
