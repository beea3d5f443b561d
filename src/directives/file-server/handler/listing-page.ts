import { createHash } from 'node:crypto';
import { type Entry, entryUrl, type Listing, type Sort } from './entry.ts';

const STYLE =
  'body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color-scheme:light dark}' +
  'table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .75rem .25rem 0}' +
  'td:nth-child(2),th:nth-child(2){text-align:right}tbody tr:hover{background:color-mix(in srgb,currentColor 8%,transparent)}';

/** Of `Content-Security-Policy`: a page that runs nothing, whatever files are called. */
export const LISTING_POLICY = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'`;

const COLUMNS: readonly (readonly [sort: Sort, title: string])[] = [
  ['namedirfirst', 'Name'],
  ['size', 'Size'],
  ['time', 'Modified'],
];

/** A directory as a table, sorted by links; no script. */
export function listingPage(listing: Listing): string {
  const { names, entries, isComplete } = listing;
  const path = escaped(`/${names.map((name) => `${name}/`).join('')}`);
  const more = isComplete ? '' : '<p>There are more than can be shown.</p>\n';
  const up = names.length === 0 ? '' : '<p><a href="../" rel="up">Parent directory</a></p>\n';
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Index of ${path}</title>
<style>${STYLE}</style>
<main>
<h1>Index of ${path}</h1>
${up}<table>
<thead><tr>${COLUMNS.map((column) => heading(column, listing)).join('')}</tr></thead>
<tbody>
${entries.map(row).join('')}</tbody>
</table>
${more}</main>
</html>
`;
}

function heading([sort, title]: (typeof COLUMNS)[number], listing: Listing): string {
  const isSorted = listing.sort === sort || (listing.sort === 'name' && sort === 'namedirfirst');
  const next = isSorted && listing.order === 'asc' ? 'desc' : 'asc';
  const now = isSorted
    ? ` aria-sort="${listing.order === 'asc' ? 'ascending' : 'descending'}"`
    : '';
  return `<th scope="col"${now}><a href="./?sort=${sort}&amp;order=${next}">${title}</a></th>`;
}

function row({ name, size, modified, isDirectory }: Entry): string {
  const time = modified.toISOString();
  return `<tr><td><a href="${escaped(entryUrl(name))}">${escaped(name)}</a></td><td>${isDirectory ? '' : shortSize(size)}</td><td><time datetime="${time}">${time.slice(0, 16).replace('T', ' ')}</time></td></tr>\n`;
}

function shortSize(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let amount = bytes;
  let unit = 0;
  for (; amount >= 1024 && unit < units.length - 1; unit += 1) amount /= 1024;
  return `${unit === 0 ? amount : amount.toFixed(1)} ${units[unit]}`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
