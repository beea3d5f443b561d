import {
  isSecretName,
  looksLikeAlgorithm,
  type Secret,
  withoutSecretParts,
  withoutValues,
  REDACTED,
} from '../kernel/secret.ts';
import type { Config } from './config.ts';
import type { ConfigRegistry } from './routes.ts';
import { configShape } from './shape-config.ts';
import { attempt, type DataNode, type DataValue, type JsonSchema, type Reading } from './shape.ts';

export interface EncodeOptions {
  /** Whether secrets are printed in clear. Otherwise they become `[redacted]`, and only placeholders stay. */
  readonly showSecrets: boolean;
  /** Whether values that equal the defaults are left out. */
  readonly brief: boolean;
  /** Values from the environment. They are hidden in every text, unless secrets are shown. */
  readonly fromEnvironment?: readonly string[];
}

const PLACEHOLDERS_ONLY = /^(?:\{[a-z_]+(?:\.[^{}]+)?\}|\s|Bearer|Basic)+$/;
/** Members that say which field, parameter or variable an object is about: by its name, or in placeholders. */
const SUBJECTS = ['name', 'header', 'field', 'variable', 'source', 'destinations'];
/** Members with what it is set to, or compared with. */
const VALUES = new Set(['value', 'values', 'replacement', 'pattern', 'cases', 'defaults']);
const PLACEHOLDER = /\{([\w.-]+)\}/g;
const LITERAL = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g;

/** Converts a configuration to plain data: the output of `adapt`, and the input of {@link decodeConfig}. */
export function encodeConfig(
  config: Config,
  registry: ConfigRegistry,
  { showSecrets, brief, fromEnvironment = [] }: EncodeOptions,
): unknown {
  const shape = configShape(registry);
  if (showSecrets) return shape.write(config, { secret: inClear, text: (value) => value, brief });
  const text = (value: string): string => withoutValues(value, fromEnvironment);
  return withoutCredentials(shape.write(config, { secret: String, text, brief }));
}

/** Bytes that are not text become an object, which cannot be mistaken for text. */
function inClear(secret: Secret): unknown {
  return secret.isText ? secret.reveal() : { base64: secret.bytes().toString('base64') };
}

/** Hides values that may be secret although they are not keys: credential fields, parts of URLs. */
function withoutCredentials(data: unknown): unknown {
  if (typeof data === 'string') return withoutSecretParts(data);
  if (Array.isArray(data)) return data.map(withoutCredentials);
  if (typeof data !== 'object' || data === null) return data;
  const isCredential = SUBJECTS.flatMap((member): unknown => Reflect.get(data, member)).some(
    (subject) => typeof subject === 'string' && (isSecretName(subject) || readsSecret(subject)),
  );
  const shown = (name: string, value: unknown): unknown => {
    const isText = typeof value === 'string';
    if (name === 'expression' && isText) return withoutComparedSecrets(value);
    // A key and its algorithm are easily exchanged.
    const isMisplaced = name === 'algorithm' && isText && !looksLikeAlgorithm(value);
    return isMisplaced || (isCredential && VALUES.has(name))
      ? hidden(value)
      : withoutCredentials(value);
  };
  return Object.fromEntries(
    Object.entries(data).map(([name, value]: [string, unknown]) => [name, shown(name, value)]),
  );
}

function hidden(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(hidden);
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, hidden(each)]));
  }
  return typeof value === 'string' && PLACEHOLDERS_ONLY.test(value) ? value : REDACTED;
}

/** Whether a text has the placeholder of a secret field, parameter or variable, or of a cookie. */
function readsSecret(text: string): boolean {
  return [...text.matchAll(PLACEHOLDER)].some(
    ([, name = '']) => /(?:^|\.)cookie\./.test(name) || isSecretName(name.split('.').at(-1) ?? ''),
  );
}

/** An expression without its texts if it reads something secret. Names of fields and parameters stay. */
function withoutComparedSecrets(expression: string): string {
  const isName = (literal: string): boolean => isSecretName(literal.slice(1, -1));
  if (!readsSecret(expression) && !(expression.match(LITERAL) ?? []).some(isName)) {
    return withoutSecretParts(expression);
  }
  return expression.replaceAll(LITERAL, (literal) => (isName(literal) ? literal : `"${REDACTED}"`));
}

/**
 * Converts data to a configuration, with defaults for missing members. Everything invalid is reported.
 * Returns null if nothing could be read.
 */
export function decodeConfig(
  data: DataNode,
  registry: ConfigRegistry,
  reading: Reading,
): Config | null {
  return attempt(reading, () => configShape(registry).read(data, reading)) ?? null;
}

/**
 * Decodes the output of `encodeConfig` with its secrets in clear, of any size.
 *
 * @throws TypeError for anything else
 */
export function decodeEncoded(data: unknown, registry: ConfigRegistry): Config {
  const refuse = (message: string): never => {
    throw new TypeError(`The configuration was not encoded by this version: ${message}`);
  };
  const config = decodeConfig(nodeOf(data), registry, {
    report: (_, { message }) => refuse(message),
    mark: () => {},
    site: () => {},
    inClear: true,
  });
  return config ?? refuse('it is empty');
}

/** A node for data without source positions. */
function nodeOf(data: unknown): DataNode {
  return { value: valueOf(data), start: 0, end: 0 };
}

function valueOf(data: unknown): DataValue {
  if (Array.isArray(data)) return data.map(nodeOf);
  if (typeof data === 'object' && data !== null) {
    const key = { start: 0, end: 0 };
    return new Map(
      Object.entries(data).map(([name, value]) => [name, { key, value: nodeOf(value) }] as const),
    );
  }
  if (typeof data === 'string' || typeof data === 'number' || typeof data === 'boolean')
    return data;
  return null;
}

/**
 * The JSON Schema (draft 2020-12) of configurations in YAML and JSON. It is generated, and shipped as a file.
 */
export function configSchema(registry: ConfigRegistry): JsonSchema {
  const definitions = new Map<string, JsonSchema>();
  const { properties, ...schema } = configShape(registry).schema(definitions);
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'hubgate',
    description: 'Configuration of hubgate: docs/hubfile.md, "YAML and JSON"',
    ...schema,
    properties: {
      $schema: { type: 'string', description: 'the place of this schema, for editors' },
      ...(typeof properties === 'object' ? properties : {}),
    },
    $defs: Object.fromEntries(definitions),
  };
}
