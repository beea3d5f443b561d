import type { Secret } from '../kernel/secret.ts';
import type { Config } from './config.ts';
import { configShape } from './shape-config.ts';
import { REDACTED } from './shape-values.ts';

export interface EncodeOptions {
  /** Print secrets as they are; else they are `[redacted]`, and only placeholders stay. */
  readonly showSecrets: boolean;
  /** Leave out what is as the defaults have it. */
  readonly brief: boolean;
}

const CREDENTIAL_FIELD =
  /^(?:proxy-)?authorization$|^(?:set-)?cookie$|api-?key|secret|password|token$/i;
const USER_INFO = /(?<=:\/\/)[^\s/@"`]+(?=@)/g;
const PLACEHOLDERS_ONLY = /^(?:\{[a-z_]+(?:\.[^{}]+)?\}|\s|Bearer|Basic)+$/;

/** A configuration as plain data: what `adapt` prints, and what {@link decodeConfig} reads. */
export function encodeConfig(config: Config, { showSecrets, brief }: EncodeOptions): unknown {
  const secret = (value: Secret): string => (showSecrets ? value.reveal() : value.toString());
  const data = configShape.write(config, { secret, brief });
  return showSecrets ? data : withoutCredentials(data);
}

/** Hides what may be a secret although it is no key: credential headers, user info in URLs. */
function withoutCredentials(data: unknown): unknown {
  if (typeof data === 'string') return data.replaceAll(USER_INFO, REDACTED);
  if (Array.isArray(data)) return data.map(withoutCredentials);
  if (typeof data !== 'object' || data === null) return data;
  const field: unknown = Reflect.get(data, 'name');
  const isCredential = typeof field === 'string' && CREDENTIAL_FIELD.test(field);
  return Object.fromEntries(
    Object.entries(data).map(([name, value]: [string, unknown]) => {
      const hides = isCredential && (name === 'value' || name === 'replacement');
      return [name, hides ? hidden(value) : withoutCredentials(value)];
    }),
  );
}

function hidden(value: unknown): unknown {
  return typeof value === 'string' && PLACEHOLDERS_ONLY.test(value) ? value : REDACTED;
}
