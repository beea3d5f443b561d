import type { Exchange } from '../http/exchange.ts';
import { isSecretName } from '../kernel/secret.ts';

/** Replaces values that must not be logged. */
export const HIDDEN = 'REDACTED';

/** A shorter value is not looked for: it may stand in a text by chance. */
const MIN_LENGTH = 8;

/**
 * The credentials that a request carries: the values of its secret fields and parameters, the part behind the
 * scheme, and each cookie. The longest comes first, so that a part of it never remains.
 */
export function secretsOf(
  { headers, originalTarget }: Exchange,
  logCredentials: boolean,
): readonly string[] {
  const found = new Set<string>();
  const add = (value: string): void => {
    if (value.length < MIN_LENGTH) return;
    found.add(value);
    found.add(encodeURIComponent(value));
  };
  if (!logCredentials) {
    for (const [name, value] of headers) {
      if (!isSecretName(name)) continue;
      add(value);
      if (name.toLowerCase() === 'cookie') {
        for (const pair of value.split(';')) add(pair.slice(pair.indexOf('=') + 1).trim());
      } else {
        add(value.slice(value.indexOf(' ') + 1).trim());
      }
    }
  }
  const [, query = ''] = originalTarget.split(/\?(.*)/s);
  for (const [name, value] of new URLSearchParams(query)) if (isSecretName(name)) add(value);
  return [...found].sort((a, b) => b.length - a.length);
}

/** A text in which the sign stands for each of the secrets. */
export function withoutSecrets(text: string, secrets: readonly string[], sign: string): string {
  let shown = text;
  for (const secret of secrets) {
    if (shown.includes(secret)) shown = shown.replaceAll(secret, () => sign);
  }
  return shown;
}
