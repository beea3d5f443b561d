import { hash } from 'node:crypto';
import type { HeaderList } from '../http/header-list.ts';
import { splitList } from './cache-control.ts';

/** Characters of a text that is remembered as it is. */
const MAX_TEXT = 256;

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

/** The text, or the digest of a long one, so that texts that are remembered take little memory. */
export function shortened(text: string): string {
  return text.length > MAX_TEXT ? hash('sha256', text, 'base64url') : text;
}

function valueOf(name: string, request: HeaderList): string {
  const value = request.combined(name);
  // An absent field differs from an empty one.
  if (value === undefined) return '-';
  const normal = OPAQUE.has(name) ? value : normalized(name, value);
  return `=${shortened(normal)}`;
}

function normalized(name: string, value: string): string {
  const members = splitList(CASELESS.has(name) ? value.toLowerCase() : value);
  // Codings without weights are a set, because servers choose in an order of their own.
  if (name === 'accept-encoding' && !value.includes(';')) members.sort();
  return members.join(',');
}
