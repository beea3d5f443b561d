import { placeText } from '../config/problem.ts';
import type { SiteConfig } from '../config/config.ts';
import type { RouteConfig } from '../config/routes.ts';
import { defaultTls } from '../config/shape-config.ts';
import { defaultDiscovery } from '../config/shape-hub.ts';
import { addressWords, parseAddress, type SchemePorts } from './addresses.ts';
import { Cursor } from './cursor.ts';
import { unsupportedDirectives } from './unsupported.ts';
import { matcherOf, NamedMatchers } from './named-matchers.ts';
import { NamedRoutes } from './named-routes.ts';
import {
  type DirectivePlaces,
  type DirectiveTable,
  type SiteDefaults,
  inDocumentedOrder,
  type OrderedStep,
} from './directive-table.ts';
import { type Origins, placeOf, type Problems } from './place.ts';
import type { Line, Word } from './parser.ts';
import type { DirectiveSyntax, RunningOrder, Scope, SiteDraft } from './scope.ts';

export interface SiteLines {
  readonly head: Line;
  readonly body: readonly Line[];
  /** Whether all lines so far could be read. Otherwise, anything missing may be among the unreadable ones. */
  readonly isThere: boolean;
}

/** The state that all sites of a file share while they are read. */
export interface SiteReading {
  readonly table: DirectiveTable;
  readonly problems: Problems;
  readonly origins: Origins;
  readonly named: NamedRoutes;
}

/** Reads the named routes of a file. Their problems are reported, whether they are invoked or not. */
export function readNamedRoutes(
  lines: readonly Line[],
  { mayLack, places }: { readonly mayLack: boolean; readonly places: DirectivePlaces },
  { table, problems, origins }: Omit<SiteReading, 'named'>,
): NamedRoutes {
  return new NamedRoutes(lines, { mayLack, problems, registry: table.registry }, (block, named) => {
    const draft = emptyDraft();
    const reader = new SiteReader(draft, places, { table, problems, origins, named });
    const routes = reader.block(
      block,
      'documented',
      new NamedMatchers(table, null, mayLack),
      false,
    );
    const at = draft.hub === null ? undefined : origins.find(draft.hub);
    if (at !== undefined) {
      const hint = 'write it in the site';
      problems.error(
        at,
        'misplaced-directive',
        'a hub belongs to a site, not to a named route',
        hint,
      );
    }
    return routes;
  });
}

/** Converts a site's head and directives to its configuration, and reports its problems. */
export function readSite(
  { head, body, isThere }: SiteLines,
  { ports, defaults }: { readonly ports: SchemePorts; readonly defaults: SiteDefaults },
  reading: SiteReading,
): SiteConfig {
  const { table, problems, origins } = reading;
  const words = problems.attempt(() => addressWords(head.words)) ?? [];
  // `hub.` or `http://hub` is a host with that name.
  const directive = words.find(({ text }) => table.isDirective(text));
  if (directive !== undefined) refuseDirective(directive, problems);
  const draft = emptyDraft();
  const reader = new SiteReader(draft, defaults.places, reading);
  // The block belongs to a directive and contains something else.
  const lines = directive !== undefined && head.block !== null ? [] : body;
  const routes = reader.block(lines, 'documented', new NamedMatchers(table, null, !isThere));
  const schemes = { ...ports, secure: draft.tls !== null };
  const addresses = (directive === undefined ? words : []).flatMap((word) => {
    const address = problems.attempt(() => parseAddress(word, schemes));
    return address === undefined ? [] : [origins.of(word.span, address)];
  });
  const site: SiteConfig = {
    addresses,
    bind: draft.bind.length > 0 ? draft.bind : defaults.bind,
    tls: draft.tls ?? defaultTls,
    hub: draft.hub,
    moreHubs: draft.moreHubs,
    discovery: discoveryOf(draft),
    routes,
    errorRoutes: draft.errorRoutes,
    accessLogs: draft.accessLogs,
  };
  return origins.of(head.span, site);
}

function refuseDirective({ text, span }: Word, problems: Problems): void {
  const message = `${text} is a directive, but an address of a site is expected here`;
  const hint =
    'write the address of a site first, for instance :8080, and the directive in its block or on the next line';
  problems.error(span, 'directive-as-address', message, hint);
}

function emptyDraft(): SiteDraft {
  return {
    hub: null,
    moreHubs: [],
    discovery: null,
    tls: null,
    bind: [],
    accessLogs: [],
    errorRoutes: [],
    once: new Map(),
    lastGroup: 0,
  };
}

/** On by default for a site with a hub. */
function discoveryOf({ discovery, hub }: SiteDraft): SiteConfig['discovery'] {
  if (discovery === 'off') return null;
  return discovery ?? (hub === null ? null : defaultDiscovery);
}

class SiteReader {
  readonly #draft: SiteDraft;
  readonly #places: DirectivePlaces;
  readonly #reading: SiteReading;

  constructor(draft: SiteDraft, places: DirectivePlaces, reading: SiteReading) {
    this.#draft = draft;
    this.#places = places;
    this.#reading = reading;
  }

  /** The steps of a block of directives. Its matchers are also known in the blocks inside it. */
  block(
    lines: readonly Line[],
    order: RunningOrder,
    matchers: NamedMatchers,
    top = matchers.outer === null,
  ): RouteConfig[] {
    const { table, problems, origins, named } = this.#reading;
    const cursors = lines
      .filter((line) => this.#isReadable(line))
      .map((line) => new Cursor(line, problems, origins));
    const definesMatcher = (cursor: Cursor): boolean =>
      cursor.line.words[0]?.plain === true && cursor.name.startsWith('@');
    for (const cursor of cursors.filter(definesMatcher)) {
      problems.attempt(() => matchers.define(cursor));
    }
    const scope: Scope = {
      site: this.#draft,
      matchers,
      top,
      group: ++this.#draft.lastGroup,
      routes: (inner, innerOrder) =>
        this.block(inner, innerOrder, new NamedMatchers(table, matchers)),
      conditions: (cursor) => matcherOf(cursor, table),
      named: (cursor, name) => named.find(cursor, name),
    };
    const steps = cursors.flatMap((cursor): OrderedStep[] => {
      if (definesMatcher(cursor)) return [];
      const routes = problems.attempt(() => this.#directive(cursor, scope));
      return routes === undefined ? [] : [{ directive: table.currentName(cursor.name), routes }];
    });
    if (order === 'documented') return inDocumentedOrder(steps, this.#places, table);
    return steps.flatMap((step) => step.routes);
  }

  #directive(cursor: Cursor, scope: Scope): readonly RouteConfig[] {
    const { name } = cursor;
    const { table } = this.#reading;
    const current = table.currentName(name);
    const directive = table.find(current);
    if (directive === undefined) return failUnknown(cursor, table);
    if (current !== name) {
      const message = `${name} is now called ${current}`;
      cursor.warn(cursor.span, 'old-name', message, `write ${current}`);
    }
    if (directive.siteOnly === true && !scope.top) {
      const hint = 'move it out of this block into the site';
      cursor.fail(cursor.span, 'misplaced-directive', `${name} applies to the whole site`, hint);
    }
    this.#checkOnce(cursor, directive);
    return directive.read(cursor, scope);
  }

  /** If an unfinished line is a block of directives, the complete directives in it can be read. */
  #isReadable({ unfinished, words: [first] }: Line): boolean {
    return !unfinished || this.#reading.table.find(first?.text ?? '')?.holdsDirectives === true;
  }

  #checkOnce(cursor: Cursor, directive: DirectiveSyntax): void {
    if (directive.once !== true) return;
    const before = this.#draft.once.get(cursor.name);
    if (before === undefined) {
      this.#draft.once.set(cursor.name, cursor.span);
      return;
    }
    const first = placeText(placeOf(before));
    const message = `${cursor.name} is given twice in this site; the first is at ${first}`;
    cursor.fail(cursor.span, 'duplicate-directive', message);
  }
}

function failUnknown(cursor: Cursor, table: DirectiveTable): never {
  const { name, span } = cursor;
  if (Object.hasOwn(unsupportedDirectives, name)) {
    const message = `the directive ${name} is not supported by hubgate`;
    return cursor.fail(span, 'unsupported-directive', message, unsupportedDirectives[name]);
  }
  const [first] = cursor.line.words;
  const shown = first === undefined || name.length > 40 ? '' : ` ${cursor.quote(first)}`;
  // An address, with a block or without any, is hardly a directive that is spelt wrong.
  if (cursor.hasBlock ? /[.:]/.test(name) : /^(?:https?:\/\/|:\d+$)/.test(name)) {
    const hint =
      'if this is another site, close the one above with }, and write { } around each site';
    return cursor.fail(span, 'unknown-directive', `unknown directive${shown}`, hint);
  }
  const hint = table.didYouMean(name) ?? 'the directives are listed in docs/hubfile.md';
  return cursor.fail(span, 'unknown-directive', `unknown directive${shown}`, hint);
}
