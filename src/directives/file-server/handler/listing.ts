import { lstat, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { answer } from '../../../http/answer.ts';
import type { Exchange } from '../../../http/exchange.ts';
import { PAGE_POLICY } from '../../../http/page.ts';
import type { Slices } from '../../../kernel/slices.ts';
import { errorStatus } from '../../../site/error-status.ts';
import { queryOf } from '../../../site/placeholders.ts';
import { type HidesFile, siteFile, siteNames, unreadable } from '../../../site/site-files.ts';
import { type Entry, entryUrl, type Sort, SORTS } from './entry.ts';
import type { IsHidden } from './hidden-names.ts';
import { sorted, texts } from './in-slices.ts';
import { listingPage, row } from './listing-page.ts';

/** Entries of a directory that are listed; what is beyond is only counted as being there. */
const MAX_ENTRIES = 10_000;
/** Entries that are looked at at once. */
const AT_ONCE = 32;

export interface ListedDirectory {
  readonly root: string;
  readonly names: readonly string[];
  readonly isHidden: IsHidden;
  readonly hidesFile: HidesFile;
  readonly status: number | null;
}

/** Lists a directory, as a page or as JSON (RFC 9110 §12.5.1), in the order that the query asks for. */
export async function answerListing(
  exchange: Exchange,
  directory: ListedDirectory,
  slices: Slices,
): Promise<void> {
  const query = queryOf(exchange);
  const sort = SORTS.find((one) => one === query.get('sort')) ?? 'namedirfirst';
  const order = query.get('order') === 'desc' ? 'desc' : 'asc';
  const { entries, isComplete } = await entriesOf(directory);
  const ascending = await slices.compute((meter) => sorted(entries, comparison(sort), meter));
  const inOrder = order === 'desc' ? ascending.toReversed() : ascending;
  const offset = whole(query.get('offset')) ?? 0;
  const shown = inOrder.slice(offset, offset + (whole(query.get('limit')) ?? MAX_ENTRIES));
  const listing = { names: directory.names, isComplete, sort, order } as const;
  const status = directory.status ?? (errorStatus(exchange) || 200);
  const fields = {
    vary: 'Accept',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-cache',
  };
  if (/\bapplication\/json\b/i.test(exchange.headers.combined('accept') ?? '')) {
    const all = await slices.compute((meter) => texts(shown, asJson, meter));
    answer(exchange, status, { ...fields, 'content-type': 'application/json' }, `[${all.join()}]`);
    return;
  }
  const type = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': PAGE_POLICY,
  };
  const rows = await slices.compute((meter) => texts(shown, row, meter));
  answer(exchange, status, { ...fields, ...type }, listingPage(listing, rows));
}

async function entriesOf({
  root,
  names,
  isHidden,
  hidesFile,
}: ListedDirectory): Promise<{ entries: Entry[]; isComplete: boolean }> {
  const found: string[] = [];
  const directory = await opendir(join(root, ...names)).catch((cause: unknown) => {
    throw unreadable(cause);
  });
  let isComplete = true;
  for await (const { name } of directory) {
    if (siteNames(name) === null || isHidden([...names, name])) continue;
    isComplete = found.length < MAX_ENTRIES;
    if (!isComplete) break;
    found.push(name);
  }
  const entries: Entry[] = [];
  for (let at = 0; at < found.length; at += AT_ONCE) {
    const some = found
      .slice(at, at + AT_ONCE)
      .map(async (name) => entryOf(root, [...names, name], hidesFile));
    entries.push(...(await Promise.all(some)).filter((entry) => entry !== null));
  }
  return { entries, isComplete };
}

/** null for what has gone, is hidden, cannot be read, or leads out of the root. */
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
    // What the client could not fetch is not shown to him.
    return null;
  }
}

function comparison(sort: Sort): (a: Entry, b: Entry) => number {
  const byName = (a: Entry, b: Entry): number =>
    compare(a.folded, b.folded) || compare(a.name, b.name);
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

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,6}$/.test(text) ? Number(text) : null;
}

/** The members that Caddy's listing has. */
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
