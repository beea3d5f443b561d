// re2js, which the bundle contains for other patterns, is not used here. It counts no steps, so a budget
// could only charge the length of the text times the size of the pattern, and `/(\d{1,300})/:rest` would not
// match a topic of 1,000 characters, for which this program takes 6,000 steps. A pattern took 22 KB instead
// of 2.7 KB, its first test took up to 37 ms in one turn, and classes such as `[a--b]` would still need
// `group-regexp.ts`. Saving 180 lines was not worth that.

import type { Budget } from '../../kernel/scheduler.ts';
import { isAnything } from './glob.ts';
import { type AsciiSet, refusal, type Syntax } from './parts.ts';

/** Instructions in one component; a repeat counts each of its copies. */
const MAX_INSTRUCTIONS = 5000;
/** Instructions that one test may enter (about two milliseconds). Beyond them nothing matches. */
const MAX_STEPS = 300_000;

const MAX_MARK = 2 ** 31 - 1;

/** Memory of a program without instructions, of each of them, and of a class of characters. */
const PROGRAM_BYTES = 900;
const INSTRUCTION_BYTES = 10;
const SET_BYTES = 320;

const CHAR = 0;
const SET = 1;
const ANY = 2;
/** Continues at both of two places. */
const SPLIT = 3;
const JUMP = 4;
const ASSERT_START = 5;
const ASSERT_END = 6;
const ASSERT_WORD = 7;
const ASSERT_NOT_WORD = 8;
const MATCH = 9;
/** Accepts whatever follows. */
const MATCH_REST = 10;

const ASSERTIONS = {
  start: ASSERT_START,
  end: ASSERT_END,
  word: ASSERT_WORD,
  'not-word': ASSERT_NOT_WORD,
} as const;

/**
 * A nondeterministic automaton (Thompson 1968) that runs all its states at once. The time grows with the
 * length of the text times the number of instructions, for every pattern.
 */
export class Program {
  readonly #ops: Uint8Array;
  /** A character code, the number of a set, or the next place. */
  readonly #first: Int32Array;
  /** The second place of a SPLIT. */
  readonly #second: Int32Array;
  readonly #sets: readonly AsciiSet[];

  constructor(code: Code) {
    this.#ops = Uint8Array.from(code.ops);
    this.#first = Int32Array.from(code.first);
    this.#second = Int32Array.from(code.second);
    this.#sets = code.sets;
  }

  /** Number of instructions. */
  get size(): number {
    return this.#ops.length;
  }

  /** Its memory in bytes, measured and rounded up. */
  get bytes(): number {
    return PROGRAM_BYTES + this.size * INSTRUCTION_BYTES + this.#sets.length * SET_BYTES;
  }

  /**
   * Whether all of `text` from `start` on matches. Only `^` and `\b` see the text before it. Subtracts the
   * visited instructions from `budget`.
   */
  test(text: string, start: number, budget: Budget): boolean {
    let steps = 0;
    let { current, next } = WORKSPACE;
    beginMarks(text.length);
    let count = this.#enter(0, text, start, current, 0);
    for (let at = start; count > 0 && at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      let entered = 0;
      for (let i = 0; i < count; i += 1) {
        const state = current[i] ?? 0;
        if (!this.#accepts(state, code)) continue;
        entered = this.#enter(state + 1, text, at + 1, next, entered);
        if (entered < 0) break;
      }
      steps += count;
      const swap = current;
      current = next;
      next = swap;
      count = entered;
      if (steps + WORKSPACE.entered > MAX_STEPS && count >= 0) break;
    }
    steps += WORKSPACE.entered;
    budget.spend(steps);
    if (count < 0) return true;
    if (steps > MAX_STEPS) return false;
    for (let i = 0; i < count; i += 1) {
      if (this.#ops[current[i] ?? 0] === MATCH) return true;
    }
    return false;
  }

  /**
   * Adds `state`, and all states that it reaches without a character, to `list`. Returns the new length, or
   * -1 if MATCH_REST was reached.
   */
  #enter(state: number, text: string, at: number, list: Int32Array, length: number): number {
    let count = length;
    const { pending, marks } = WORKSPACE;
    const mark = WORKSPACE.mark + at;
    pending.push(state);
    for (let top = pending.pop(); top !== undefined; top = pending.pop()) {
      WORKSPACE.entered += 1;
      if (marks[top] === mark) continue;
      marks[top] = mark;
      const op = this.#ops[top];
      if (op === JUMP) pending.push(this.#first[top] ?? 0);
      else if (op === SPLIT) pending.push(this.#second[top] ?? 0, this.#first[top] ?? 0);
      else if (op === MATCH_REST) {
        pending.length = 0;
        return -1;
      } else if (op !== undefined && op >= ASSERT_START && op <= ASSERT_NOT_WORD) {
        if (holds(op, text, at)) pending.push(top + 1);
      } else {
        list[count] = top;
        count += 1;
      }
    }
    return count;
  }

  #accepts(state: number, code: number): boolean {
    switch (this.#ops[state] ?? MATCH) {
      case CHAR:
        return this.#first[state] === code;
      case SET:
        return this.#sets[this.#first[state] ?? 0]?.[code] === 1;
      case ANY:
        return true;
      default:
        return false;
    }
  }
}

/**
 * The memory in which programs run. A test ends in the turn in which it began, so all tests share it and none
 * has to allocate.
 */
const WORKSPACE = {
  current: new Int32Array(MAX_INSTRUCTIONS),
  next: new Int32Array(MAX_INSTRUCTIONS),
  /** Where each instruction was last entered: a position in the text, counted from the mark of the test. */
  marks: new Int32Array(MAX_INSTRUCTIONS),
  mark: 1,
  used: 1,
  /** Instructions entered in this test, including those that consume no character. */
  entered: 0,
  pending: [] as number[],
};

/** Reserves marks for a text of this length that no earlier test has used. */
function beginMarks(length: number): void {
  if (WORKSPACE.used + length + 1 > MAX_MARK) {
    WORKSPACE.marks.fill(0);
    WORKSPACE.used = 1;
  }
  WORKSPACE.entered = 0;
  WORKSPACE.mark = WORKSPACE.used;
  WORKSPACE.used += length + 1;
}

/** @throws HubgateError `invalid-pattern` if the program would have too many character tests */
export function refuseTooLarge(characters: number): void {
  if (characters > MAX_INSTRUCTIONS) throw refusal('too large');
}

/** @throws HubgateError `invalid-pattern` if the program would be too large */
export function compile(syntax: Syntax): Program {
  const code = new Code();
  const items = syntax.kind === 'sequence' ? syntax.items : [syntax];
  const last = items.at(-1);
  const open = last !== undefined && isAnything(last);
  for (const item of open ? items.slice(0, -1) : items) code.write(item);
  code.emit(open ? MATCH_REST : MATCH);
  return new Program(code);
}

class Code {
  readonly ops: number[] = [];
  readonly first: number[] = [];
  readonly second: number[] = [];
  readonly sets: AsciiSet[] = [];
  readonly #setNumbers = new Map<AsciiSet, number>();
  #written = 0;

  write(syntax: Syntax): void {
    // Counts visits as well, because repeating nothing emits nothing.
    this.#written += 1;
    refuseTooLarge(this.#written);
    switch (syntax.kind) {
      case 'char':
        this.emit(CHAR, syntax.code);
        return;
      case 'set':
        this.emit(SET, this.#numberOf(syntax.set));
        return;
      case 'any':
        this.emit(ANY);
        return;
      case 'sequence':
        for (const item of syntax.items) this.write(item);
        return;
      case 'choice':
        this.#choice(syntax.items);
        return;
      case 'repeat':
        this.#repeat(syntax.item, syntax.min, syntax.max);
        return;
      case 'assert':
        this.emit(ASSERTIONS[syntax.at]);
    }
  }

  emit(op: number, first = 0): number {
    refuseTooLarge(this.ops.length + 1);
    this.first.push(first);
    this.second.push(0);
    return this.ops.push(op) - 1;
  }

  #choice(items: readonly Syntax[]): void {
    const jumps: number[] = [];
    items.forEach((item, index) => {
      if (index === items.length - 1) return this.write(item);
      const split = this.emit(SPLIT, this.ops.length + 1);
      this.write(item);
      jumps.push(this.emit(JUMP));
      this.second[split] = this.ops.length;
    });
    for (const jump of jumps) this.first[jump] = this.ops.length;
  }

  #repeat(item: Syntax, min: number, max: number): void {
    for (let copy = 0; copy < min; copy += 1) this.write(item);
    if (max === Number.POSITIVE_INFINITY) {
      const split = this.emit(SPLIT, this.ops.length + 1);
      this.write(item);
      this.emit(JUMP, split);
      this.second[split] = this.ops.length;
      return;
    }
    const splits: number[] = [];
    for (let copy = min; copy < max; copy += 1) {
      splits.push(this.emit(SPLIT, this.ops.length + 1));
      this.write(item);
    }
    for (const split of splits) this.second[split] = this.ops.length;
  }

  #numberOf(set: AsciiSet): number {
    const known = this.#setNumbers.get(set);
    if (known !== undefined) return known;
    const number = this.sets.push(set) - 1;
    this.#setNumbers.set(set, number);
    return number;
  }
}

function holds(op: number, text: string, at: number): boolean {
  if (op === ASSERT_START) return at === 0;
  if (op === ASSERT_END) return at === text.length;
  const boundary = isWord(text, at - 1) !== isWord(text, at);
  return boundary === (op === ASSERT_WORD);
}

/** `\w` of ECMAScript. A missing character is not part of a word. */
function isWord(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x5f
  );
}
