// `uri-template` parses a URI Template. This module then checks it against the stricter grammar of RFC 6570,
// and compiles it to the same kind of program as a pattern.

import { parse } from 'uri-template';
import { HubgateError } from '../../kernel/error.ts';
import { type Budget, unlimitedBudget } from '../../kernel/scheduler.ts';
import { bytesOf, type Component, componentOf, matchesComponent, sizeOf } from './component.ts';
import { type AsciiSet, literal, type Syntax } from './parts.ts';

type TemplatePart = ReturnType<typeof parse>['ast']['parts'][number];
type Expression = Extract<TemplatePart, { type: 'expression' }>;
type Variable = Expression['variables'][number];

/**
 * RFC 6570 §2.1: no controls, spaces, quotes, `<>\^{|}` or backticks, and no `%` that is not part of an
 * escape.
 */
const LITERAL = /^(?:[^\p{Cc} "'%<>\\^`{|}]|%[0-9A-Fa-f]{2})*$/u;
const NAME = /^(?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*$/;
/** RFC 6570 §2.4.1. */
const MAX_PREFIX = 9999;

/** What an operator writes before the first value and between values (RFC 6570, appendix A). */
interface Operator {
  readonly first: string;
  readonly separator: string;
  /** Whether the name of a variable precedes its value. */
  readonly named: boolean;
  /** Whether an empty value is written without `=`. */
  readonly bare: boolean;
  readonly reserved: boolean;
}

const unnamed = { named: false, bare: false, reserved: false };
const OPERATORS: Readonly<Record<string, Operator>> = {
  '': { first: '', separator: ',', ...unnamed },
  '+': { first: '', separator: ',', ...unnamed, reserved: true },
  '#': { first: '#', separator: ',', ...unnamed, reserved: true },
  '.': { first: '.', separator: '.', ...unnamed },
  '/': { first: '/', separator: '/', ...unnamed },
  ';': { first: ';', separator: ';', named: true, bare: true, reserved: false },
  '?': { first: '?', separator: '&', named: true, bare: false, reserved: false },
  '&': { first: '&', separator: '&', named: true, bare: false, reserved: false },
};

/**
 * A URI Template (RFC 6570) as 0.x uses it: it covers a text that is one of its expansions, with each
 * variable independent of the others. Matched in linear time.
 */
export class UriTemplate {
  readonly #component: Component;

  /** @throws HubgateError `not-a-template`: malformed, or without a variable; `invalid-pattern`: too large */
  constructor(text: string) {
    const items = readParts(text).flatMap((part) =>
      part.type === 'literal' ? codeUnits(part.value) : expressionSyntax(part),
    );
    this.#component = componentOf(items);
  }

  /** The beginning of every text that matches. */
  get prefix(): string {
    return this.#component.prefix;
  }

  /** Instructions of its program. */
  get size(): number {
    return sizeOf(this.#component);
  }

  /** Its memory in bytes, at most, without its text. */
  get bytes(): number {
    return bytesOf(this.#component);
  }

  /** Subtracts the cost from `budget`. */
  test(text: string, budget: Budget = unlimitedBudget()): boolean {
    return matchesComponent(this.#component, text, budget);
  }
}

function readParts(text: string): readonly TemplatePart[] {
  // Most texts are not templates, and an error of the parser costs more than this check.
  if (!text.includes('{')) throw notATemplate();
  let parts: readonly TemplatePart[];
  try {
    ({ parts } = parse(text).ast);
  } catch (error) {
    throw notATemplate(error);
  }
  if (!parts.every(isLawful)) throw notATemplate();
  return parts;
}

/** The library accepts more than the standard. */
function isLawful(part: TemplatePart): boolean {
  if (part.type === 'literal') return LITERAL.test(part.value);
  return part.variables.every(({ name, modifier, extension }) => {
    if (!NAME.test(name) || (extension !== undefined && extension !== null)) return false;
    if (modifier?.type !== 'substr') return true;
    return modifier.length > 0 && modifier.length <= MAX_PREFIX;
  });
}

function notATemplate(cause?: unknown): HubgateError {
  return new HubgateError('not-a-template', 'not a URI Template', { cause });
}

/** A variable without a value expands to nothing; without any value, so does the operator. */
function expressionSyntax({ operator, variables }: Expression): readonly Syntax[] {
  const known = OPERATORS[operator];
  if (known === undefined) throw notATemplate();
  const { first, separator } = known;
  const values = variables.map((variable) => valueSyntax(variable, known));
  // If the first value begins like the others, the program need not remember which values came before.
  if (first === separator) return values.map((value) => optional([...literal(separator), value]));
  const starts = values.map((value, at): Syntax => {
    const later = values.slice(at + 1).map((other) => optional([...literal(separator), other]));
    return sequence([value, ...later]);
  });
  return [optional([...literal(first), choice(starts)])];
}

function valueSyntax({ name, modifier }: Variable, operator: Operator): Syntax {
  const { named, bare, reserved, separator } = operator;
  const character = reserved ? RESERVED_CHARACTER : CHARACTER;
  const text = many(character);
  const equals = literal('=');
  if (modifier?.type === 'explode') {
    const lone = named && !bare ? sequence([text, ...equals, text]) : pair(text, equals);
    return sequence([lone, many(sequence([...literal(separator), lone]))]);
  }
  const value =
    modifier?.type === 'substr'
      ? repeat(reserved ? RESERVED_SYMBOL : SYMBOL, 0, modifier.length)
      : many(choice([character, ...literal(',')]));
  if (!named) return value;
  const label = literal(name);
  return bare
    ? sequence([...label, optional([...equals, value])])
    : sequence([...label, ...equals, value]);
}

function pair(text: Syntax, equals: readonly Syntax[]): Syntax {
  return sequence([text, optional([...equals, text])]);
}

/** The matcher compares code units, and a character may have two. */
function codeUnits(text: string): readonly Syntax[] {
  return Array.from({ length: text.length }, (_, at) => ({
    kind: 'char',
    code: text.charCodeAt(at),
  }));
}

function asciiSet(characters: RegExp): Syntax {
  const set: AsciiSet = Uint8Array.from({ length: 128 }, (_, code) =>
    characters.test(String.fromCharCode(code)) ? 1 : 0,
  );
  return { kind: 'set', set };
}

function sequence(items: readonly Syntax[]): Syntax {
  return { kind: 'sequence', items };
}

function choice(items: readonly Syntax[]): Syntax {
  return { kind: 'choice', items };
}

function repeat(item: Syntax, min: number, max: number): Syntax {
  return { kind: 'repeat', item, min, max };
}

function many(item: Syntax): Syntax {
  return repeat(item, 0, Number.POSITIVE_INFINITY);
}

function optional(items: readonly Syntax[]): Syntax {
  return repeat(sequence(items), 0, 1);
}

const HEX = asciiSet(/[0-9A-Fa-f]/);
const escaped = (lead: RegExp): readonly Syntax[] => [...literal('%'), asciiSet(lead), HEX];
const CONTINUATION = escaped(/[89ABab]/);
const UNRESERVED = asciiSet(/[A-Za-z0-9\-._~]/);
const RESERVED = asciiSet(/[A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=]/);
/** Characters of a value (RFC 6570 §3.2.1). */
const CHARACTER = choice([UNRESERVED, sequence(escaped(/[0-9A-Fa-f]/))]);
const RESERVED_CHARACTER = choice([RESERVED, sequence(escaped(/[0-9A-Fa-f]/))]);
/** What counts as one character for a prefix: all escapes of one UTF-8 character. */
const ESCAPED_SYMBOLS = [
  sequence(escaped(/[0-7]/)),
  sequence([...escaped(/[CDcd]/), ...CONTINUATION]),
  sequence([...escaped(/[Ee]/), ...CONTINUATION, ...CONTINUATION]),
  sequence([...escaped(/[Ff]/), ...CONTINUATION, ...CONTINUATION, ...CONTINUATION]),
];
const SYMBOL = choice([UNRESERVED, ...ESCAPED_SYMBOLS]);
const RESERVED_SYMBOL = choice([RESERVED, ...ESCAPED_SYMBOLS]);
