import type { Config, SiteAddress, SiteConfig } from '../config/config.ts';
import { defaultOptions, type GlobalOptions } from '../config/shape-options.ts';
import { addTo } from '../kernel/collections.ts';
import type { Expanded } from './expand.ts';
import { readGlobalOptions } from './global-options.ts';
import { namedRoute } from './named-routes.ts';
import type { DirectiveTable } from './directive-table.ts';
import type { Origins, Problems, Span } from './place.ts';
import type { Line } from './parser.ts';
import { readNamedRoutes, readSite, type SiteReading } from './site.ts';
import type { RequestMatcher, RouteConfig } from '../config/routes.ts';

/**
 * Converts the lines of a Hubfile to a configuration. Invalid parts are reported and left out, so that
 * everything else is checked as well.
 */
export function adapt(
  { lines, whole, unsound }: Expanded,
  problems: Problems,
  origins: Origins,
  table: DirectiveTable,
): { readonly config: Config; readonly sound: Config } {
  const [first, ...others] = lines;
  const optionsLine = first?.words.length === 0 ? first : null;
  const bodyLines = first === undefined || optionsLine !== null ? others : lines;
  const routeLines = bodyLines.filter((line) => namedRoute(line) !== null);
  const siteLines = bodyLines.filter((line) => namedRoute(line) === null);
  const before = problems.errors;
  const { options, defaults } =
    optionsLine === null
      ? { options: defaultOptions, defaults: { places: table.places, bind: [] } }
      : readGlobalOptions(optionsLine, problems, origins, table);
  const goodOptions =
    whole && problems.errors === before && (optionsLine === null || !unsound.has(optionsLine));
  const named = readNamedRoutes(
    routeLines,
    { mayLack: !whole, places: defaults.places },
    { table, problems, origins },
  );
  const sitesRead = sitesOf(siteLines, problems);
  const allGood =
    goodOptions && problems.errors === before && !routeLines.some((line) => unsound.has(line));
  const parts = sitesRead.map(({ head: written, body }): PartOfSite => {
    const errors = problems.errors;
    const divided = dividedHead(written);
    const head = divided?.head ?? written;
    const isThere = ![written, ...body].some((line) => unsound.has(line));
    const place = { ports: options, defaults };
    const site = readSite({ head, body, isThere }, place, { table, problems, origins, named });
    if (divided !== null) checkPart(site, body, { table, problems, origins });
    const sound = allGood && isThere && problems.errors === errors;
    return { site, path: divided?.path ?? null, sound };
  });
  const sites = joinedSites(parts, options, origins);
  return {
    config: { options, sites: sites.map(({ site }) => site) },
    sound: {
      options: goodOptions ? options : defaultOptions,
      sites: sites.filter(({ sound }) => sound).map(({ site }) => site),
    },
  };
}

/** The sites of a file: each with its block, or a single one without a block. */
function sitesOf(
  lines: readonly Line[],
  problems: Problems,
): { readonly head: Line; readonly body: readonly Line[] }[] {
  const braceless = lines.findIndex((line) => line.block === null);
  const head = lines[braceless];
  const whole = braceless === -1 ? lines : lines.slice(0, braceless);
  const sites = whole.flatMap((line) => {
    if (line.words.length > 0) return [{ head: line, body: line.block ?? [] }];
    const hint = 'a site begins with its address';
    const message = 'global options must be the first block of the file, and only one block';
    problems.error(line.span, 'misplaced-options', message, hint);
    return [];
  });
  if (head === undefined) return sites;
  if (sites.length > 0) {
    const hint = 'only a file with a single site may omit { }';
    const message = `{ is missing after ${head.words
      .map(({ text }) => text)
      .join(' ')
      .slice(0, 80)}`;
    problems.error(head.span, 'expected-block', message, hint);
    return sites;
  }
  return [{ head, body: lines.slice(braceless + 1) }];
}

// A Caddyfile may give a site a path: `example.com/api/* { … }`. Such blocks are parts of the site without a
// path. Among all that match, the one with the longest path handles the request.

/** A parsed site, the path of its addresses, and whether it was parsed completely. */
interface PartOfSite {
  readonly site: SiteConfig;
  readonly path: string | null;
  readonly sound: boolean;
}

const PATH = /^((?:[a-z][a-z0-9+.-]*:\/\/)?(?:\[[^\]]*\]|[^:/[\]{}]*)(?::\d*)?)(\/(?!\/).+)$/i;

/**
 * Removes the path from the addresses of a site and returns it; null if they have none, or different ones.
 */
function dividedHead(head: Line): { readonly head: Line; readonly path: string } | null {
  const parts = head.words.map(({ text }) => PATH.exec(text.replace(/,$/, '')));
  const paths = new Set(parts.map((part) => part?.[2] ?? null));
  const [path = null] = paths;
  // A path without an address: the address of the site is missing.
  if (paths.size !== 1 || path === null || parts.some((part) => part?.[1] === '')) return null;
  const words = head.words.map((word, index) => {
    const comma = word.text.endsWith(',') ? ',' : '';
    return { ...word, text: `${parts[index]?.[1] ?? ''}${comma}` };
  });
  return { head: { ...head, words }, path };
}

/** Reports directives in a part of a site that apply to the whole site. */
function checkPart(
  { hub, moreHubs }: SiteConfig,
  body: readonly Line[],
  { table, problems, origins }: Omit<SiteReading, 'named'>,
): void {
  const places = new Map<Span, string>();
  for (const { words, span } of body) {
    const name = table.currentName(words[0]?.text ?? '');
    if (table.find(name)?.siteOnly === true) places.set(span, name);
  }
  for (const one of [hub, ...moreHubs]) {
    const span = one === null ? undefined : origins.find(one);
    if (span !== undefined) places.set(span, 'hub');
  }
  for (const [span, name] of places) {
    const message = `${name} applies to the whole site, and stands in a part of it`;
    const hint = 'write it in the site of this address without a path';
    problems.error(span, 'misplaced-directive', message, hint);
  }
}

/** Joins sites that differ only in their paths, at the place of the first one. */
function joinedSites(
  parts: readonly PartOfSite[],
  options: GlobalOptions,
  origins: Origins,
): { readonly site: SiteConfig; readonly sound: boolean }[] {
  const groups = new Map<string, Set<PartOfSite>>();
  const withPaths = parts.filter(({ path }) => path !== null);
  const divisible = new Set(withPaths.map(({ site }) => keyOf(site.addresses)));
  for (const [index, part] of parts.entries()) {
    const addresses = keyOf(part.site.addresses);
    // Later checks report two whole sites with the same address.
    const key = divisible.has(addresses) ? addresses : String(index);
    addTo(groups, key, part);
  }
  return [...groups.values()].flatMap((members) => {
    const group = [...members];
    const divided = group.filter(({ path }) => path !== null);
    const whole = group.filter(({ path }) => path === null);
    if (divided.length === 0) return whole;
    const [base = divided[0], ...others] = whole;
    if (base === undefined) return others;
    const sorted = divided.toSorted((a, b) => lengthOf(b) - lengthOf(a));
    const routes = [
      ...sorted.map(({ site, path }) => handled(site.routes, path)),
      ...(base.path === null
        ? [handled(base.site.routes, null)]
        : redirectsToHttps(base.site.addresses, parts, options)),
    ];
    const site = { ...base.site, routes };
    origins.follow(site, base.site);
    return [{ site, sound: group.every(({ sound }) => sound) }, ...others];
  });
}

/**
 * A site on the HTTP port with paths only, such as one for challenges or health checks, leaves the rest of its host to the
 * redirect to HTTPS, if there is an HTTPS site of that name.
 */
function redirectsToHttps(
  addresses: readonly SiteAddress[],
  parts: readonly PartOfSite[],
  { autoHttps, httpPort, httpsPort }: GlobalOptions,
): readonly RouteConfig[] {
  const secure = parts
    .flatMap(({ site }) => site.addresses)
    .filter(({ scheme, port }) => scheme === 'https' && (port === null || port === httpsPort));
  const isRedirected = addresses.every(
    ({ scheme, host, port }) =>
      scheme === 'http' &&
      (port === null || port === httpPort) &&
      secure.some((other) => other.host === host),
  );
  if (autoHttps !== 'on' || !isRedirected) return [];
  const handler = { kind: 'redir', to: 'https://{host}{uri}', status: 308 } as const;
  return [handled([{ matcher: null, handler }], null)];
}

function keyOf(addresses: readonly SiteAddress[]): string {
  return addresses
    .map(({ scheme, host, port }) => `${scheme}://${host}:${port ?? ''}`)
    .sort()
    .join(' ');
}

function lengthOf({ path }: PartOfSite): number {
  return path?.replace(/\*$/, '').length ?? 0;
}

/** Among neighbouring blocks, only the first that matches runs. */
function handled(routes: readonly RouteConfig[], path: string | null): RouteConfig {
  const matcher: RequestMatcher | null = path === null ? null : [{ kind: 'path', paths: [path] }];
  return { matcher, handler: { kind: 'handle', group: 0, routes } };
}
