import type { Meter } from '../../kernel/slices.ts';
import { parseGroupRegexp } from './group-regexp.ts';
import type { Group, Part } from './parts.ts';
import { compile, isAnything, type Program } from './program.ts';
import { literal, type Syntax } from './syntax.ts';

/** One compiled component: text that must come first, and what follows it. */
export interface Component {
  readonly prefix: string;
  /** null: nothing follows; the component is fixed text. */
  readonly rest: Program | 'anything' | null;
}

/**
 * @param delimiter the character that `:name` stops at; empty for none
 * @throws HubgateError `invalid-pattern`
 */
export function compileComponent(parts: readonly Part[], delimiter: string): Component {
  return componentOf(parts.flatMap((part) => syntaxOf(part, delimiter)));
}

/** @throws HubgateError `invalid-pattern` */
export function componentOf(items: readonly Syntax[]): Component {
  const fixed = items.findIndex((item) => item.kind !== 'char');
  const length = fixed === -1 ? items.length : fixed;
  const prefix = items
    .slice(0, length)
    .map((item) => (item.kind === 'char' ? String.fromCodePoint(item.code) : ''))
    .join('');
  const [next, ...more] = items.slice(length);
  if (next === undefined) return { prefix, rest: null };
  if (more.length === 0 && isAnything(next)) return { prefix, rest: 'anything' };
  return { prefix, rest: compile({ kind: 'sequence', items: [next, ...more] }) };
}

export function matchesComponent(component: Component, text: string, meter: Meter): boolean {
  const { prefix, rest } = component;
  if (rest === null) return text === prefix;
  if (!text.startsWith(prefix)) return false;
  return rest === 'anything' || rest.test(text, prefix.length, meter);
}

function syntaxOf(part: Part, delimiter: string): readonly Syntax[] {
  const items = [...literal(part.prefix)];
  if (part.group !== null) items.push(groupSyntax(part.group, delimiter));
  items.push(...literal(part.suffix));
  if (part.modifier === '') return items;
  const [only] = items;
  // `**` is `*`: the same language, without a loop in a loop.
  if (items.length === 1 && only !== undefined && isAnything(only)) return items;
  const min = part.modifier === '+' ? 1 : 0;
  const max = part.modifier === '?' ? 1 : Number.POSITIVE_INFINITY;
  return [{ kind: 'repeat', item: { kind: 'sequence', items }, min, max }];
}

function groupSyntax(group: Group, delimiter: string): Syntax {
  switch (group.kind) {
    case 'wildcard':
      return repeat({ kind: 'any' }, 0);
    case 'segment':
      return repeat(delimiter === '' ? { kind: 'any' } : allBut(delimiter), 1);
    case 'regexp':
      return parseGroupRegexp(group.body);
  }
}

function repeat(item: Syntax, min: number): Syntax {
  return { kind: 'repeat', item, min, max: Number.POSITIVE_INFINITY };
}

function allBut(delimiter: string): Syntax {
  const set = new Uint8Array(128).fill(1);
  set[delimiter.charCodeAt(0)] = 0;
  return { kind: 'set', set };
}
