import { decodeTokenLifetime } from '../auth/unverified-token.ts';
import type { DiscoveryConfig } from '../config/config.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { newSessionMark, sessionMark } from '../http/session-mark.ts';
import type { Clock } from '../kernel/clock.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { isPrivate, makePrivate } from './cache-control.ts';
import {
  type CookieAttributes,
  cookieDomain,
  deletedCookies,
  isTooLarge,
  tokenCookies,
} from './cookie.ts';

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
    if (isTooLarge(attributes, token)) {
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
function hostOf({ host }: Exchange): string {
  return host.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
}
