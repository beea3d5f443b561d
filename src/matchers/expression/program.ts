// CEL by @marcbachmann/cel-js: it has no dependencies, checks types and takes its bounds as options.
// @bufbuild/cel brings an engine for regular expressions and the messages of Protocol Buffers along, of
// which nothing is needed here. Time is bounded by the size of an expression, by the length of lists, and
// by how deep macros are nested; regular expressions run in linear time (`linear-regexp.ts`).

import { AsyncLocalStorage } from 'node:async_hooks';
import { Environment } from '@marcbachmann/cel-js';
import type { MatchCondition } from '../../config/routes.ts';
import type { Exchange } from '../../http/exchange.ts';
import { HttpError } from '../../http/errors.ts';
import { compilePattern, matchable, type Pattern } from '../../http/linear-regexp.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Held, Predicate } from '../../site/matchers.ts';
import { shortName } from '../../site/placeholder-names.ts';
import { expandPlaceholders } from '../../site/placeholders.ts';
import { conditionOf, type Constant, MATCHER_FUNCTIONS } from './functions.ts';

/** Characters of an expression. */
const MAX_LENGTH = 16 * 1024;
const MAX_ARGUMENTS = 16;
/** Elements of a list, also of one that `split` makes of a value. */
const MAX_LIST = 200;
/** A macro (`exists`, `map`, …) inside another: at most MAX_LIST² steps. */
const MAX_MACRO_DEPTH = 2;
const LIMITS = {
  maxAstNodes: 1000,
  maxDepth: 50,
  maxListElements: MAX_LIST,
  maxMapEntries: 50,
  maxCallArguments: MAX_ARGUMENTS,
};

const MACROS: ReadonlySet<unknown> = new Set(['all', 'exists', 'exists_one', 'filter', 'map']);
/** What the library does with V8's regular expressions or without a bound, and what stands for it. */
const REPLACED: Readonly<Record<string, string>> = { matches: 're2_matches', split: 'short_split' };

/** A text in quotes, a placeholder, a method that has another name here, a call, or a bracket. */
const TOKEN =
  /[rR]?(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\{([A-Za-z][\w.-]*)\}|\.\s*(matches|split)(?=\s*\()|([A-Za-z_]\w*)\s*\(|[()]/g;

/** What of a request is a number; all else is text. */
const NUMBERS: ReadonlySet<string> = new Set([
  'err.status_code',
  'rp.status_code',
  'time.now.year',
  'time.now.unix',
  'time.now.unix_ms',
]);

/** For which request functions are called; the file system makes some of them wait. */
interface Evaluation {
  readonly exchange: Exchange;
  readonly predicates: ReadonlyMap<string, Predicate>;
  readonly patterns: ReadonlyMap<string, Pattern>;
}

const running = new AsyncLocalStorage<Evaluation>();

function evaluation(): Evaluation {
  const found = running.getStore();
  if (found === undefined) throw new TypeError('a function of an expression runs outside of one');
  return found;
}

function placeholderValue(name: string): string | bigint {
  const value = expandPlaceholders(`{${name}}`, evaluation().exchange);
  if (value === `{${name}}`) return '';
  return NUMBERS.has(shortName(name)) && /^\d{1,15}$/.test(value) ? BigInt(value) : value;
}

function keyOf(name: string, args: readonly unknown[]): string {
  return `${name} ${JSON.stringify(args)}`;
}

function environment(): Environment {
  const made = new Environment({ homogeneousAggregateLiterals: false, limits: LIMITS })
    .registerFunction('ph(string): dyn', placeholderValue)
    .registerFunction(
      'string.re2_matches(string): bool',
      (text: string, pattern: string) =>
        evaluation().patterns.get(pattern)?.test(matchable(text)) === true,
    )
    .registerFunction(
      'string.short_split(string): list<string>',
      (text: string, separator: string) => text.split(separator, MAX_LIST),
    );
  for (const [name, kind] of Object.entries(MATCHER_FUNCTIONS)) {
    const run = (...args: unknown[]): Held => {
      const { exchange, predicates } = evaluation();
      return predicates.get(keyOf(name, args))?.(exchange) ?? false;
    };
    const counts = Array.from({ length: MAX_ARGUMENTS + 1 }, (_, count) => count);
    const forms = kind === 'map' ? ['map'] : counts.map((count) => Array(count).fill('string'));
    for (const form of forms) made.registerFunction(`${name}(${String(form)}): bool`, run);
  }
  return made;
}

let environmentOnce: Environment | undefined;

/** An expression that was parsed. */
export interface Expression {
  /** The matchers that it calls as functions, by how it calls them. */
  readonly conditions: ReadonlyMap<string, MatchCondition>;
  /**
   * Whether it holds.
   *
   * @throws HttpError 500 where it has no value: one that guards something must not be passed by so
   */
  holds(exchange: Exchange, predicates: ReadonlyMap<string, Predicate>): Held;
}

/** @throws HubgateError `invalid-expression` */
export function parseExpression(text: string): Expression {
  if (text.length > MAX_LENGTH) throw invalid(`it is longer than ${MAX_LENGTH} characters`);
  environmentOnce ??= environment();
  const source = sourceOf(text);
  const run = parsed(environmentOnce, source);
  const conditions = new Map<string, MatchCondition>();
  const patterns = new Map<string, Pattern>();
  look(run.ast, 0, { conditions, patterns });
  const { valid, type, error } = run.check();
  if (!valid) throw invalid(plainMessage(error));
  if (type !== 'bool' && type !== 'dyn') throw invalid(`it is of type ${type}, not bool`);
  return {
    conditions,
    holds(exchange, predicates) {
      const fail = (error: unknown): never => {
        if (error instanceof HttpError) throw error;
        throw new HttpError(500, `an expression has no value: ${plainMessage(error)}`);
      };
      try {
        const held: unknown = running.run({ exchange, predicates, patterns }, run);
        return held instanceof Promise ? held.then((later) => later === true, fail) : held === true;
      } catch (error) {
        return fail(error);
      }
    },
  };
}

/** The text with functions for what is not CEL. What matchers are called with stays a text. */
function sourceOf(text: string): string {
  const calls: boolean[] = [];
  return text.replace(TOKEN, (token: string, name?: string, method?: string, called?: string) => {
    const isArgument = calls.at(-1) === true;
    if (name !== undefined) return isArgument ? `"{${name}}"` : `ph(${JSON.stringify(name)})`;
    if (method !== undefined) return `.${REPLACED[method] ?? method}`;
    if (token === ')') calls.pop();
    else if (token === '(') calls.push(isArgument);
    else if (called !== undefined) {
      calls.push(isArgument || Object.hasOwn(MATCHER_FUNCTIONS, called));
    }
    return token;
  });
}

function parsed(environment: Environment, source: string): ReturnType<Environment['parse']> {
  try {
    return environment.parse(source);
  } catch (error) {
    throw invalid(plainMessage(error));
  }
}

/** The first line: below it the library shows the text, which may hold a secret. */
function plainMessage(error: unknown): string {
  return (messageOf(error).split('\n', 1)[0] ?? '').slice(0, 200);
}

function invalid(why: string): HubgateError {
  return new HubgateError('invalid-expression', `The expression cannot be used: ${why}`);
}

/** A part of an expression: its operator and operands, as the library has them. */
interface Part {
  readonly op: string;
  readonly args: unknown;
}

function isPart(value: unknown): value is Part {
  return typeof value === 'object' && value !== null && 'op' in value && 'args' in value;
}

/** What an expression needs beside the library. */
interface Found {
  readonly conditions: Map<string, MatchCondition>;
  readonly patterns: Map<string, Pattern>;
}

/** Finds the matchers and regular expressions, and refuses what has no bound. */
function look(value: unknown, depth: number, found: Found): void {
  if (Array.isArray(value)) for (const each of value) look(each, depth, found);
  if (!isPart(value)) return;
  const { op, args } = value;
  const [name, second, third]: unknown[] = Array.isArray(args) ? args : [];
  if (op === 'call' && typeof name === 'string' && Object.hasOwn(MATCHER_FUNCTIONS, name)) {
    const given = constants(second);
    if (given === null) throw invalid(`${name}() takes texts, not what is computed`);
    const condition = conditionOf(name, given);
    if (condition === null) throw invalid(`${name}() does not take these arguments`);
    found.conditions.set(keyOf(name, given), condition);
    return;
  }
  if (op === 'rcall' && name === REPLACED['matches']) {
    const [pattern] = constants(third) ?? [];
    if (typeof pattern !== 'string') throw invalid('matches() takes a text, not what is computed');
    found.patterns.set(pattern, compilePattern(pattern));
  }
  const isMacro = op === 'rcall' && MACROS.has(name) && Array.isArray(third) && third.length > 1;
  if (isMacro && depth === MAX_MACRO_DEPTH) {
    throw invalid(`more than ${MAX_MACRO_DEPTH} macros are nested`);
  }
  if (op === 'rcall') {
    look(second, depth, found);
    look(third, isMacro ? depth + 1 : depth, found);
  } else {
    look(args, depth, found);
  }
}

function constants(values: unknown): Constant[] | null {
  if (!Array.isArray(values)) return null;
  const read = values.map(constant);
  return read.every((one) => one !== null) ? read : null;
}

/** The value of a part that is written out; null for any other. A placeholder stays one. */
function constant(value: unknown): Constant | null {
  if (!isPart(value)) return null;
  const { op, args } = value;
  if (op === 'value') return typeof args === 'string' ? args : null;
  if (op === 'list') return constants(args);
  if (op !== 'map' || !Array.isArray(args)) return null;
  const entries = args.map((entry: unknown) => constants(entry));
  const members: [string, Constant][] = [];
  for (const entry of entries) {
    const [key, member] = entry ?? [];
    if (typeof key !== 'string' || member === undefined) return null;
    members.push([key, member]);
  }
  return Object.fromEntries(members);
}
