import { sessionCookieName } from '../http/session-mark.ts';

/** The attributes of the access-token cookie. */
export interface CookieAttributes {
  readonly name: string;
  /** Path of the hub, so that no other request contains the token. */
  readonly path: string;
  readonly sameSite: 'Strict' | 'Lax';
  /** null: only the host itself. */
  readonly domain: string | null;
}

/** Bytes of name and value; browsers ignore a larger cookie (RFC 6265bis §5.6). */
const MAX_COOKIE_BYTES = 4096;

/** Browsers store no cookie for longer (RFC 6265bis §5.5). */
const MAX_AGE_SECONDS = 400 * 24 * 60 * 60;

/**
 * The `Set-Cookie` values for a token (RFC 6265 §4.1) and for the mark of its browser session.
 *
 * @param maxAgeSeconds null for session cookies
 */
export function tokenCookies(
  attributes: CookieAttributes,
  token: string,
  mark: string,
  maxAgeSeconds: number | null,
): readonly string[] {
  const maxAge = maxAgeSeconds === null ? null : Math.min(maxAgeSeconds, MAX_AGE_SECONDS);
  return [
    setCookie(attributes, token, maxAge),
    setCookie(markAttributes(attributes), mark, maxAge),
  ];
}

/** The `Set-Cookie` values that delete the cookies of {@link tokenCookies}. */
export function deletedCookies(attributes: CookieAttributes): readonly string[] {
  return [setCookie(attributes, '', 0), setCookie(markAttributes(attributes), '', 0)];
}

export function isTooLarge({ name }: CookieAttributes, token: string): boolean {
  return name.length + token.length > MAX_COOKIE_BYTES;
}

/**
 * The `Domain` with which a cookie of a page's host reaches the hub's host: null if it can stay with the
 * host, undefined if no cookie can reach it (RFC 6265 §5.1.3).
 *
 * @param domain the configured one
 */
export function cookieDomain(
  pageHost: string,
  hubHost: string,
  domain: string | null,
): string | null | undefined {
  if (domain === null) return pageHost === hubHost ? null : undefined;
  return covers(domain, pageHost) && covers(domain, hubHost) ? domain : undefined;
}

function covers(domain: string, host: string): boolean {
  return host === domain || host.endsWith(`.${domain}`);
}

function markAttributes(attributes: CookieAttributes): CookieAttributes {
  return { ...attributes, name: sessionCookieName(attributes.name), path: '/' };
}

function setCookie(
  { name, path, sameSite, domain }: CookieAttributes,
  value: string,
  maxAgeSeconds: number | null,
): string {
  const parts = [
    `${name}=${value}`,
    `Path=${path}`,
    ...(domain === null ? [] : [`Domain=${domain}`]),
    ...(maxAgeSeconds === null ? [] : [`Max-Age=${maxAgeSeconds}`]),
    'Secure',
    'HttpOnly',
    `SameSite=${sameSite}`,
  ];
  return parts.join('; ');
}
