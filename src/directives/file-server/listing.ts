import { lstat, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { answer } from '../../http/answer.ts';
import { HttpError } from '../../http/errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { escaped, page, PAGE_POLICY } from '../../http/page.ts';
import { fairShareNetwork } from '../../http/rate-limits.ts';
import { decodePath, pathOf } from '../../http/request-path.ts';
import { FairQueue } from '../../kernel/semaphore.ts';
import type { Budget, Scheduler } from '../../kernel/scheduler.ts';
import { errorStatus } from '../../http/request-variables.ts';
import { queryOf } from '../../site/placeholders.ts';
import { type HidesFile, siteFile, siteNames, unreadable } from '../../site/site-files.ts';
import { LISTING_ORDERS, LISTING_SORTS, type ListingSettings, MAX_LISTED } from './data.ts';
import type { FilePlace } from './hidden-names.ts';

/** Entries of a listing that are looked up at the same time. */
const AT_ONCE = 32;

/**
 * The listings of this process, which take up to half a second each and use most threads for files. Each client
 * network gets one of the two places, in turns.
 */
const turns = new FairQueue({
  places: 2,
  unknownPlaces: 2,
  placesPerUnknown: 1,
  maxWaiting: 1_000,
});

interface ListedDirectory extends FilePlace {
  readonly status: number | null;
}

/**
 * Lists a directory, as a page or as JSON (RFC 9110 §12.5.1), in the order of the query.
 *
 * @throws HttpError 499 if the client leaves before; 503 if too many listings are waiting
 */
export async function answerListing(
  exchange: Exchange,
  directory: ListedDirectory,
  usual: ListingSettings,
  scheduler: Scheduler,
): Promise<void> {
  const giveBack = await turnOf(exchange);
  try {
    await list(exchange, directory, usual, scheduler);
  } finally {
    giveBack();
  }
}

async function turnOf({ clientAddress, signal }: Exchange): Promise<() => void> {
  try {
    return await turns.take(fairShareNetwork(clientAddress), false, signal);
  } catch (cause) {
    if (signal.aborted) throw clientLeft();
    throw new HttpError(503, 'too many directories are being listed', { cause });
  }
}

function clientLeft(): HttpError {
  return new HttpError(499, 'the client left');
}

async function list(
  exchange: Exchange,
  directory: ListedDirectory,
  usual: ListingSettings,
  scheduler: Scheduler,
): Promise<void> {
  const query = queryOf(exchange);
  const sort = LISTING_SORTS.find((one) => one === query.get('sort')) ?? usual.sort;
  const order = LISTING_ORDERS.find((one) => one === query.get('order')) ?? usual.order;
  const { limit } = usual;
  const { entries, isWhole } = await entriesOf(directory, exchange.signal);
  const ascending = await scheduler.compute((budget) => sorted(entries, comparison(sort), budget));
  const inOrder = order === 'desc' ? ascending.toReversed() : ascending;
  const offset = whole(query.get('offset')) ?? 0;
  const shown = inOrder.slice(offset, offset + (whole(query.get('limit')) ?? limit));
  const crumbs = crumbsOf(visiblePath(exchange), directory.names);
  const isComplete = isWhole && shown.length === entries.length;
  const part = isComplete ? null : { offset, count: shown.length };
  const listing = { crumbs, part, sort, order } as const;
  const status = directory.status ?? (errorStatus(exchange) || 200);
  const fields = {
    vary: 'Accept',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-cache',
  };
  if (/\bapplication\/json\b/i.test(exchange.headers.combined('accept') ?? '')) {
    const all = await scheduler.compute((budget) => texts(shown, asJson, budget));
    answer(exchange, status, { ...fields, 'content-type': 'application/json' }, `[${all.join()}]`);
    return;
  }
  const type = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': PAGE_POLICY,
  };
  const rows = await scheduler.compute((budget) => texts(shown, row, budget));
  answer(exchange, status, { ...fields, ...type }, listingPage(listing, rows));
}

/** More than are shown, because only their order decides which those are. */
async function entriesOf(
  { root, names, isHidden, hidesFile }: ListedDirectory,
  signal: AbortSignal,
): Promise<{ entries: Entry[]; isWhole: boolean }> {
  const found: string[] = [];
  const directory = await opendir(join(root, ...names)).catch((cause: unknown) => {
    throw unreadable(cause);
  });
  let isWhole = true;
  for await (const { name } of directory) {
    if (siteNames(name) === null || isHidden([...names, name])) continue;
    isWhole = found.length < MAX_LISTED;
    if (!isWhole) break;
    found.push(name);
  }
  const entries: Entry[] = [];
  for (let at = 0; at < found.length; at += AT_ONCE) {
    if (signal.aborted) throw clientLeft();
    const some = found
      .slice(at, at + AT_ONCE)
      .map(async (name) => entryOf(root, [...names, name], hidesFile));
    entries.push(...(await Promise.all(some)).filter((entry) => entry !== null));
  }
  return { entries, isWhole };
}

/** Returns null if the entry has been removed, is hidden, cannot be read, or leads out of the root. */
async function entryOf(
  root: string,
  names: readonly string[],
  hidesFile: HidesFile,
): Promise<Entry | null> {
  try {
    const { stats } = await siteFile(root, names, hidesFile);
    const isSymlink = (await lstat(join(root, ...names))).isSymbolicLink();
    const isDirectory = stats.isDirectory();
    const name = `${names.at(-1) ?? ''}${isDirectory ? '/' : ''}`;
    return {
      name,
      folded: name.toLowerCase(),
      size: stats.size,
      modified: stats.mtime,
      mode: stats.mode,
      isDirectory,
      isSymlink,
    };
  } catch {
    // A client does not see what it could not fetch.
    return null;
  }
}

function comparison(sort: Sort): (a: Entry, b: Entry) => number {
  const byName = (a: Entry, b: Entry): number =>
    compareNaturally(a.folded, b.folded) || compare(a.name, b.name);
  switch (sort) {
    case 'name':
      return byName;
    case 'namedirfirst':
      return (a, b) => Number(b.isDirectory) - Number(a.isDirectory) || byName(a, b);
    case 'size':
      return (a, b) =>
        Number(b.isDirectory) - Number(a.isDirectory) || a.size - b.size || byName(a, b);
    case 'time':
      return (a, b) => a.modified.getTime() - b.modified.getTime() || byName(a, b);
  }
}

const DIGITS = /\d+/y;

/** Compares numbers in names by their value: `chapter 2` comes before `chapter 10`. */
export function compareNaturally(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at += 1;
  // A number may begin before the first difference.
  while (at > 0 && isDigit(a, at - 1)) at -= 1;
  const [one, other] = [digitsAt(a, at), digitsAt(b, at)];
  if (one === '' || other === '') return compare(a.slice(at), b.slice(at));
  const [small, large] = [one.replace(/^0+/, ''), other.replace(/^0+/, '')];
  return (
    small.length - large.length ||
    compare(small, large) ||
    compareNaturally(a.slice(at + one.length), b.slice(at + other.length)) ||
    compare(a, b)
  );
}

function isDigit(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 48 && code <= 57;
}

function digitsAt(text: string, at: number): string {
  DIGITS.lastIndex = at;
  return DIGITS.exec(text)?.[0] ?? '';
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,6}$/.test(text) ? Number(text) : null;
}

/** The members of Caddy's listing. */
function asJson({ name, size, modified, mode, isDirectory, isSymlink }: Entry): string {
  return JSON.stringify({
    name,
    size,
    url: entryUrl(name),
    mod_time: modified.toISOString(),
    mode: mode & 0o777,
    is_dir: isDirectory,
    is_symlink: isSymlink,
  });
}

type Sort = ListingSettings['sort'];

interface Entry {
  /** The name of a directory ends with `/`. */
  readonly name: string;
  /** The name in lower case, for sorting. */
  readonly folded: string;
  /** Bytes. */
  readonly size: number;
  readonly modified: Date;
  readonly mode: number;
  readonly isDirectory: boolean;
  readonly isSymlink: boolean;
}

interface Listing {
  readonly crumbs: readonly Crumb[];
  /** The entries that are shown; null for all. */
  readonly part: { readonly offset: number; readonly count: number } | null;
  readonly sort: Sort;
  readonly order: 'asc' | 'desc';
}

/** A part of the path with its link; null for the listed directory itself. */
interface Crumb {
  readonly text: string;
  readonly href: string | null;
}

/** The path that the client sees, decoded, including a prefix that was removed. */
function visiblePath({ originalTarget }: Exchange): string {
  return decodePath(pathOf({ target: originalTarget }));
}

/** Links lead up to the root of the files, not above it. */
function crumbsOf(path: string, names: readonly string[]): readonly Crumb[] {
  const below = names.map((name) => `${name}/`).join('');
  // If the path was rewritten to another name, its directories are unknown.
  if (names.length === 0 || !path.endsWith(`/${below}`)) return [{ text: path, href: null }];
  const top = path.slice(0, path.length - below.length);
  return [top, ...names.map((name) => `${name}/`)].map((text, index) => ({
    text,
    href: index === names.length ? null : '../'.repeat(names.length - index),
  }));
}

/** Relative, so that no name can be mistaken for a scheme. */
function entryUrl(name: string): string {
  const bare = name.endsWith('/') ? name.slice(0, -1) : name;
  return `./${encodeURIComponent(bare)}${bare === name ? '' : '/'}`;
}

/** Entries that are sorted at once. */
const RUN = 500;
/** Approximate cost of comparing two names, in steps, and number of comparisons for each entry of a run. */
const COMPARISON_STEPS = 15;
const RUN_COMPARISONS = 9;
/** Approximate cost of the text of an entry, in steps. */
const TEXT_STEPS = 300;

/** Sorts like `Array.prototype.sort`; yields when the budget is used up. */
export function* sorted<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  budget: Budget,
): Generator<void, readonly T[], void> {
  let runs: (readonly T[])[] = [];
  for (let at = 0; at < items.length; at += RUN) {
    if (budget.isSpent) yield;
    const run = items.slice(at, at + RUN).sort(compare);
    budget.spend(run.length * RUN_COMPARISONS * COMPARISON_STEPS);
    runs.push(run);
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(yield* merge(runs[at] ?? [], runs[at + 1] ?? [], compare, budget));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

function* merge<T>(
  some: readonly T[],
  others: readonly T[],
  compare: (a: T, b: T) => number,
  budget: Budget,
): Generator<void, readonly T[], void> {
  const merged: T[] = [];
  let other = 0;
  for (const one of some) {
    for (let next = others[other]; next !== undefined; next = others[other]) {
      if (budget.isSpent) yield;
      budget.spend(COMPARISON_STEPS);
      if (compare(one, next) <= 0) break;
      merged.push(next);
      other += 1;
    }
    merged.push(one);
  }
  return merged.concat(others.slice(other));
}

/** The texts of all items; yields when the budget is used up. */
export function* texts<T>(
  items: readonly T[],
  textOf: (item: T) => string,
  budget: Budget,
): Generator<void, string[], void> {
  const all: string[] = [];
  for (const item of items) {
    if (budget.isSpent) yield;
    budget.spend(TEXT_STEPS);
    all.push(textOf(item));
  }
  return all;
}

const COLUMNS: readonly (readonly [sort: Sort, title: string, style: string])[] = [
  ['namedirfirst', 'Name', ''],
  ['size', 'Size', 'number'],
  ['time', 'Modified (UTC)', 'moment'],
];

/**
 * A directory as a table that is sorted by links, without a script.
 *
 * @param rows of its entries; see {@link row}
 */
function listingPage(listing: Listing, rows: readonly string[]): string {
  const { crumbs, part } = listing;
  const path = crumbs.map(({ text }) => text).join('');
  const more = part === null ? '' : `<p>${partText(part)}</p>\n`;
  const table =
    rows.length === 0 && part === null
      ? '<p class="empty">This folder is empty.</p>\n'
      : `<table>
<thead><tr>${COLUMNS.map((column) => heading(column, listing)).join('')}</tr></thead>
<tbody>
${rows.join('')}</tbody>
</table>
`;
  return page(
    `Index of ${path}`,
    `<h1>Index of ${crumbs.map(crumb).join('')}</h1>\n${table}${more}`,
  );
}

function partText({ offset, count }: NonNullable<Listing['part']>): string {
  if (count === 0) return 'None of the entries is listed.';
  if (offset === 0) return `Only the first ${count} entries are listed.`;
  return `Only the ${count} entries after the first ${offset} are listed.`;
}

function crumb({ text, href }: Crumb): string {
  if (href === null) return escaped(text);
  const up = href === '../' ? ' rel="up"' : '';
  return `<a href="${href}"${up}>${escaped(text)}</a>`;
}

function heading([sort, title, style]: (typeof COLUMNS)[number], listing: Listing): string {
  const isSorted = listing.sort === sort || (listing.sort === 'name' && sort === 'namedirfirst');
  const isAscending = listing.order === 'asc';
  const next = isSorted && isAscending ? 'desc' : 'asc';
  const now = isSorted ? ` aria-sort="${isAscending ? 'ascending' : 'descending'}"` : '';
  const arrow = isSorted ? ` <span aria-hidden="true">${isAscending ? '▲' : '▼'}</span>` : '';
  const type = style === '' ? '' : ` class="${style}"`;
  return `<th scope="col"${type}${now}><a href="./?sort=${sort}&amp;order=${next}">${title}</a>${arrow}</th>`;
}

function row({ name, size, modified, isDirectory }: Entry): string {
  const time = modified.toISOString();
  return `<tr><td><a href="${escaped(entryUrl(name))}">${escaped(name)}</a></td><td class="number">${isDirectory ? '' : shortSize(size)}</td><td class="moment"><time datetime="${time}">${time.slice(0, 16).replace('T', ' ')}</time></td></tr>\n`;
}

function shortSize(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let amount = bytes;
  let unit = 0;
  for (; amount >= 1024 && unit < units.length - 1; unit += 1) amount /= 1024;
  return `${unit === 0 ? amount : amount.toFixed(1)} ${units[unit]}`;
}
