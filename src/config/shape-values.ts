import { REDACTED, Secret } from '../kernel/secret.ts';
import {
  type DataMember,
  type DataNode,
  list,
  ShapeProblem,
  refuse,
  type Shape,
  wordOf,
} from './shape.ts';
import { parseDuration, parseSize } from './units.ts';

/** A text for which `isFit` returns true. */
export function text(
  expected: string,
  isFit: (text: string) => boolean = () => true,
): Shape<string> {
  return {
    input: { kind: 'text', expected, isFit },
    read(node, { inClear }) {
      if (typeof node.value !== 'string') return refuse(node, expected);
      if (!inClear && node.value.includes(REDACTED)) return refuseRedacted(node);
      return isFit(node.value) ? node.value : refuse(node, expected);
    },
    write: (value, { text: show }) => show(value),
    schema: () => ({ type: 'string', description: expected }),
  };
}

/** A text that must not be empty. */
export function name(expected: string): Shape<string> {
  return {
    ...text(expected, (value) => value !== ''),
    schema: () => ({ type: 'string', minLength: 1, description: expected }),
  };
}

/** A list of texts that must not be empty. */
export function names(expected: string): Shape<readonly string[]> {
  return { ...list(name(expected)), input: { kind: 'names', expected } };
}

export const secret: Shape<Secret> = {
  read(node, { inClear }) {
    if (inClear && node.value instanceof Map) return secretBytes(node.value);
    if (typeof node.value !== 'string') {
      // The value may be a secret that was written without quotes, so it is not shown.
      throw new ShapeProblem(
        node,
        'bad-value',
        'expected a secret, which is text: put it in quotes',
      );
    }
    if (!inClear && node.value.includes(REDACTED)) return refuseRedacted(node);
    return new Secret(node.value);
  },
  write: (value, { secret: show }) => show(value),
  schema: () => ({
    type: 'string',
    description: 'a secret; {env.VARIABLE} or {file.PATH} keep it out of this file',
  }),
};

/** A text that may contain a password, with what a Hubfile has in its place. */
export function secretText(expected: string): Shape<Secret> {
  return { ...secret, input: { kind: 'secret', expected } };
}

export const flag: Shape<boolean> = {
  input: { kind: 'flag' },
  read: (node) => (typeof node.value === 'boolean' ? node.value : refuse(node, 'true or false')),
  write: (value) => value,
  schema: () => ({ type: 'boolean' }),
};

const LARGEST_COUNT = 2 ** 31 - 1;

/** A whole number within bounds. */
export function count({ min = 0, max = LARGEST_COUNT } = {}): Shape<number> {
  const expected =
    max === LARGEST_COUNT ? `a whole number from ${min}` : `a number from ${min} to ${max}`;
  return {
    input: { kind: 'count', min, max },
    read({ value, ...at }) {
      const fits = typeof value === 'number' && Number.isInteger(value);
      return fits && value >= min && value <= max ? value : refuse({ value, ...at }, expected);
    },
    write: (value) => value,
    schema: () => ({ type: 'integer', minimum: min, maximum: max }),
  };
}

const DURATION = String.raw`^(?:0|(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d))+)$`;
const SIZE = String.raw`^\d+(?:\.\d+)?\s*(?:[kKmMgGtT][iI]?)?[bB]?$`;

/** A status of a response, or a text with placeholders that becomes one for each request. */
export type StatusValue = number | string;

export const isStatusTemplate = (text: string): boolean => /\{[^{}]+\}/.test(text);

/** A status within bounds, or a text with a placeholder. */
export function statusValue(bounds: {
  readonly min: number;
  readonly max: number;
}): Shape<StatusValue> {
  const code = count(bounds);
  return {
    read(node, reading) {
      const { value, start, end } = node;
      if (typeof value === 'string' && isStatusTemplate(value)) return value;
      // The value of `{env.STATUS}` is a text as well.
      const isCode = reading.inClear && typeof value === 'string' && /^\d{3}$/.test(value);
      return isCode
        ? `${code.read({ value: Number(value), start, end }, reading)}`
        : code.read(node, reading);
    },
    write: (value, { text: show }) => (typeof value === 'string' ? show(value) : value),
    schema: (definitions) => ({
      anyOf: [code.schema(definitions), { type: 'string', pattern: '\\{[^{}]+\\}' }],
    }),
  };
}

/** Milliseconds, as a number or as a duration such as `10s`. */
export function duration({ min = 0 } = {}): Shape<number> {
  const expected = 'a duration: milliseconds, or a text such as 10s';
  return { input: { kind: 'duration', min }, ...measure(min, expected, parseDuration, DURATION) };
}

/** Bytes, as a number or as a size such as `1MiB`. */
export function size({ min = 0 } = {}): Shape<number> {
  const expected = 'a size: bytes, or a text such as 1MiB';
  return { input: { kind: 'size', min }, ...measure(min, expected, parseSize, SIZE) };
}

function measure(
  min: number,
  expected: string,
  parse: (text: string) => number | null,
  written: string,
): Shape<number> {
  const bounded = min > 0 ? `${expected}, above 0` : expected;
  return {
    read(node) {
      const amount = typeof node.value === 'string' ? parse(node.value) : node.value;
      const fits = typeof amount === 'number' && Number.isSafeInteger(amount);
      return fits && amount >= min ? amount : refuse(node, bounded);
    },
    write: (value) => value,
    schema: () => ({
      type: ['integer', 'string'],
      minimum: min,
      pattern: written,
      description: bounded,
    }),
  };
}

/** One of a few known words. */
export function oneOf<const Choice extends string>(...choices: readonly Choice[]): Shape<Choice> {
  return {
    input: { kind: 'choice', choices },
    read: (node) => wordOf(node, choices),
    write: (value) => value,
    schema: () => ({ enum: choices }),
  };
}

/** One of a few known numbers. */
export function oneNumberOf<const Choice extends number>(
  ...choices: readonly Choice[]
): Shape<Choice> {
  return {
    read: (node) =>
      choices.find((choice) => choice === node.value) ?? refuse(node, choices.join(' or ')),
    write: (value) => value,
    schema: () => ({ enum: choices }),
  };
}

/** A value, or a word with a special meaning, such as `off`. */
export function orWord<T extends object | number | string, const Word extends string>(
  word: Word,
  shape: Shape<T>,
): Shape<T | Word> {
  return {
    read: (node, reading) => (node.value === word ? word : shape.read(node, reading)),
    write: (value, writing) => (typeof value === 'string' ? value : shape.write(value, writing)),
    schema: (definitions) => ({ anyOf: [{ const: word }, shape.schema(definitions)] }),
  };
}

/** A key that is not text, in the form in which `encodeConfig` passes it to a worker. */
function secretBytes(members: ReadonlyMap<string, DataMember>): Secret {
  const base64 = members.get('base64')?.value.value;
  return new Secret(Buffer.from(typeof base64 === 'string' ? base64 : '', 'base64'));
}

function refuseRedacted(node: DataNode): never {
  const message = `${REDACTED} marks a secret that was left out when this configuration was printed`;
  const hint =
    'write {env.VARIABLE} or {file.PATH}, or print the configuration with adapt --show-secrets';
  throw new ShapeProblem(node, 'redacted-secret', message, hint);
}
