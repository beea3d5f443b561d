import { hash } from 'node:crypto';
import type { HeaderList } from '../http/header-list.ts';
import { splitList } from './cache-control.ts';

/** Characters of a value that a key has in it; of a longer one it has the digest. */
const MAX_VALUE = 256;

/** Their values mean what they mean to the byte. */
const OPAQUE = new Set(['authorization', 'cookie', 'user-agent', 'referer']);
/** Names of languages and codings: their case does not matter (RFC 9110 §8.4.1, §8.5.1). */
const CASELESS = new Set(['accept', 'accept-charset', 'accept-encoding', 'accept-language']);

/**
 * What tells the variants of a response apart (RFC 9111 §4.1): the values of the fields that it
 * varies by. Values that mean the same are the same.
 */
export function variantKey(names: readonly string[], request: HeaderList): string {
  return names.length === 0 ? '' : names.map((name) => valueOf(name, request)).join('\n');
}

function valueOf(name: string, request: HeaderList): string {
  const value = request.combined(name);
  // A field that is absent is another value than an empty one.
  if (value === undefined) return '-';
  const normal = OPAQUE.has(name) ? value : normalized(name, value);
  return `=${normal.length > MAX_VALUE ? hash('sha256', normal, 'base64url') : normal}`;
}

function normalized(name: string, value: string): string {
  const members = splitList(CASELESS.has(name) ? value.toLowerCase() : value);
  // Codings without weights are a set; servers choose by an order of their own.
  if (name === 'accept-encoding' && !value.includes(';')) members.sort();
  return members.join(',');
}
