import type { Exchange, Expand, Handler } from '../../http/exchange.ts';
import { compilePattern, matchable } from '../../http/linear-regexp.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { MapConfig } from './data.ts';

/** Gives variables values that depend on another value. What a placeholder brings in is text. */
export function map(
  { source, destinations, cases, defaults }: MapConfig,
  { expand }: HandlerContext,
): Handler {
  const compiled = cases.map(({ input, pattern, outputs }) => {
    const regexp = pattern === null ? null : compilePattern(pattern);
    const groupsOf = (value: string): readonly string[] | null =>
      regexp === null ? (value === input ? [] : null) : regexp.match(matchable(value));
    return { groupsOf, outputs };
  });
  return (exchange, next) => {
    const value = expand(source, exchange);
    let found: {
      readonly groups: readonly string[];
      readonly outputs: readonly (string | null)[];
    } = {
      groups: [],
      outputs: [],
    };
    for (const { groupsOf, outputs } of compiled) {
      const groups = groupsOf(value);
      if (groups === null) continue;
      found = { groups, outputs };
      break;
    }
    const values = destinations.map((_, at) => {
      const output = found.outputs[at] ?? defaults[at] ?? '';
      return filled(output, found.groups, exchange, expand);
    });
    for (const [at, name] of destinations.entries()) {
      exchange.variables.set(name, values[at] ?? '');
      exchange.variables.set(`vars.${name}`, values[at] ?? '');
    }
    return next();
  };
}

function filled(
  template: string,
  groups: readonly string[],
  exchange: Exchange,
  expand: Expand,
): string {
  return template
    .split(/\$\{(\d{1,3})\}/)
    .map((part, index) => (index % 2 === 0 ? expand(part, exchange) : (groups[Number(part)] ?? '')))
    .join('');
}
