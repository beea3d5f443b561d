import type { Budget } from '../../kernel/scheduler.ts';
import { type CharacterClasses, parseGroupRegexp } from './group-regexp.ts';
import { type AsciiSet, type Group, type Part, literal, type Syntax } from './parts.ts';
import { Glob, isAnything } from './glob.ts';
import { compile, type Program, refuseTooLarge } from './program.ts';

/** One compiled component: a fixed prefix, and what follows it. */
export interface Component {
  readonly prefix: string;
  /** null means that nothing follows: the component is fixed text. */
  readonly rest: Rest | 'anything' | null;
}

/**
 * What follows the prefix: literals between wildcards, or a program that runs only if its literals are
 * present.
 */
interface Rest {
  readonly literals: Glob;
  readonly program: Program | null;
  /** A measure of its memory. */
  readonly size: number;
}

/**
 * @param delimiter the character at which `:name` ends; empty for none
 * @param classes the character classes of the whole pattern
 * @throws HubgateError `invalid-pattern`
 */
export function compileComponent(
  parts: readonly Part[],
  delimiter: string,
  classes: CharacterClasses,
): Component {
  const group = parts.findIndex((part) => part.group !== null || part.modifier !== '');
  const fixed = group === -1 ? parts.length : group;
  const others = parts.slice(fixed);
  // Checked before characters become instructions.
  refuseTooLarge(others.reduce((sum, part) => sum + part.prefix.length + part.suffix.length, 0));
  const items = others.flatMap((part) => syntaxOf(part, delimiter, classes));
  const { prefix, rest } = componentOf(items);
  const text = parts.slice(0, fixed).map((part) => part.prefix + part.suffix);
  return { prefix: text.join('') + prefix, rest };
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
  const rest = [next, ...more];
  refuseTooLarge(rest.length);
  const literals = new Glob(rest);
  const program = literals.isExact ? null : compile({ kind: 'sequence', items: rest });
  return { prefix, rest: { literals, program, size: literals.size + (program?.size ?? 0) } };
}

/** Instructions of its program. */
export function sizeOf({ rest }: Component): number {
  return rest === null || rest === 'anything' ? 0 : rest.size;
}

/** Its memory in bytes, at most, without its text. */
export function bytesOf({ rest }: Component): number {
  return rest === null || rest === 'anything' ? 0 : rest.size + (rest.program?.bytes ?? 0);
}

export function matchesComponent(component: Component, text: string, budget: Budget): boolean {
  const { prefix, rest } = component;
  if (rest === null) return text === prefix;
  if (!text.startsWith(prefix)) return false;
  if (rest === 'anything') return true;
  if (!rest.literals.test(text, prefix.length, budget)) return false;
  return rest.program === null || rest.program.test(text, prefix.length, budget);
}

function syntaxOf(part: Part, delimiter: string, classes: CharacterClasses): readonly Syntax[] {
  const items = [...literal(part.prefix)];
  if (part.group !== null) items.push(groupSyntax(part.group, delimiter, classes));
  items.push(...literal(part.suffix));
  if (part.modifier === '') return items;
  const [only] = items;
  // `**` means the same as `*`, and avoids a nested loop.
  if (items.length === 1 && only !== undefined && isAnything(only)) return items;
  const min = part.modifier === '+' ? 1 : 0;
  const max = part.modifier === '?' ? 1 : Number.POSITIVE_INFINITY;
  return [{ kind: 'repeat', item: { kind: 'sequence', items }, min, max }];
}

function groupSyntax(group: Group, delimiter: string, classes: CharacterClasses): Syntax {
  switch (group.kind) {
    case 'wildcard':
      return repeat({ kind: 'any' }, 0);
    case 'segment':
      return repeat(delimiter === '' ? { kind: 'any' } : allBut(delimiter), 1);
    case 'regexp':
      return parseGroupRegexp(group.body, classes);
  }
}

function repeat(item: Syntax, min: number): Syntax {
  return { kind: 'repeat', item, min, max: Number.POSITIVE_INFINITY };
}

/** For each delimiter the class of all other characters, which all patterns share. */
const ALL_BUT = new Map<string, AsciiSet>();

function allBut(delimiter: string): Syntax {
  const set = ALL_BUT.get(delimiter) ?? new Uint8Array(128).fill(1);
  set[delimiter.charCodeAt(0)] = 0;
  ALL_BUT.set(delimiter, set);
  return { kind: 'set', set };
}
