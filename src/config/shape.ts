// One description of `Config` is its type and its defaults, decodes YAML and JSON, encodes the output of `adapt`,
// and produces the JSON Schema.

import { isDeepStrictEqual } from 'node:util';
import type { Secret } from '../kernel/secret.ts';
import { nearestName, type UnplacedProblem, error } from './problem.ts';

/** A range of a text; offsets in characters. */
export interface SourceRange {
  readonly start: number;
  readonly end: number;
}

/** A value of a YAML or JSON text with its position. */
export interface DataNode extends SourceRange {
  readonly value: DataValue;
}

export type DataValue =
  | null
  | boolean
  | number
  | string
  | readonly DataNode[]
  | ReadonlyMap<string, DataMember>;

export interface DataMember {
  readonly key: SourceRange;
  readonly value: DataNode;
}

/** Receives the findings while data is read. */
export interface Reading {
  readonly report: (at: SourceRange, finding: UnplacedProblem) => void;
  /** Called with the position of each object and list of the configuration, and those of its fields. */
  readonly mark: (part: object, at: SourceRange, fields: ReadonlyMap<string, SourceRange>) => void;
  /** Called for each site with the number of its findings. */
  readonly site: (part: object, findings: number) => void;
  /** Whether the data contains the secrets. Otherwise `[redacted]` stands for a missing one. */
  readonly inClear: boolean;
}

/** How a configuration is converted to data. */
interface Writing {
  readonly secret: (secret: Secret) => unknown;
  /** Converts a text that may contain values from the environment. */
  readonly text: (value: string) => string;
  /** Whether values that equal the defaults are left out. */
  readonly brief: boolean;
}

/** How a value is written behind the name of its option in a Hubfile. */
export type OptionInput =
  | { readonly kind: 'flag' }
  | { readonly kind: 'count'; readonly min: number; readonly max: number }
  | { readonly kind: 'duration' | 'size'; readonly min: number }
  | { readonly kind: 'choice'; readonly choices: readonly string[] }
  | { readonly kind: 'secret' | 'names'; readonly expected: string }
  | {
      readonly kind: 'text';
      readonly expected: string;
      readonly isFit: (text: string) => boolean;
    };

/** One kind of value of the configuration: how it is read from data, and how it is written. */
export interface Shape<T> {
  /** Missing: a Hubfile has a notation of its own. */
  readonly input?: OptionInput | undefined;
  /** @throws {ShapeProblem} if the data has another shape */
  read(node: DataNode, reading: Reading): T;
  write(value: T, writing: Writing): unknown;
  /**
   * The JSON Schema of the data that it reads, which editors use for completion. It may be less strict than
   * `read`.
   */
  schema(definitions: Definitions): JsonSchema;
}

/**
 * The shape of a member that may be left out.
 *
 * @public because the declarations of other modules name it
 */
export interface DefaultedShape<T> extends Shape<T> {
  readonly standard: T;
}

/** The data that a shape describes. */
export type DataOf<S> = S extends Shape<infer T> ? T : never;

/** The data that members describe. The documentation of a member is that of the field. */
export type Of<M> = { readonly [Name in keyof M]: DataOf<M[Name]> };

/** The data of those members that may be left out. */
type DefaultsOf<M> = Of<{
  [Name in keyof M as M[Name] extends DefaultedShape<unknown> ? Name : never]: M[Name];
}>;

/** A schema of draft 2020-12. */
export type JsonSchema = Readonly<Record<string, unknown>>;
/** Schemas that others reference by name, including those that contain themselves. */
type Definitions = Map<string, JsonSchema>;

/** Data that is not as expected. Caught and reported at a point from which other values can still be read. */
export class ShapeProblem extends Error {
  readonly at: SourceRange;
  readonly finding: UnplacedProblem;

  constructor(at: SourceRange, code: string, message: string, hint?: string) {
    super(message);
    this.at = at;
    this.finding = error(code, message, hint);
  }
}

/** Returns the result of `read`, or undefined for invalid data, which is then reported. */
export function attempt<T>(reading: Reading, read: () => T): T | undefined {
  try {
    return read();
  } catch (thrown) {
    if (!(thrown instanceof ShapeProblem)) throw thrown;
    reading.report(thrown.at, thrown.finding);
    return undefined;
  }
}

export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return {
    input: shape.input,
    read: (node, reading) => (node.value === null ? null : shape.read(node, reading)),
    write: (value, writing) => (value === null ? null : shape.write(value, writing)),
    schema: (definitions) => ({ anyOf: [shape.schema(definitions), { type: 'null' }] }),
  };
}

/** A member that may be left out. */
export function withDefault<T>(shape: Shape<T>, standard: NoInfer<T>): DefaultedShape<T> {
  return { ...shape, standard };
}

/** A member that is null unless it is given. */
export function optional<T>(shape: Shape<T>): DefaultedShape<T | null> {
  return withDefault(nullable(shape), null);
}

/** An object that may be left out, because each of its members may. */
export function section<T extends object>(
  members: {
    readonly [Name in keyof T]-?: DefaultedShape<T[Name]>;
  },
): DefaultedShape<Readonly<T>> {
  // Each member has a default.
  return withDefault(object<T>(members), defaultsOf(members) as T);
}

/** The values of the members that are left out. */
export function defaultsOf<M extends object>(members: M): DefaultsOf<M> {
  const entries = Object.entries(members).flatMap(([each, shape]: [string, object]) =>
    'standard' in shape ? [[each, shape.standard] as const] : [],
  );
  // The condition is that of the type.
  return Object.fromEntries(entries) as DefaultsOf<M>;
}

export function list<T>(item: Shape<T>, { min = 0 } = {}): Shape<readonly T[]> {
  return {
    read(node, reading) {
      if (!Array.isArray(node.value)) return refuse(node, 'a list');
      // Array.isArray does not narrow to a readonly array by itself.
      const nodes: readonly DataNode[] = node.value;
      if (nodes.length < min) return refuse(node, 'a list that is not empty');
      const items = nodes.flatMap((each) => {
        const value = attempt(reading, () => item.read(each, reading));
        return value === undefined ? [] : [value];
      });
      reading.mark(items, node, new Map());
      return items;
    },
    write: (values, writing) => values.map((value) => item.write(value, writing)),
    schema: (definitions) => ({
      type: 'array',
      items: item.schema(definitions),
      ...(min > 0 ? { minItems: min } : {}),
    }),
  };
}

/** A shape that is created later because it contains itself. Schemas reference it by name. */
export function later<T>(name: string, shape: () => Shape<T>): Shape<T> {
  return {
    read: (node, reading) => shape().read(node, reading),
    write: (value, writing) => shape().write(value, writing),
    schema(definitions) {
      if (!definitions.has(name)) {
        // The schema contains a reference to itself.
        definitions.set(name, {});
        definitions.set(name, shape().schema(definitions));
      }
      return { $ref: `#/$defs/${name}` };
    },
  };
}

/** The shape of each member of an object. The compiler checks that none is missing. */
export type Members<T> = { readonly [Name in keyof T]-?: Shape<T[Name]> };

/**
 * An object. Members without a default are required.
 *
 * @param dependent further defaults, which depend on the members that are given
 */
export function object<T extends object>(
  members: Members<T>,
  dependent: (has: (name: keyof T) => boolean) => Partial<NoInfer<T>> = () => ({}),
): Shape<Readonly<T>> {
  const shapes = Object.entries<Shape<unknown>>(members);
  const names = shapes.map(([each]) => each);
  const fixed = defaultsOf(members);
  const defaultsFor = (has: (name: string) => boolean): Partial<Record<string, unknown>> => ({
    ...fixed,
    ...dependent((each) => has(String(each))),
  });
  return {
    read(node, reading) {
      const given = membersOf(node);
      for (const [key, member] of given) {
        if (!names.includes(key)) attempt(reading, () => refuseMember(key, member, names));
      }
      const has = (each: string): boolean => (given.get(each)?.value.value ?? null) !== null;
      const standard = defaultsFor(has);
      const values = shapes.map(([each, shape]): [string, unknown] => {
        const member = given.get(each);
        if (member !== undefined) {
          return [each, attempt(reading, () => shape.read(member.value, reading))];
        }
        if (!Object.hasOwn(standard, each)) {
          attempt(reading, () => {
            throw new ShapeProblem(start(node), 'missing-member', `"${each}" is missing here`);
          });
        }
        return [each, standard[each]];
      });
      // Every member has been read by its shape. A member that could not be read is undefined, but then an
      // error is reported and the object is discarded.
      const result = Object.fromEntries(values) as T;
      const fields = new Map([...given].map(([each, { key }]) => [each, key]));
      reading.mark(result, start(node), fields);
      return result;
    },
    write(value, writing) {
      const valueOf = (each: string): unknown => Reflect.get(value, each);
      const standard = defaultsFor((each) => valueOf(each) !== null);
      const written = shapes.filter(([each]) => {
        if (!writing.brief || !Object.hasOwn(standard, each)) return true;
        return !isDeepStrictEqual(valueOf(each), standard[each]);
      });
      return Object.fromEntries(
        written.map(([each, shape]) => [each, shape.write(valueOf(each), writing)]),
      );
    },
    schema(definitions) {
      const standard = defaultsFor(() => false);
      const properties = shapes.map(([each, shape]) => {
        const schema = shape.schema(definitions);
        const value = Object.hasOwn(standard, each) ? standard[each] : undefined;
        const isPlain = value === null || ['string', 'number', 'boolean'].includes(typeof value);
        return [each, isPlain ? { ...schema, default: value } : schema];
      });
      const required = names.filter((each) => !Object.hasOwn(standard, each));
      return {
        type: 'object',
        properties: Object.fromEntries(properties),
        ...(required.length > 0 ? { required } : {}),
        additionalProperties: false,
      };
    },
  };
}

/** The members of one variant of a union, without its `kind`. */
type Variant<T extends { readonly kind: string }, Kind> = T extends {
  readonly kind: infer Kinds;
}
  ? Kind extends Kinds
    ? Omit<T, 'kind'>
    : never
  : never;

/** The shape of each variant of a union, by its `kind`. */
export type KindShapes<T extends { readonly kind: string }> = {
  readonly [Kind in T['kind']]: Shape<Variant<T, Kind>>;
};

/** A union whose variants are distinguished by `kind`. */
export function byKind<T extends { readonly kind: string }>(variants: KindShapes<T>): Shape<T> {
  const kinds = Object.keys(variants);
  const shapeOf = (kind: string): Shape<object> | undefined =>
    // The key is one of the keys of the table.
    kinds.includes(kind) ? (Reflect.get(variants, kind) as Shape<object>) : undefined;
  return {
    read(node, reading) {
      const given = membersOf(node);
      const member = given.get('kind');
      if (member === undefined) {
        const message = `"kind" is missing here; it is one of ${kinds.join(', ')}`;
        throw new ShapeProblem(start(node), 'missing-member', message);
      }
      const kind = wordOf(member.value, kinds);
      const others = new Map([...given].filter(([key]) => key !== 'kind'));
      const marks = { fields: new Map<string, SourceRange>() };
      const rest = shapeOf(kind)?.read(
        { ...node, value: others },
        {
          ...reading,
          mark: (part, at, fields) => {
            marks.fields = new Map(fields);
            reading.mark(part, at, fields);
          },
        },
      );
      // `rest` is the result of the shape of this kind.
      const result = { kind, ...rest } as unknown as T;
      // The object itself is the last one that its shape marks.
      reading.mark(result, start(node), marks.fields);
      return result;
    },
    write: (value, writing) => {
      const written = shapeOf(value.kind)?.write(value, writing);
      return { kind: value.kind, ...(typeof written === 'object' ? written : {}) };
    },
    schema: (definitions) => ({
      oneOf: kinds.map((kind) => ofKind(kind, shapeOf(kind)?.schema(definitions) ?? {})),
    }),
  };
}

function ofKind(kind: string, { properties, required, ...rest }: JsonSchema): JsonSchema {
  return {
    ...rest,
    properties: { kind: { const: kind }, ...(typeof properties === 'object' ? properties : {}) },
    required: ['kind', ...(Array.isArray(required) ? required : [])],
  };
}

/** @throws {ShapeProblem} for any other word; it names the nearest one */
export function wordOf<const Choice extends string>(
  node: DataNode,
  choices: readonly Choice[],
): Choice {
  const found = choices.find((choice) => choice === node.value);
  if (found !== undefined) return found;
  const near = typeof node.value === 'string' ? nearestName(node.value, choices) : undefined;
  const expected = choices.length === 1 ? choices.join() : `one of ${choices.join(', ')}`;
  return refuse(node, expected, near === undefined ? undefined : `did you mean "${near}"?`);
}

function membersOf(node: DataNode): ReadonlyMap<string, DataMember> {
  return node.value instanceof Map ? node.value : refuse(node, 'an object with members');
}

/** The beginning of an object or a list. A caret below all of it would be useless. */
function start(at: SourceRange): SourceRange {
  return { start: at.start, end: Math.min(at.end, at.start + 1) };
}

function refuseMember(key: string, { key: at }: DataMember, known: readonly string[]): never {
  const near = nearestName(
    key.replaceAll(/[A-Z]/g, (letter) => `_${letter}`),
    known.map(underscored),
  );
  const found = near === undefined ? undefined : known.find((each) => underscored(each) === near);
  const hint = found === undefined ? `known are ${known.join(', ')}` : `did you mean "${found}"?`;
  // The text in place of a name may be a stray line of a key.
  const shown = key.length > 40 ? '[…]' : `"${key.replaceAll(/\p{Cc}/gu, '·')}"`;
  throw new ShapeProblem(at, 'unknown-member', `unknown member ${shown}`, hint);
}

/** Converts `heartbeatMs` to `heartbeat_ms`, so that a written `heartbeat_ms` is recognised as meaning it. */
export function underscored(camelCase: string): string {
  return camelCase.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** @throws {ShapeProblem} `bad-value` */
export function refuse(node: DataNode, expected: string, hint?: string): never {
  const message = `expected ${expected}, not ${describe(node.value)}`;
  const isCompound = typeof node.value === 'object' && node.value !== null;
  throw new ShapeProblem(isCompound ? start(node) : node, 'bad-value', message, hint);
}

function describe(value: DataValue): string {
  if (value === null) return 'null';
  if (typeof value === 'object') return Array.isArray(value) ? 'a list' : 'an object';
  if (typeof value !== 'string') return String(value);
  const short = value.length > 60 ? `${value.slice(0, 60)}…` : value;
  return `"${short.replaceAll(/\p{Cc}/gu, '·')}"`;
}
