import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { MintRequest, RequestedGrants } from '../auth/mint.ts';
import type { TokenGrantsConfig } from '../config/config.ts';
import { HubgateError } from '../kernel/error.ts';

/** A source of tokens that the app does not send itself. */
export interface TokenSource {
  /** The parts of the request that the result depends on. */
  readonly dependence: Dependence;
  /** Fields of the app's response that it reads, and that clients must not see. */
  readonly responseFields: readonly string[];
  /** The token for the recipient of this response. Never rejects. */
  tokenFor(exchange: Exchange, response: HeaderList): Promise<TokenOutcome>;
}

export type TokenOutcome =
  | { readonly kind: 'token'; readonly token: string }
  /** The texts identify no user: this is a guest, or the user has logged out. */
  | { readonly kind: 'guest' }
  /** No handler has established the identity behind this request: it may be a user or a guest. */
  | { readonly kind: 'unknown' }
  /** A token should exist; the log contains the reason why it does not. */
  | { readonly kind: 'failed' };

export const GUEST: TokenOutcome = { kind: 'guest' };
export const UNKNOWN: TokenOutcome = { kind: 'unknown' };
export const FAILED: TokenOutcome = { kind: 'failed' };

export interface Dependence {
  /** Fields as clients send them, with which a cache can distinguish requests. */
  readonly onClientFields: readonly string[];
  /**
   * Fields that the gateway has set itself (`copy_headers`, `request_header`). No cache in front sees them,
   * so responses that depend on them must not be shared.
   */
  readonly onOwnFields: boolean;
  /** Whether it also depends on the app's response, which may identify its user only on some pages. */
  readonly onResponse: boolean;
}

/** Fields that only clients write, and nothing in between. */
const CLIENT_FIELDS = new Set(['authorization']);

/**
 * Fills in a text that identifies a user, with each value encoded by `encode`, only from the identity of the
 * exchange and the app's response; null if no handler has established a value.
 */
export type ExpandIdentity = (
  template: string,
  exchange: Exchange,
  response: HeaderList,
  encode: (value: string) => string,
) => string | null;

/**
 * The parts of the request that the placeholders of some texts depend on.
 *
 * @param templates filled in from what the gateway has established
 * @param subject may contain a credential of the client, which another server verifies
 */
export function dependenceOf(
  templates: readonly string[],
  subject: string | null = null,
): Dependence {
  const onClientFields = new Set<string>();
  let onOwnFields = placeholdersIn(templates).some(
    ({ family }) => family === 'header' || family === 'user',
  );
  const all = subject === null ? templates : [...templates, subject];
  for (const { family, name } of placeholdersIn(subject === null ? [] : [subject])) {
    if (family === 'cookie') onClientFields.add('Cookie');
    else if (family === 'header' && CLIENT_FIELDS.has(name.toLowerCase())) onClientFields.add(name);
    else if (family === 'header' || family === 'user') onOwnFields = true;
  }
  const onResponse = responseFieldsIn(all).length > 0;
  return { onClientFields: [...onClientFields], onOwnFields, onResponse };
}

/** Response fields in the placeholders of some texts. */
export function responseFieldsIn(templates: readonly string[]): readonly string[] {
  const named = placeholdersIn(templates).filter(({ family }) => family === RESPONSE);
  return [...new Set(named.map(({ name }) => name))];
}

const RESPONSE = 'http.response.header';

function placeholdersIn(templates: readonly string[]): { family: string; name: string }[] {
  return templates.flatMap((template) =>
    [
      ...template.matchAll(
        /\{(?:http\.request\.(?=cookie|header))?(cookie|header|http\.response\.header)\.([^{}]+)\}|\{(?:http\.)?auth\.user\.id\}/g,
      ),
    ].map(([, family = 'user', name = '']) => ({ family, name })),
  );
}

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
