import { issueToken } from '../auth/mint.ts';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { selfLink } from '../http/field-values.ts';
import { utf8Field } from '../http/header-list.ts';
import type { HubEndpoint } from './endpoint.ts';
import { parseQuery, valuesOf } from './form.ts';
import type { Identity } from './identity.ts';
import { notFound } from './refusal.ts';

/** Validity of a token of the playground, in milliseconds. */
const LIFETIME_MS = 3_600_000;
const EVERYTHING = [{ match: '*', matchType: 'exact' }] as const;

/** `GET HUB/debug/playground-token`: a token that grants everything for an hour, as text. */
export function createPlaygroundToken({
  playground,
  clock,
  detailType,
}: HubEndpoint): (exchange: Exchange, identity: Identity) => Promise<void> {
  const signer = playground?.signer ?? null;
  return async (exchange, identity) => {
    if (signer === null) throw notFound();
    const now = clock.now();
    const { token } = await issueToken({
      key: signer.key,
      issuer: signer.issuer,
      audience: identity.resource,
      issuedAtMs: now,
      expiresAtMs: now + LIFETIME_MS,
      detailType,
      publish: signer.mayPublish ? EVERYTHING : [],
      subscribe: EVERYTHING,
      payload: { playground: true },
    });
    answer(exchange, 200, { 'content-type': 'text/plain', 'cache-control': 'no-store' }, token);
  };
}

/**
 * Handles the paths of the playground that are not below the hub's path; returns false for any other request.
 */
export function createPlayground(
  endpoint: HubEndpoint,
): (exchange: Exchange, path: string) => boolean {
  if (endpoint.playground === null) return () => false;
  return (exchange, path) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD') return false;
    if (path === '/') answer(exchange, 302, { location: `${endpoint.path}/debug/` });
    else if (path.startsWith('/playground/')) answerPlaygroundResource(exchange, endpoint);
    else return false;
    return true;
  };
}

/**
 * `GET /playground/…?body=B&jwt=J`: a page of a simulated app, with its discovery headers and the cookie that
 * a real app would have requested.
 */
function answerPlaygroundResource(
  exchange: Exchange,
  { profile, path, cookieName }: HubEndpoint,
): void {
  const query = parseQuery(exchange.target) ?? [];
  const body = valuesOf(query, 'body')[0] ?? '';
  const token = valuesOf(query, 'jwt')[0] ?? '';
  const name = cookieName === profile.cookieName ? '' : `; cookie-name="${cookieName}"`;
  const value = /^[\w.-]*$/.test(token) ? token : '';
  const self = selfLink(exchange.originalTarget);
  const attributes = `Path=${path}; HttpOnly; SameSite=Strict${exchange.scheme === 'https' ? '; Secure' : ''}`;
  answer(
    exchange,
    200,
    {
      'content-type': 'application/ld+json',
      'cache-control': 'no-store',
      link: [
        utf8Field(`<${path}>; rel="${profile.relation}"${name}`),
        ...(self === null ? [] : [self]),
      ],
      'set-cookie':
        value === ''
          ? `${cookieName}=; Max-Age=0; ${attributes}`
          : `${cookieName}=${value}; ${attributes}`,
    },
    body,
  );
}
