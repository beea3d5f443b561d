import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** Where tokens come from that the app does not send itself. */
export interface TokenSource {
  /** On what of the request the outcome depends. */
  readonly dependence: Dependence;
  /** Fields of the app's response that it reads, which no client is to see. */
  readonly responseFields: readonly string[];
  /** The token for whoever gets this response. Never rejects. */
  tokenFor(exchange: Exchange, response: HeaderList): Promise<TokenOutcome>;
}

export type TokenOutcome =
  | { readonly kind: 'token'; readonly token: string }
  /** The texts name nobody: this is a guest, or no longer a user. */
  | { readonly kind: 'guest' }
  /** No handler has established the identity behind this request: it may be a user or a guest. */
  | { readonly kind: 'unknown' }
  /** There should be one, and the log says why there is none. */
  | { readonly kind: 'failed' };

export const GUEST: TokenOutcome = { kind: 'guest' };
export const UNKNOWN: TokenOutcome = { kind: 'unknown' };
export const FAILED: TokenOutcome = { kind: 'failed' };

export interface Dependence {
  /** Fields as clients send them: a cache can tell requests apart by them. */
  readonly onClientFields: readonly string[];
  /**
   * Fields that the gateway has put in itself (`copy_headers`, `request_header`): no cache before it
   * sees them, so none may share what depends on them.
   */
  readonly onOwnFields: boolean;
  /** Also on what the app answers, which may name its user on some pages only. */
  readonly onResponse: boolean;
}

/** What clients send and no one in between writes. */
const CLIENT_FIELDS = new Set(['authorization']);

/**
 * Fills a text that names a user, each value as `encode` makes it, from the identity of the exchange
 * and the app's answer alone; null where no handler has established what the text reads.
 */
export type ExpandIdentity = (
  template: string,
  exchange: Exchange,
  response: HeaderList,
  encode: (value: string) => string,
) => string | null;

/**
 * What the placeholders of some texts read of the request.
 *
 * @param templates those that the gateway fills from what it has established
 * @param subject one that a client may fill with a credential, which somebody else verifies
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

/** Fields of the response that the placeholders of some texts name. */
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
