import { hash } from 'node:crypto';
import type { HeaderList } from '../http/header-list.ts';
import { splitList } from './cache-control.ts';

/** Characters of a value in a key. Longer values are replaced with their digest. */
const MAX_VALUE = 256;

/** Fields whose values are compared byte for byte. */
const OPAQUE = new Set(['authorization', 'cookie', 'user-agent', 'referer']);
/** Names of languages and codings are case-insensitive (RFC 9110 §8.4.1, §8.5.1). */
const CASELESS = new Set(['accept', 'accept-charset', 'accept-encoding', 'accept-language']);

/**
 * Distinguishes the variants of a response (RFC 9111 §4.1): the values of the fields by which it varies.
 * Values with the same meaning are equal.
 */
export function variantKey(names: readonly string[], request: HeaderList): string {
  return names.length === 0 ? '' : names.map((name) => valueOf(name, request)).join('\n');
}

function valueOf(name: string, request: HeaderList): string {
  const value = request.combined(name);
  // An absent field differs from an empty one.
  if (value === undefined) return '-';
  const normal = OPAQUE.has(name) ? value : normalized(name, value);
  return `=${normal.length > MAX_VALUE ? hash('sha256', normal, 'base64url') : normal}`;
}

function normalized(name: string, value: string): string {
  const members = splitList(CASELESS.has(name) ? value.toLowerCase() : value);
  // Codings without weights are a set, because servers choose in an order of their own.
  if (name === 'accept-encoding' && !value.includes(';')) members.sort();
  return members.join(',');
}
