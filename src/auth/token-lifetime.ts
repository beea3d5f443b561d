import { decodeJwt, decodeProtectedHeader } from 'jose';

/** What the gateway reads of a token that it passes along and does not judge. */
export interface TokenLifetime {
  /** `exp` in milliseconds since the epoch; null when the token has none. */
  readonly expiresAtMs: number | null;
  /** `jti`; null when the token has none. */
  readonly tokenId: string | null;
}

/** A compact JWS. What decodes it is more lenient, and the text goes into a cookie. */
const COMPACT_JWS = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Reads the lifetime of a JWT without verifying it; null for what is not a JWT. */
export function decodeTokenLifetime(token: string): TokenLifetime | null {
  if (!COMPACT_JWS.test(token)) return null;
  try {
    decodeProtectedHeader(token);
    const { exp, jti } = decodeJwt(token);
    return {
      expiresAtMs: typeof exp === 'number' ? exp * 1000 : null,
      tokenId: typeof jti === 'string' ? jti : null,
    };
  } catch {
    return null;
  }
}
