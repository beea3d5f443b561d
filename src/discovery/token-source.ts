import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

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
