import type { Budget } from '../../kernel/scheduler.ts';
import type { Syntax } from './parts.ts';

/** Characters that a search passes in one step. */
const CHARACTERS_PER_STEP = 4;
/** Additional cost of searching for one literal, in steps. */
const LITERAL_STEPS = 2;

/**
 * Literals that must occur in a text in this order, with anything between them. For a pattern of literals and
 * wildcards this is the whole language. For other patterns it is a necessary condition: a text without these
 * literals cannot match.
 */
export class Glob {
  /** Literals that are searched from left to right. */
  readonly #literals: readonly string[];
  /** The required end of the text; null if anything may follow. */
  readonly #suffix: string | null;
  /** Characters and literals, as a measure of its memory. */
  readonly size: number;
  /** Whether there are only wildcards between the literals. */
  readonly isExact: boolean;

  /** @param items what follows the fixed prefix */
  constructor(items: readonly Syntax[]) {
    const literals: string[] = [];
    // Characters are joined at the end: a string that grows by one at a time takes 32 bytes for each.
    let literal: string[] = [];
    let [isExact, isOpen] = [true, false];
    for (const item of items) {
      isOpen = item.kind !== 'char';
      if (item.kind === 'char') {
        literal.push(String.fromCodePoint(item.code));
        continue;
      }
      if (!isAnything(item)) isExact = false;
      if (literal.length > 0) literals.push(literal.join(''));
      literal = [];
    }
    const last = literal.join('');
    this.#literals = literals;
    this.#suffix = isOpen ? null : last;
    this.isExact = isExact;
    this.size = literals.reduce((sum, one) => sum + one.length + 1, last.length + 1);
  }

  /** Whether the text contains the literals from `start` on. Subtracts the cost from `budget`. */
  test(text: string, start: number, budget: Budget): boolean {
    budget.spend(this.#literals.length * LITERAL_STEPS + LITERAL_STEPS);
    // The end comes first, because patterns with a common beginning differ there.
    if (this.#suffix !== null && !text.endsWith(this.#suffix)) return false;
    const end = text.length - (this.#suffix?.length ?? 0);
    let at = start;
    for (const literal of this.#literals) {
      const found = text.indexOf(literal, at);
      const next = found === -1 ? text.length : found + literal.length;
      budget.spend((next - at) / CHARACTERS_PER_STEP);
      if (found === -1) return false;
      at = next;
    }
    return at <= end;
  }
}

/** `*`: any number of any characters. */
export function isAnything(syntax: Syntax): boolean {
  return (
    syntax.kind === 'repeat' &&
    syntax.min === 0 &&
    syntax.max === Number.POSITIVE_INFINITY &&
    syntax.item.kind === 'any'
  );
}
