import { compileGlob, type GlobPiece, likeAtEdges, withoutStars } from '../kernel/glob.ts';
import { decodePath, mergeSlashes } from '../http/request-path.ts';
import type { Exchange } from '../http/exchange.ts';
import { PLACEHOLDER } from './placeholder-names.ts';
import { clientCaptures, expandForMatcher } from './placeholders.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';
import type { ConditionData, MatchCondition, RequestMatcher } from '../config/routes.ts';
import type { HidesFile } from './site-files.ts';

/** Whether a text matches a pattern. */
export type IsLike = (text: string) => boolean;

/**
 * A pattern whose placeholders are filled in for each request. Their values are literal, even if they contain
 * wildcards. Without placeholders, the pattern is compiled once.
 *
 * @param decode given for patterns with escapes: its results are literal too
 */
export function filledIn(
  template: string,
  compile: (pieces: readonly GlobPiece[]) => IsLike,
  decode: ((text: string) => string) | null = null,
): (exchange: Exchange) => IsLike {
  const parts = divided(template, PLACEHOLDER).flatMap((part) => {
    if (part.isLiteral) return [{ ...part, isFixed: false }];
    const pieces = decode === null ? [part] : divided(part.text, ESCAPES, decode);
    return pieces.map((piece) => ({ ...piece, isFixed: true }));
  });
  if (parts.every(({ isFixed }) => isFixed)) {
    const compiled = compile(parts);
    return () => compiled;
  }
  return (exchange) =>
    compile(
      parts.map(({ text, isLiteral, isFixed }) => ({
        text: isFixed ? text : expandForMatcher(text, exchange),
        isLiteral,
      })),
    );
}

const ESCAPES = /(?:%[0-9A-Fa-f]{2})+/g;

/** Splits a text into pieces; matches of the expression are literal. */
function divided(
  text: string,
  found: RegExp,
  change: (text: string) => string = (each) => each,
): GlobPiece[] {
  const pieces: GlobPiece[] = [];
  let end = 0;
  for (const match of text.matchAll(found)) {
    pieces.push({ text: text.slice(end, match.index), isLiteral: false });
    pieces.push({ text: change(match[0]), isLiteral: true });
    end = match.index + match[0].length;
  }
  pieces.push({ text: text.slice(end), isLiteral: false });
  return pieces.filter((piece) => piece.text !== '');
}

/**
 * The same as in Caddy's `path`. If the only `*` is at the beginning, at the end or both, it means any text,
 * and everything else is literal. Other patterns are globs. Matching is case-insensitive.
 */
export function likePath(written: readonly GlobPiece[]): IsLike {
  const pieces = written.map((piece) => ({ ...piece, text: piece.text.toLowerCase() }));
  const stars = pieces.reduce(
    (sum, { text, isLiteral }) => sum + (isLiteral ? 0 : text.split('*').length - 1),
    0,
  );
  const [before, , after] = withoutStars(pieces);
  const atEdges = Number(before) + Number(after);
  const isPlain = (atEdges > 0 && stars === atEdges) || isOnlyStar(pieces);
  return isPlain ? likeAtEdges(pieces) : compileGlob(pieces);
}

/**
 * The form of a path that a pattern is compared with: if the pattern contains `//` or `%2F`, they are
 * literal.
 */
export function viewFor(pattern: string): (path: string) => string {
  const decode = decoderFor(pattern);
  return pattern.includes('//')
    ? (path) => decode(path).toLowerCase()
    : (path) => mergeSlashes(decode(path)).toLowerCase();
}

export function decoderFor(pattern: string): (path: string) => string {
  return /%2f/i.test(pattern) ? decodeButSlashes : decodePath;
}

/** `%2F` stays, and `%25` too, so that `%252F` does not become `%2F`. */
function decodeButSlashes(path: string): string {
  return path
    .split(/(%2f|%25)/i)
    .map((part, index) => (index % 2 === 0 ? decodePath(part) : part))
    .join('');
}

function isOnlyStar(pieces: readonly GlobPiece[]): boolean {
  return pieces.length === 1 && pieces[0]?.isLiteral === false && pieces[0].text === '*';
}

/**
 * Tests a text; what the groups capture becomes `{re.N}`, and with a name `{re.NAME.N}` as well. A group
 * `(?P<word>…)` is `{re.word}` too.
 *
 * @param isOfClient the text may differ between clients that request the same URL
 * @throws HubgateError `invalid-pattern`; the function throws an HttpError 431 for a text that is too long
 */
export function capturing(
  pattern: string,
  name: string | null,
  isOfClient: boolean,
): (text: string, at: Exchange) => boolean {
  const compiled = compilePattern(pattern);
  const prefixes = name === null ? ['re'] : ['re', `re.${name}`];
  return (text, { variables }) => {
    const groups = compiled.match(matchable(text));
    if (groups === null) return false;
    for (const prefix of prefixes) {
      if (isOfClient) variables.set(clientCaptures(prefix), '');
      else variables.delete(clientCaptures(prefix));
      for (const [index, group] of groups.entries()) variables.set(`${prefix}.${index}`, group);
      for (const [word, index] of compiled.named) {
        variables.set(`${prefix}.${word}`, groups[index] ?? '');
      }
    }
    return true;
  };
}

/**
 * Compiles the predicate of a matcher; null matches every request. Captures of regular expressions become
 * `{re.NAME.N}`, or `{re.N}` without a name.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`
 */
export function compileMatcher(
  matcher: RequestMatcher | null,
  registry: ConditionRegistry,
  hidesFile: HidesFile,
): Predicate {
  if (matcher === null) return () => true;
  const conditions = matcher.map((condition) => compileCondition(condition, registry, hidesFile));
  return (exchange) => allHold(conditions, exchange);
}

/**
 * The same for callers that cannot wait. A condition that looks up files is false here. A configuration with
 * such a condition in this place is refused earlier (`file-matcher`).
 */
export function compileRequestMatcher(
  matcher: RequestMatcher | null,
  registry: ConditionRegistry,
): (exchange: Exchange) => boolean {
  const matches = compileMatcher(matcher, registry, () => true);
  return (exchange) => matches(exchange) === true;
}

function compileCondition(
  condition: MatchCondition,
  registry: ConditionRegistry,
  hidesFile: HidesFile,
): Predicate {
  const matcher = registry[condition.kind];
  if (matcher === undefined)
    throw new TypeError(`no matcher is registered for "${condition.kind}"`);
  return matcher.compile(
    condition,
    (inner) => compileMatcher(inner, registry, hidesFile),
    hidesFile,
  );
}

// A condition returns a boolean. Only `file` returns a promise, and only then does a route wait. Discovery
// cannot wait, so it accepts no matcher with `file`.

/** Whether something holds: at once if the request alone decides, later if files must be looked up. */
export type Held = boolean | Promise<boolean>;

/**
 * Whether a condition holds for a request in its current state.
 *
 * @throws HttpError if a condition refuses the request (`file` with `=404`)
 */
export type Predicate = (exchange: Exchange) => Held;

/** Compiles a matcher inside a condition. */
type CompileMatcher = (matcher: RequestMatcher) => Predicate;

/** The part of a matcher that runs: it compiles a condition. Called once per configuration. */
export type CompileCondition<Condition> = (
  condition: Condition,
  compileMatcher: CompileMatcher,
  hidesFile: HidesFile,
) => Predicate;

/** Every condition, by its `kind`. */
export type ConditionRegistry = Readonly<
  Record<
    string,
    {
      readonly data: ConditionData<MatchCondition>;
      compile(...given: Parameters<CompileCondition<MatchCondition>>): Predicate;
    }
  >
>;

/**
 * Whether all of them hold. They are evaluated in their order, and synchronously as long as each returns at
 * once.
 */
export function allHold(predicates: readonly Predicate[], exchange: Exchange, from = 0): Held {
  for (const [index, predicate] of predicates.entries()) {
    if (index < from) continue;
    const held = predicate(exchange);
    if (held === false) return false;
    if (held !== true) {
      return held.then((later) => later && allHold(predicates, exchange, index + 1));
    }
  }
  return true;
}

export function negated(predicate: Predicate): Predicate {
  return (exchange) => {
    const held = predicate(exchange);
    return typeof held === 'boolean' ? !held : held.then((later) => !later);
  };
}
