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

/** The settings of a site from the directives read so far. */
export interface SiteDraft {
  hub: HubConfig | null;
  readonly moreHubs: HubConfig[];
  /** `off` is different from not mentioned. */
  discovery: DiscoveryConfig | 'off' | null;
  tls: TlsConfig | null;
  bind: readonly BindAddress[];
  readonly accessLogs: AccessLogConfig[];
  errorRoutes: readonly RouteConfig[];
  /** The places of directives that may occur only once. */
  readonly once: Map<string, Span>;
  /** The number of the last group of `handle` blocks. */
  lastGroup: number;
}

/** Whether directives run in the documented order or as they are written. */
export type RunningOrder = 'documented' | 'written';

/** The context of a directive. */
export interface Scope {
  readonly site: SiteDraft;
  /** The matchers that `@name` can refer to here. */
  readonly matchers: { find(cursor: Cursor, word: Word): RequestMatcher | null };
  /** Whether it is directly in the site, not in a `handle` or `route`. */
  readonly top: boolean;
  /** The group of the `handle` blocks in this block. */
  readonly group: number;
  /** The matcher that the arguments of a line say, or its block. */
  conditions(cursor: Cursor): RequestMatcher;
  /** Reads a block of directives in this scope. */
  routes(lines: readonly Line[], order: RunningOrder): readonly RouteConfig[];
  /** The steps of the route `&(name)`. */
  named(cursor: Cursor, name: Word): readonly RouteConfig[];
}

/** The syntax of one directive of a site. */
export interface DirectiveSyntax {
  /** All its arguments and options, for the documents and the editor; four spaces for each block. */
  readonly usage: string;
  /** What it does, in a few words of Markdown. */
  readonly summary: string;
  /** Former names; accepted with a warning. */
  readonly oldNames?: readonly string[];
  /** Runs right after this one. Required for names that are not in Caddy's order. */
  readonly after?: string;
  /** Shares the position of this one, so that only specificity counts between the two. */
  readonly besides?: string;
  /** The most specific one runs last and has the last word; of equal ones the first written. */
  readonly specificLast?: true;
  /** Whether its block contains directives. */
  readonly holdsDirectives?: true;
  /** Whether it configures the site as a whole, and is only allowed directly in it. */
  readonly siteOnly?: boolean;
  /** Whether it may occur only once per site. */
  readonly once?: boolean;
  /** Returns the steps that it adds to the site; a site-wide directive writes into the draft. */
  read(cursor: Cursor, scope: Scope): readonly RouteConfig[];
}

export interface ConditionSyntax<Condition extends { readonly kind: string }> {
  /** Its arguments, for the documents and the editor; one line for each form. */
  readonly usage: string;
  /** What it matches, in a few words of Markdown. */
  readonly summary: string;
  /** Reads one line; returns several conditions if all of them must hold. */
  read(cursor: Cursor, nested: (cursor: Cursor) => RequestMatcher): MatchCondition[];
  /** Combines two conditions of the same kind to one that holds for either; null if both must hold. */
  merge?(a: Condition, b: Condition): Condition | null;
}

/**
 * The matcher at the beginning of a directive's arguments; null if it applies to every request. Quotes do not
 * make it a text: an argument of an import often has some.
 */
export function takeMatcher(cursor: Cursor, scope: Scope): RequestMatcher | null {
  const word = cursor.peek();
  if (word === undefined) return null;
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

/** A path alone is the target, not a matcher without a target. */
export function matcherBeforeTarget(cursor: Cursor, scope: Scope): RequestMatcher | null {
  return cursor.left === 1 ? null : takeMatcher(cursor, scope);
}

/** Reads a directive that is one step: a matcher, and the handler that `read` makes of the rest of the line. */
export function oneStep(
  read: (cursor: Cursor, scope: Scope) => HandlerConfig,
  matcherOf = takeMatcher,
): DirectiveSyntax['read'] {
  return (cursor, scope) => {
    const matcher = matcherOf(cursor, scope);
    const handler = read(cursor, scope);
    cursor.end();
    return [step(cursor, matcher, handler)];
  };
}

/** A step of the site, with the place of the directive. */
export function step(
  cursor: Cursor,
  matcher: RequestMatcher | null,
  handler: HandlerConfig,
): RouteConfig {
  if (cursor.origins.find(handler) === undefined) cursor.origins.mark(handler, cursor.span);
  return cursor.origins.of(cursor.span, { matcher, handler });
}
