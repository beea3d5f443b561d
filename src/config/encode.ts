import type { Secret } from '../kernel/secret.ts';
import { isSecretName, withoutSecretParts } from '../kernel/secret-names.ts';
import type { Config } from './config.ts';
import type { ConfigRegistry } from './routes.ts';
import { configShape } from './shape-config.ts';
import { REDACTED } from './shape-values.ts';

export interface EncodeOptions {
  /** Print secrets as they are; else they are `[redacted]`, and only placeholders stay. */
  readonly showSecrets: boolean;
  /** Leave out what is as the defaults have it. */
  readonly brief: boolean;
  /** What came from the environment: hidden wherever a text holds it, unless secrets are shown. */
  readonly fromEnvironment?: readonly string[];
}

const PLACEHOLDERS_ONLY = /^(?:\{[a-z_]+(?:\.[^{}]+)?\}|\s|Bearer|Basic)+$/;
/** Members that hold what a header field or a parameter is set to, or compared with. */
const VALUES = new Set(['value', 'values', 'replacement', 'pattern']);

/** A configuration as plain data: what `adapt` prints, and what {@link decodeConfig} reads. */
export function encodeConfig(
  config: Config,
  registry: ConfigRegistry,
  { showSecrets, brief, fromEnvironment = [] }: EncodeOptions,
): unknown {
  const shape = configShape(registry);
  if (showSecrets) {
    return shape.write(config, { secret: inClear, text: (value) => value, brief });
  }
  const text = (value: string): string =>
    fromEnvironment.reduce((shown, each) => shown.replaceAll(each, REDACTED), value);
  return withoutCredentials(shape.write(config, { secret: String, text, brief }));
}

/** Bytes that are no text travel as what no text can be mistaken for. */
function inClear(secret: Secret): unknown {
  return secret.isText ? secret.reveal() : { base64: secret.bytes().toString('base64') };
}

/** Hides what may be a secret although it is no key: credential fields, parts of URLs. */
function withoutCredentials(data: unknown): unknown {
  if (typeof data === 'string') return withoutSecretParts(data, REDACTED);
  if (Array.isArray(data)) return data.map(withoutCredentials);
  if (typeof data !== 'object' || data === null) return data;
  const isCredential = ['name', 'header'].some((member) => {
    const field: unknown = Reflect.get(data, member);
    return typeof field === 'string' && isSecretName(field);
  });
  return Object.fromEntries(
    Object.entries(data).map(([name, value]: [string, unknown]) => [
      name,
      isCredential && VALUES.has(name) ? hidden(value) : withoutCredentials(value),
    ]),
  );
}

function hidden(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(hidden);
  return typeof value === 'string' && PLACEHOLDERS_ONLY.test(value) ? value : REDACTED;
}
