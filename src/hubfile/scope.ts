import type {
  AccessLogConfig,
  BindAddress,
  DiscoveryConfig,
  HubConfig,
  TlsConfig,
} from '../config/config.ts';
import type {
  HandlerConfig,
  MatchCondition,
  RequestMatcher,
  RouteConfig,
} from '../config/routes.ts';
import type { Cursor } from './cursor.ts';
import type { Line, Word } from './parser.ts';
import type { Span } from './place.ts';

/** What the directives of a site have said so far. */
export interface SiteDraft {
  hub: HubConfig | null;
  readonly moreHubs: HubConfig[];
  /** `off` is not the same as never mentioned. */
  discovery: DiscoveryConfig | 'off' | null;
  tls: TlsConfig | null;
  bind: readonly BindAddress[];
  readonly accessLogs: AccessLogConfig[];
  errorRoutes: readonly RouteConfig[];
  /** Where each directive was written that may be given once. */
  readonly once: Map<string, Span>;
  /** The last group of `handle` blocks that was numbered. */
  lastGroup: number;
}

/** Whether directives run in the documented order or as they are written. */
export type RunningOrder = 'documented' | 'written';

/** Where a directive stands. */
export interface Scope {
  readonly site: SiteDraft;
  /** The matchers that `@name` may stand for here. */
  readonly matchers: { find(cursor: Cursor, word: Word): RequestMatcher | null };
  /** Directly in the site, not in a `handle` or `route`. */
  readonly top: boolean;
  /** The group of the `handle` blocks in this block. */
  readonly group: number;
  /** The matcher that the arguments of a line say, or its block. */
  conditions(cursor: Cursor): RequestMatcher;
  /** Reads a block of directives that stands in this scope. */
  routes(lines: readonly Line[], order: RunningOrder): readonly RouteConfig[];
  /** The steps of the route `&(name)`. */
  named(cursor: Cursor, name: Word): readonly RouteConfig[];
}

/** How one directive of a site is written. */
export interface DirectiveSyntax {
  /** All that it takes, as the documents and the editor show it; four spaces for each block. */
  readonly usage: string;
  /** What it does, in a few words of Markdown. */
  readonly summary: string;
  /** What it was called before; understood, with a warning. */
  readonly oldNames?: readonly string[];
  /** Runs right after this one; needed for names that the running order of Caddy does not have. */
  readonly after?: string;
  /** Shares the place of this one, so that only how specific they are counts between the two. */
  readonly besides?: string;
  /** The most specific one runs last and has the last word; of equal ones the first written. */
  readonly specificLast?: true;
  /** Its block holds directives. */
  readonly holdsDirectives?: true;
  /** It configures the site as a whole and may only stand directly in it. */
  readonly siteOnly?: boolean;
  /** One counts per site. */
  readonly once?: boolean;
  /** Gives the steps that it adds to the site; a site-wide directive writes into the draft. */
  read(cursor: Cursor, scope: Scope): readonly RouteConfig[];
}

/** How one kind of condition is written. */
export interface ConditionSyntax<Condition extends { readonly kind: string }> {
  /** What it takes, for the documents and the editor; a line for each form. */
  readonly usage: string;
  /** What it holds for, in a few words of Markdown. */
  readonly summary: string;
  /** What one line says, several conditions if all of them must hold. */
  read(cursor: Cursor, nested: (cursor: Cursor) => RequestMatcher): MatchCondition[];
  /** Two of one kind as one that holds for either; null if each must hold. */
  merge?(a: Condition, b: Condition): Condition | null;
}

/** The matcher at the beginning of a directive's arguments; null if every request is meant. */
export function takeMatcher(cursor: Cursor, scope: Scope): RequestMatcher | null {
  const word = cursor.peek();
  if (word === undefined || !word.plain) return null;
  if (word.text === '*') {
    cursor.optional();
    return null;
  }
  if (word.text.startsWith('/')) {
    cursor.optional();
    return cursor.origins.of<RequestMatcher>(word.span, [{ kind: 'path', paths: [word.text] }]);
  }
  if (!word.text.startsWith('@')) return null;
  cursor.optional();
  return scope.matchers.find(cursor, word);
}

/** A path that stands alone is the target, not a matcher without one. */
export function matcherBeforeTarget(cursor: Cursor, scope: Scope): RequestMatcher | null {
  return cursor.left === 1 ? null : takeMatcher(cursor, scope);
}

/** A step of the site, written where the directive stands. */
export function step(
  cursor: Cursor,
  matcher: RequestMatcher | null,
  handler: HandlerConfig,
): RouteConfig {
  if (cursor.origins.find(handler) === undefined) cursor.origins.mark(handler, cursor.span);
  return cursor.origins.of(cursor.span, { matcher, handler });
}
