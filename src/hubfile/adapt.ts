import type { Config } from '../config/config.ts';
import { defaultOptions } from '../config/defaults.ts';
import type { Expanded } from './expand.ts';
import { readGlobalOptions } from './global-options.ts';
import { namedRoute } from './named-routes.ts';
import type { DirectiveTable } from './directive-table.ts';
import type { Origins } from './place.ts';
import type { Line } from './parser.ts';
import type { Problems } from './problems.ts';
import { checkPart, dividedHead, joinedSites, type PartOfSite } from './path-sites.ts';
import { readNamedRoutes, readSite } from './site.ts';

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
    if (divided !== null) checkPart(site, defaults, problems, head);
    const sound = allGood && isThere && problems.errors === errors;
    return { site, path: divided?.path ?? null, sound };
  });
  const sites = joinedSites(parts, origins);
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
    const message = `{ is missing behind ${head.words
      .map(({ text }) => text)
      .join(' ')
      .slice(0, 80)}`;
    problems.error(head.span, 'expected-block', message, hint);
    return sites;
  }
  return [{ head, body: lines.slice(braceless + 1) }];
}
