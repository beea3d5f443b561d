import { escaped, page } from '../../../http/page.ts';
import { type Entry, entryUrl, type Listing, type Sort } from './entry.ts';

const COLUMNS: readonly (readonly [sort: Sort, title: string])[] = [
  ['namedirfirst', 'Name'],
  ['size', 'Size'],
  ['time', 'Modified'],
];

/**
 * A directory as a table, sorted by links; no script.
 *
 * @param rows of its entries; see {@link row}
 */
export function listingPage(listing: Listing, rows: readonly string[]): string {
  const { names, isComplete } = listing;
  const path = `/${names.map((name) => `${name}/`).join('')}`;
  const more = isComplete ? '' : '<p>There are more than can be shown.</p>\n';
  const up = names.length === 0 ? '' : '<p><a href="../" rel="up">Parent directory</a></p>\n';
  const table =
    rows.length === 0
      ? '<p class="empty">This folder is empty.</p>\n'
      : `<table>
<thead><tr>${COLUMNS.map((column) => heading(column, listing)).join('')}</tr></thead>
<tbody>
${rows.join('')}</tbody>
</table>
`;
  return page(`Index of ${path}`, `<h1>Index of ${escaped(path)}</h1>\n${up}${table}${more}`);
}

function heading([sort, title]: (typeof COLUMNS)[number], listing: Listing): string {
  const isSorted = listing.sort === sort || (listing.sort === 'name' && sort === 'namedirfirst');
  const next = isSorted && listing.order === 'asc' ? 'desc' : 'asc';
  const now = isSorted
    ? ` aria-sort="${listing.order === 'asc' ? 'ascending' : 'descending'}"`
    : '';
  const number = sort === 'size' ? ' class="number"' : '';
  return `<th scope="col"${number}${now}><a href="./?sort=${sort}&amp;order=${next}">${title}</a></th>`;
}

/** An entry as a row of the table. */
export function row({ name, size, modified, isDirectory }: Entry): string {
  const time = modified.toISOString();
  return `<tr><td><a href="${escaped(entryUrl(name))}">${escaped(name)}</a></td><td class="number">${isDirectory ? '' : shortSize(size)}</td><td><time datetime="${time}">${time.slice(0, 16).replace('T', ' ')}</time></td></tr>\n`;
}

function shortSize(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let amount = bytes;
  let unit = 0;
  for (; amount >= 1024 && unit < units.length - 1; unit += 1) amount /= 1024;
  return `${unit === 0 ? amount : amount.toFixed(1)} ${units[unit]}`;
}
