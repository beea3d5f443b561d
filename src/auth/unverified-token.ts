import type { JsonValue } from '../hub/grants.ts';
import { type Check, InvalidTokenError, quote } from './diagnosis.ts';
import { decodeJwt, decodeProtectedHeader } from 'jose';

/** Longest token in bytes, however it is sent. */
export const MAX_TOKEN_BYTES = 65_536;

const BASE64URL = /^[A-Za-z0-9_-]+$/;

/** The contents of a token before any verification. */
export interface UnverifiedToken {
  readonly text: string;
  readonly header: JsonObject;
  readonly claims: JsonObject;
}

/**
 * Splits a compact JWS into its parts (RFC 7515 §3.1).
 *
 * @throws InvalidTokenError
 */
export function parseToken(text: string): UnverifiedToken {
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_TOKEN_BYTES) {
    throw misshapen(`at most ${MAX_TOKEN_BYTES} bytes`, `${bytes} bytes`, 'shorten the token');
  }
  const parts = text.split('.', 6);
  const [header, claims, signature] = parts;
  if (parts.length !== 3 || header === undefined || claims === undefined) {
    const fix =
      'let the issuer issue signed JWTs; opaque and encrypted tokens (five parts) are not read here';
    throw misshapen(
      'three parts with dots between them',
      parts.length === 1 ? 'no dot' : `${parts.length} parts`,
      fix,
    );
  }
  if (signature === '') {
    throw misshapen('a signature', 'none', 'sign the token; "alg": "none" is never accepted');
  }
  if (!parts.every((part) => BASE64URL.test(part))) {
    throw misshapen('base64url without padding', 'other characters', 'look for a truncated token');
  }
  return { text, header: readPart(header, 'header'), claims: readPart(claims, 'claims') };
}

/** Refuses critical header members that hubgate does not know (RFC 7515 §4.1.11). */
export function checkCritical({ header }: UnverifiedToken): Check {
  return {
    check: 'crit',
    passed: header['crit'] === undefined,
    expected: 'no critical header',
    found: header['crit'] === undefined ? 'no critical header' : `"crit" ${quote(header['crit'])}`,
    fix: 'issue the token without "crit"',
  };
}

/** The member if it is a string, null if it is absent, undefined for anything else. */
export function stringOrAbsent(value: JsonValue | undefined): string | null | undefined {
  if (value === undefined) return null;
  return typeof value === 'string' ? value : undefined;
}

function readPart(part: string, name: string): JsonObject {
  const value = parseStrictJson(Buffer.from(part, 'base64url'));
  if (isJsonObject(value)) return value;
  throw misshapen(
    `a ${name} part that is one JSON object in UTF-8 without duplicate members`,
    'something else',
    'fix the library that issues the token',
  );
}

function misshapen(expected: string, found: string, fix: string): InvalidTokenError {
  return new InvalidTokenError({ check: 'shape', expected, found, fix });
}

/** The parts of a token that the gateway reads when it passes the token along without verifying it. */
export interface TokenLifetime {
  /** `exp` in milliseconds since the epoch; null if the token has none. */
  readonly expiresAtMs: number | null;
  /** `jti`; null if the token has none. */
  readonly tokenId: string | null;
  /** The types of its authorization details. */
  readonly detailTypes: readonly unknown[];
}

/** A compact JWS. The decoder is more lenient, but the text is put into a cookie. */
const COMPACT_JWS = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Reads the lifetime of a JWT without verifying it; null if it is not a JWT. */
export function decodeTokenLifetime(token: string): TokenLifetime | null {
  if (!COMPACT_JWS.test(token)) return null;
  try {
    decodeProtectedHeader(token);
    const {
      exp,
      jti,
      authorization_details: details,
    } = decodeJwt<{
      authorization_details?: JsonValue;
    }>(token);
    return {
      expiresAtMs: typeof exp === 'number' ? exp * 1000 : null,
      tokenId: typeof jti === 'string' ? jti : null,
      detailTypes: Array.isArray(details)
        ? details.filter(isJsonObject).map(({ type }) => type)
        : [],
    };
  } catch {
    return null;
  }
}

export type JsonObject = { readonly [name: string]: JsonValue };

/** Deepest nesting of arrays and objects; code that later walks the value is recursive. */
const MAX_DEPTH = 64;

/**
 * Parses JSON that has only one meaning: valid UTF-8, no duplicate member at any depth, no number beyond a
 * double, nested at most 64 deep. If two readers could read a token differently, that is an attack.
 *
 * @returns undefined for anything else
 */
export function parseStrictJson(bytes: Uint8Array): JsonValue | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    // JSON.parse returns JSON.
    const value = JSON.parse(text) as JsonValue;
    return isUnambiguous(text) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const STRUCTURE = /"(?:[^"\\]|\\.)*"|[{}[\],:]|-?\d[^\s,\]}]*/g;

/** Scans well-formed JSON. */
function isUnambiguous(text: string): boolean {
  /** Names of each open object; null for an array. */
  const open: (Set<string> | null)[] = [];
  let previous = '';
  for (const [token] of text.matchAll(STRUCTURE)) {
    if (token === '{' || token === '[') {
      if (open.push(token === '{' ? new Set() : null) > MAX_DEPTH) return false;
    } else if (token === '}' || token === ']') {
      open.pop();
    } else if (token === ':') {
      const names = open.at(-1);
      // A string before a colon is a name. Escapes are decoded, so that two spellings count as the same name.
      const name = previous.includes('\\') ? String(JSON.parse(previous)) : previous.slice(1, -1);
      if (names?.has(name)) return false;
      names?.add(name);
    } else if (!token.startsWith('"') && token !== ',' && !Number.isFinite(Number(token))) {
      return false;
    }
    previous = token;
  }
  return true;
}
