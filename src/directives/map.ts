import { list, nullable, object, type Of, optional, withDefault } from '../config/shape.ts';
import { text } from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import type { Word } from '../hubfile/parser.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue } from '../hubfile/values.ts';
import type { Exchange, Expand, Handler } from '../http/exchange.ts';
import { setLateValue } from '../http/request-variables.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import { isPlaceholder } from '../site/placeholder-names.ts';
import { asMatched } from '../site/placeholders.ts';
import type { HandlerDirective } from './directive.ts';

/** Placeholders and the variable `root` keep their meaning. */
function isDestination(name: string): boolean {
  return /^[A-Za-z_]\w*$/.test(name) && !isPlaceholder(name) && name !== 'root';
}

const caseMembers = {
  /** Value of the source; null if there is a pattern. */
  input: optional(text('a text')),
  /** RE2; its groups are `${1}` in the outputs. */
  pattern: optional(text('a regular expression')),
  /** null: the default. */
  outputs: list(nullable(text('a text')), { min: 1 }),
};

interface MapCase extends Of<typeof caseMembers> {}

const members = {
  /** A text with placeholders. */
  source: text('a text with placeholders'),
  /** Variables, each with an output in every case: `{vars.NAME}`, and `{NAME}`. */
  destinations: list(text('a name that no placeholder has', isDestination), { min: 1 }),
  /** The first matching case applies. */
  cases: list<MapCase>(object(caseMembers)),
  /** One for each destination, or none. */
  defaults: withDefault(list(text('a text')), []),
};

export interface MapConfig extends Of<typeof members> {
  readonly kind: 'map';
}

const USAGE = `
map [<matcher>] <source> <destination…> {
    <input> <output…>
    ~<regexp> <output…>
    default <output…>
}
`;

export const map: HandlerDirective<MapConfig> = {
  data: {
    shape: () => object(members),
    patterns: ({ cases }) => cases,
  },
  syntax: {
    usage: USAGE,
    summary: 'sets variables depending on another value',
    read: oneStep((cursor) => {
      const source = cursor.argument('a source such as {host}').text;
      const destinations = cursor
        .several('a destination such as {name}')
        .map((word) => destination(cursor, word));
      cursor.block();
      const cases: MapCase[] = [];
      let defaults: readonly string[] | null = null;
      for (const line of cursor.lines()) {
        cursor.problems.attempt(() => {
          const [input] = line.line.words;
          const outputs = line.rest().map(({ text }) => text);
          if (input === undefined) return;
          if (outputs.length !== destinations.length) {
            const message = `${destinations.length} outputs are needed, one per destination, not ${outputs.length}`;
            line.fail(line.span, 'expected-argument', message);
          }
          line.end();
          if (input.plain && input.text === 'default') {
            if (defaults !== null)
              line.fail(line.span, 'duplicate-option', 'default is given twice');
            defaults = outputs;
            return;
          }
          cases.push(mapCase(line, input, outputs));
        });
      }
      return { kind: 'map', source, destinations, cases, defaults: defaults ?? [] };
    }),
  },
  compile,
};

/** `{name}`, as in a Caddyfile, or only the name. */
function destination(cursor: Cursor, word: Word): string {
  const name = word.text.replace(/^\{(.*)\}$/s, '$1');
  return isDestination(name)
    ? name
    : badValue(
        cursor,
        word,
        'a destination such as {name}, which is not the name of a placeholder',
      );
}

function mapCase(line: Cursor, { text, span }: Word, written: readonly string[]): MapCase {
  const outputs = written.map((output) => (output === '-' ? null : output));
  const isPattern = text.startsWith('~');
  const pattern = isPattern ? text.slice(1) : null;
  const found: MapCase = { input: isPattern ? null : text, pattern, outputs };
  line.origins.mark(found, line.span, new Map([['pattern', span]]));
  return found;
}

/**
 * Sets placeholders depending on another value, which is looked at when they are used. The values of
 * placeholders are literal text.
 */
function compile(
  { source, destinations, cases, defaults }: MapConfig,
  { expandOrEmpty: expand }: HandlerContext,
): Handler {
  const compiled = cases.map(({ input, pattern, outputs }) => {
    const regexp = pattern === null ? null : compilePattern(pattern);
    const match = (value: string): Match | null => {
      if (regexp === null) return value === input ? { groups: null, outputs } : null;
      const groups = regexp.match(matchable(value));
      if (groups === null) return null;
      const named = regexp.named.map(([name, index]) => [name, groups[index] ?? ''] as const);
      const numbered = groups.map((group, index) => [String(index), group] as const);
      return { groups: new Map([...numbered, ...named]), outputs };
    };
    return match;
  });
  const matchFor = (exchange: Exchange): Match => {
    const value = expand(source, exchange, undefined, asMatched);
    for (const match of compiled) {
      const matched = match(value);
      if (matched !== null) return matched;
    }
    return NO_MATCH;
  };
  const outputOf = (found: Match, at: number, exchange: Exchange): string => {
    const output = found.outputs[at] ?? null;
    return output === null
      ? expand(defaults[at] ?? '', exchange)
      : filled(output, found.groups, exchange, expand);
  };
  const late = (at: number) => {
    const computing = new WeakSet<Exchange>();
    return (exchange: Exchange): string => {
      // A source or an output that contains its own destination.
      if (computing.has(exchange)) return '';
      computing.add(exchange);
      try {
        return outputOf(matchFor(exchange), at, exchange);
      } finally {
        computing.delete(exchange);
      }
    };
  };
  const values = destinations.map((name, at) => [name, late(at)] as const);
  return (exchange, next) => {
    for (const [name, value] of values) setLateValue(exchange, name, value);
    // The output for one destination may contain another one.
    for (const [name, value] of values) exchange.variables.set(`vars.${name}`, value(exchange));
    return next();
  };
}

const NO_MATCH: Match = { groups: null, outputs: [] };

interface Match {
  /** What a regular expression captured, by numbers and names; null for a text. */
  readonly groups: ReadonlyMap<string, string> | null;
  readonly outputs: readonly (string | null)[];
}

/** `$1`, `${1}` and `${name}`; `$$` is a dollar. Whatever else is a name is empty, as in Go. */
const GROUP = /\$(?:(\$)|\{(\w+)\}|(\w+))/g;

function filled(
  template: string,
  groups: Match['groups'],
  exchange: Exchange,
  expand: Expand,
): string {
  if (groups === null) return expand(template, exchange);
  let result = '';
  let end = 0;
  for (const { 0: whole, 1: dollar, 2: braced, 3: bare, index } of template.matchAll(GROUP)) {
    result += expand(template.slice(end, index), exchange);
    result += dollar ?? groups.get(braced ?? bare ?? '') ?? '';
    end = index + whole.length;
  }
  return result + expand(template.slice(end), exchange);
}
