import { randomBytes } from 'node:crypto';
import type { Exchange } from './exchange.ts';

/**
 * A browser gets a mark together with its access token: a random name without a meaning, in a cookie for the
 * whole site. The browser sends the token only to the hub's path. When the app logs a user out, the mark lets
 * the gateway recognise which streams that browser has opened.
 */
const MARK = /^[A-Za-z0-9_-]{22}$/;

/** The name of the cookie that accompanies an access-token cookie. */
export function sessionCookieName(cookieName: string): string {
  return `${cookieName}_session`;
}

/** 128 random bits, so that no client can guess the mark of another session. */
export function newSessionMark(): string {
  return randomBytes(16).toString('base64url');
}

/** The mark that {@link takeSessionMark} has found. */
export function sessionMark(exchange: Exchange, cookieName: string): string | null {
  return exchange.variables.get(variable(cookieName)) ?? null;
}

/** Removes the mark from the request, so that the app never sees it, and stores it for later. */
export function takeSessionMark(exchange: Exchange, cookieName: string): void {
  if (!exchange.headers.has('cookie')) return;
  const name = sessionCookieName(cookieName);
  exchange.headers.mapValues((key, value) => {
    if (key !== 'cookie' || !value.includes(name)) return value;
    const others = value.split(';').filter((pair) => {
      const [pairName = '', mark = ''] = pair.split('=', 2);
      if (pairName.trim() !== name) return true;
      if (MARK.test(mark.trim())) exchange.variables.set(variable(cookieName), mark.trim());
      return false;
    });
    return others.join(';').trimStart();
  });
  exchange.headers.deleteWhere((key, value) => key === 'cookie' && value === '');
}

function variable(cookieName: string): string {
  return `hub.session.${cookieName}`;
}
