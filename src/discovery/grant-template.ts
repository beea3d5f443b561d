import type { MintRequest, RequestedGrants } from '../auth/mint.ts';
import type { TokenGrantsConfig } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';

type JsonValue = Exclude<MintRequest['payload'], undefined>;

/**
 * Replaces the placeholders of a template with values encoded by `encode`; null if one of them has not been
 * established.
 */
type Fill = (template: string, encode: (value: string) => string) => string | null;

/** Longest value of a placeholder in a token, in characters. */
const MAX_VALUE = 1024;
/** Deepest nesting of a payload. */
const MAX_DEPTH = 32;

/**
 * Creates the grants of one token: `withheld` if a value is not allowed in its place, `unknown` if one has
 * not been established.
 */
export type FillGrants = (fill: Fill) => RequestedGrants | 'withheld' | 'unknown';

/**
 * Compiles grants with placeholders. A value is always one piece of text in its place: it cannot become a
 * wildcard, another path segment or another member of the payload.
 *
 * @throws HubgateError `invalid-payload`
 */
export function compileGrants(config: TokenGrantsConfig): FillGrants {
  const payload = parsePayload(config.payload);
  return (fill) => {
    let withheld = false;
    let unknown = false;
    const checked =
      (encode: (value: string) => string | null) =>
      (template: string): string => {
        const filled = fill(template, (value) => {
          const encoded = encode(value);
          if (encoded === null) withheld = true;
          return encoded ?? '';
        });
        if (filled === null) unknown = true;
        return filled ?? '';
      };
    const matchers = (exact: readonly string[], patterns: readonly string[]) => [
      ...exact.map((text) => ({ match: grant(text), matchType: 'exact' as const })),
      ...patterns.map((text) => ({ match: grant(text), matchType: 'urlpattern' as const })),
    ];
    const grant = checked(grantValue);
    const filled: RequestedGrants = {
      subscribe: matchers(config.subscribe, config.subscribeUrlPattern),
      publish: matchers(config.publish, config.publishUrlPattern),
      payload: payload === undefined ? undefined : mapTexts(payload, checked(plainValue)),
    };
    if (unknown) return 'unknown';
    return withheld ? 'withheld' : filled;
  };
}

/** All texts of a configuration that may contain placeholders. */
export function grantTemplates(config: TokenGrantsConfig): readonly string[] {
  const { subscribe, subscribeUrlPattern, publish, publishUrlPattern, payload } = config;
  const topics = [...subscribe, ...subscribeUrlPattern, ...publish, ...publishUrlPattern];
  return payload === null ? topics : [...topics, payload];
}

/**
 * A value as part of a topic or pattern: percent-encoded except for `A–Z a–z 0–9 - . _ ~`, so that nothing in
 * it has a meaning in a URL Pattern. null for values for which the token is withheld: an empty one, and those
 * that URL parsing would remove even when they are encoded.
 */
export function grantValue(value: string): string | null {
  const plain = plainValue(value);
  if (plain === null || plain === '.' || plain === '..') return null;
  return plain.replace(/[^\w.~-]/gu, (character) =>
    [...Buffer.from(character, 'utf8')]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  );
}

function plainValue(value: string): string | null {
  return value === '' || value.length > MAX_VALUE || /\p{Cc}/u.test(value) ? null : value;
}

function parsePayload(text: string | null): JsonValue | undefined {
  if (text === null) return undefined;
  try {
    // JSON.parse returns a JSON value, although its type does not declare that.
    const value = JSON.parse(text) as JsonValue;
    if (depthOf(value) > MAX_DEPTH) throw new Error(`it is nested deeper than ${MAX_DEPTH}`);
    return value;
  } catch (error) {
    throw new HubgateError(
      'invalid-payload',
      'payload must be JSON, with placeholders only inside strings',
      { cause: error },
    );
  }
}

function depthOf(value: JsonValue): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

function mapTexts(value: JsonValue, change: (text: string) => string): JsonValue {
  if (typeof value === 'string') return change(value);
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, change));
  const members = Object.entries(value).map(([name, member]) => [name, mapTexts(member, change)]);
  return Object.fromEntries(members);
}
