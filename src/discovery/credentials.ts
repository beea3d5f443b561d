import { decodeTokenLifetime } from '../auth/unverified-token.ts';
import type { DiscoveryConfig } from '../config/config.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { newSessionMark, sessionMark, sessionCookieName } from '../http/session-mark.ts';
import type { Clock } from '../kernel/clock.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { isPrivate, makePrivate } from '../http/cache-control.ts';

export interface CredentialsOptions {
  readonly config: Pick<DiscoveryConfig, 'cookie'>;
  readonly hub: AnnouncedHub;
  readonly clock: Clock;
}

/**
 * The cookie with which a browser reads private updates. The browser sends it only to the hub's path, so the
 * gateway does not see it when a user logs out. The mark that accompanies it identifies the streams to end.
 */
export class Credentials {
  readonly #options: CredentialsOptions;

  constructor(options: CredentialsOptions) {
    this.#options = options;
  }

  /** Handles the app's field: a token, or an empty value, which means a logout. */
  fromApp(exchange: Exchange, { status, headers }: ResponseHead, sent: string): void {
    // RFC 9110 §15.4.5: a 304 has the Cache-Control of the response that it stands for. Unless that forbids
    // sharing, the request may come from a shared cache, which would store the cookie with its response.
    if (status === 304 && !isPrivate(headers)) {
      this.#warn(
        exchange,
        'A 304 had a token but not Cache-Control: private; the token is dropped',
      );
      return;
    }
    if (sent === '') this.end(exchange, headers);
    else this.handOut(exchange, headers, sent);
  }

  /** Sets the cookie. If the token has expired, deletes the cookie and ends the token's streams. */
  handOut(exchange: Exchange, headers: HeaderList, token: string): void {
    const lifetime = decodeTokenLifetime(token);
    if (lifetime === null) {
      this.#warn(exchange, 'The app sent a token that is not a JWT; no cookie was set');
      return;
    }
    const { hub, clock } = this.#options;
    const { expiresAtMs, tokenId } = lifetime;
    const seconds = expiresAtMs === null ? null : Math.floor((expiresAtMs - clock.now()) / 1000);
    if (seconds !== null && seconds <= 0) {
      if (tokenId !== null) hub.revoke(tokenId);
      this.end(exchange, headers);
      return;
    }
    const attributes = this.#attributes(exchange);
    if (attributes === null) {
      this.#warn(exchange, 'The app sent a token, but no cookie of this site can reach the hub');
      return;
    }
    if (attributes.name.length + token.length > MAX_COOKIE_BYTES) {
      this.#warn(exchange, 'A token is too large for a cookie (4096 bytes)');
    }
    const mark = sessionMark(exchange, hub.cookieName) ?? newSessionMark();
    for (const cookie of tokenCookies(attributes, token, mark, seconds)) {
      headers.append('Set-Cookie', cookie);
    }
    makePrivate(headers);
  }

  /** Whether this browser has received a token before. */
  isKnown(exchange: Exchange): boolean {
    return sessionMark(exchange, this.#options.hub.cookieName) !== null;
  }

  /** Deletes the cookie and ends the streams that the browser has opened. */
  end(exchange: Exchange, headers: HeaderList): void {
    const { hub } = this.#options;
    const mark = sessionMark(exchange, hub.cookieName);
    if (mark !== null) hub.signOut(mark);
    const attributes = this.#attributes(exchange);
    if (attributes === null) return;
    for (const cookie of deletedCookies(attributes)) headers.append('Set-Cookie', cookie);
    makePrivate(headers);
  }

  /** null if no cookie of this host can reach the hub. */
  #attributes(exchange: Exchange): CookieAttributes | null {
    const { config, hub } = this.#options;
    const { sameSite, domain: wanted } = config.cookie;
    const pageHost = hostOf(exchange);
    const domain = cookieDomain(pageHost, hub.hostFor(pageHost), wanted);
    return domain === undefined ? null : { name: hub.cookieName, path: hub.path, sameSite, domain };
  }

  #warn(exchange: Exchange, message: string): void {
    const { fromHeader } = this.#options.config.cookie;
    exchange.log.warn(message, { header: fromHeader });
  }
}

/** The host that the client has contacted, without port, in lower case. */
function hostOf({ originalHost }: Exchange): string {
  return originalHost.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
}

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
function deletedCookies(attributes: CookieAttributes): readonly string[] {
  return [setCookie(attributes, '', 0), setCookie(markAttributes(attributes), '', 0)];
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
