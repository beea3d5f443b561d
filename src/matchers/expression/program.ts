// CEL is implemented by @marcbachmann/cel-js. It has no dependencies, checks types, and has options for its
// limits. @bufbuild/cel would add a regular expression engine and Protocol Buffers messages, which are not
// needed here. Time is bounded by the size of an expression, by the length of lists, and by the nesting of
// macros. Regular expressions run in linear time (`linear-regexp.ts`).

import { AsyncLocalStorage } from 'node:async_hooks';
import { Environment } from '@marcbachmann/cel-js';
import type { MatchCondition } from '../../config/routes.ts';
import type { Exchange } from '../../http/exchange.ts';
import { HttpError } from '../../http/errors.ts';
import { compilePattern, matchable, type Pattern } from '../../http/linear-regexp.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Held, Predicate } from '../../site/text-pattern.ts';
import { shortName } from '../../site/placeholder-names.ts';
import { expandForMatcher } from '../../site/placeholders.ts';
import { conditionOf, type Constant, MATCHER_FUNCTIONS } from './functions.ts';

/** Maximum length of an expression, in characters. */
const MAX_LENGTH = 16 * 1024;
const MAX_ARGUMENTS = 16;
/** Maximum number of elements of a list, including one that `split` creates. */
const MAX_LIST = 200;
/** Maximum nesting of macros (`exists`, `map`, …): at most MAX_LIST² steps. */
const MAX_MACRO_DEPTH = 2;
const LIMITS = {
  maxAstNodes: 1000,
  maxDepth: 50,
  maxListElements: MAX_LIST,
  maxMapEntries: 50,
  maxCallArguments: MAX_ARGUMENTS,
};

const MACROS: ReadonlySet<unknown> = new Set(['all', 'exists', 'exists_one', 'filter', 'map']);
/**
 * Functions that the library implements with V8's regular expressions or without a limit, and their
 * replacements.
 */
const REPLACED: Readonly<Record<string, string>> = { matches: 're2_matches', split: 'short_split' };

/** A constant, a string, a placeholder, a method with another name in the library, a call, or a bracket. */
const TOKEN =
  /\bconstant\(("(?:\\.|[^"\\])*")\)|[rR]?(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\{(\?query|%(?:uri|path|query)|[A-Za-z][\w.-]*)\}|\.\s*(matches|split)(?=\s*\()|([A-Za-z_]\w*)\s*\(|[()]/g;

/**
 * Placeholders whose values are numbers. All others are strings, but one that is compared with a number or a boolean
 * is one too if it can be read as such.
 */
const NUMBERS: ReadonlySet<string> = new Set([
  'err.status_code',
  'rp.status_code',
  'resp.status_code',
  'time.now.year',
  'time.now.unix',
  'time.now.unix_ms',
]);

/** The request for which functions are called. Functions that use the file system return promises. */
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
  const value = expandForMatcher(`{${name}}`, evaluation().exchange);
  return NUMBERS.has(shortName(name)) && /^\d{1,15}$/.test(value) ? BigInt(value) : value;
}

const NUMERALS: Readonly<Record<string, RegExp>> = {
  int: /^[+-]?\d+$/,
  uint: /^\d+$/,
  double: /^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)$/i,
};

/**
 * A text that `int`, `uint` or `double` reads as in Caddy. The library also takes "" for 0, and `0b11` for 3, so that a
 * request without a field would pass a guard.
 */
function numeralOf(kind: string, value: unknown): unknown {
  if (typeof value !== 'string' || NUMERALS[kind]?.test(value) === true) return value;
  throw new TypeError(`${kind}() has no number to read`);
}

/** The number or boolean that a text stands for; any other text stays one. */
function scalarOf(text: string | bigint): string | bigint | number | boolean {
  if (typeof text !== 'string') return text;
  if (/^-?\d{1,15}$/.test(text)) return BigInt(text);
  if (/^-?\d{1,15}\.\d{1,15}$/.test(text)) return Number(text);
  return text === 'true' || text === 'false' ? text === 'true' : text;
}

function keyOf(name: string, args: readonly unknown[]): string {
  return `${name} ${JSON.stringify(args)}`;
}

function environment(): Environment {
  const made = new Environment({ homogeneousAggregateLiterals: false, limits: LIMITS })
    .registerFunction('ph(string): dyn', placeholderValue)
    .registerFunction('scalar(dyn): dyn', scalarOf)
    .registerFunction('numeral(string, dyn): dyn', numeralOf)
    // The value of an environment variable, which `resolve.ts` writes.
    .registerFunction('constant(string): dyn', (text: string) => text)
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

/** A parsed expression. */
export interface Expression {
  /** The matchers that it calls as functions, by the text of the call. */
  readonly conditions: ReadonlyMap<string, MatchCondition>;
  /**
   * Evaluates the expression for a request.
   *
   * @throws HttpError 500 if it has no value, so that nobody can bypass a guard that way
   */
  holds(exchange: Exchange, predicates: ReadonlyMap<string, Predicate>): Held;
}

/** @throws HubgateError `invalid-expression` */
export function parseExpression(text: string): Expression {
  if (text.length > MAX_LENGTH) throw invalid(`it is longer than ${MAX_LENGTH} characters`);
  environmentOnce ??= environment();
  const run = parsedWithScalars(environmentOnce, sourceOf(text));
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

/** The text with functions in place of everything that is not CEL. Arguments of matchers stay strings. */
function sourceOf(text: string): string {
  const calls: boolean[] = [];
  return text.replace(
    TOKEN,
    (token, given?: string, name?: string, method?: string, called?: string) => {
      const isArgument = calls.at(-1) === true;
      if (given !== undefined) return isArgument ? given : token;
      if (name !== undefined) return isArgument ? `"{${name}}"` : `ph(${JSON.stringify(name)})`;
      if (method !== undefined) return `.${REPLACED[method] ?? method}`;
      if (token === ')') calls.pop();
      else if (token === '(') calls.push(isArgument);
      else if (called !== undefined) {
        calls.push(isArgument || Object.hasOwn(MATCHER_FUNCTIONS, called));
      }
      return token;
    },
  );
}

type Parsed = ReturnType<Environment['parse']>;

/** Reads values that are compared with numbers or booleans as such. */
function parsedWithScalars(environment: Environment, source: string): Parsed {
  const run = parsed(environment, source);
  const compared: Part[] = [];
  findCompared(run.ast, compared);
  const scalars = compared.map(({ start, end }) => ({ start, end, call: 'scalar(' }));
  const edits = [...scalars, ...numeralsIn(run.ast)];
  if (edits.length === 0) return run;
  // From the end to the start, so that the places stay right.
  const texts = edits.flatMap(({ start, end, call }) => [
    { at: start, text: call },
    { at: end, text: ')' },
  ]);
  let result = source;
  for (const { at, text } of texts.toSorted((a, b) => b.at - a.at)) {
    result = result.slice(0, at) + text + result.slice(at);
  }
  return parsed(environment, result);
}

/** Operators whose operands have the same type, and those whose operands are booleans. */
const OF_ONE_TYPE: ReadonlySet<string> = new Set('== != < <= > >= in + - * / %'.split(' '));
const OF_BOOLEANS: ReadonlySet<string> = new Set(['&&', '||', '!_', '?:']);

/** Collects the placeholders and constants that are used beside numbers, or as booleans. */
function findCompared(value: unknown, compared: Part[]): void {
  if (Array.isArray(value)) for (const each of value) findCompared(each, compared);
  if (!isPart(value)) return;
  const { op, args } = value;
  findCompared(args, compared);
  const operands: unknown[] = Array.isArray(args) ? args : [args];
  const [left, right] = operands;
  if (OF_BOOLEANS.has(op)) {
    const conditions = op === '?:' ? [left] : operands;
    compared.push(...conditions.filter((one) => isPart(one)).filter(isText));
  }
  if (!OF_ONE_TYPE.has(op)) return;
  for (const [one, other] of [
    [left, right],
    [right, left],
  ]) {
    if (isPart(one) && isText(one) && isScalar(other)) compared.push(one);
  }
}

/** The arguments of `int`, `uint` and `double`, with the call that checks them. */
function numeralsIn(value: unknown): readonly { start: number; end: number; call: string }[] {
  if (Array.isArray(value)) return value.flatMap(numeralsIn);
  if (!isPart(value)) return [];
  const { op, args } = value;
  const [name, list] = op === 'call' && Array.isArray(args) ? (args as unknown[]) : [];
  const [argument] = Array.isArray(list) ? (list as unknown[]) : [];
  const inside = numeralsIn(args);
  if (typeof name !== 'string' || !Object.hasOwn(NUMERALS, name) || !isPart(argument))
    return inside;
  const { start, end } = argument;
  return [...inside, { start, end, call: `numeral("${name}", ` }];
}

function isText({ op, args }: Part): boolean {
  return op === 'call' && Array.isArray(args) && (args[0] === 'ph' || args[0] === 'constant');
}

function isScalar(value: unknown): boolean {
  if (!isPart(value)) return false;
  const { op, args } = value;
  if (op === 'list') return Array.isArray(args) && args.length > 0 && args.every(isScalar);
  return op === '-_' || (op === 'value' && /^(?:bigint|number|boolean)$/.test(typeof args));
}

function parsed(environment: Environment, source: string): Parsed {
  try {
    return environment.parse(source);
  } catch (error) {
    throw invalid(plainMessage(error));
  }
}

/** Only the first line: the library shows the text of the expression below it, which may contain a secret. */
function plainMessage(error: unknown): string {
  return (messageOf(error).split('\n', 1)[0] ?? '').slice(0, 200);
}

function invalid(why: string): HubgateError {
  return new HubgateError('invalid-expression', `The expression cannot be used: ${why}`);
}

/** A node of an expression in the library's representation: its operator and its operands. */
interface Part {
  readonly op: string;
  readonly args: unknown;
  /** Its place in the source. */
  readonly start: number;
  readonly end: number;
}

function isPart(value: unknown): value is Part {
  return typeof value === 'object' && value !== null && 'op' in value && 'args' in value;
}

/** What an expression needs in addition to the library. */
interface Found {
  readonly conditions: Map<string, MatchCondition>;
  readonly patterns: Map<string, Pattern>;
}

/** Finds the matchers and regular expressions, and rejects parts without a limit. */
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

/** The value of a constant node; null for any other node. A placeholder stays one. */
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
