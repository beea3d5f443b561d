import { splitList } from '../http/cache-control.ts';
import { listMembers } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';

/**
 * Fields that take precedence over `Cache-Control` in some shared caches, in addition to the targeted fields
 * of RFC 9213.
 */
const OVERRIDES = new Set([
  'surrogate-control',
  'edge-control',
  'x-accel-expires',
  'x-litespeed-cache-control',
]);

/**
 * Keeps a response with a user's token out of shared caches (RFC 9111 §3.5, §5.2.2). Unless it already has
 * `private` or `no-store`, it gets `private` and loses everything that permits sharing.
 */
export function makePrivate(headers: HeaderList): void {
  headers.deleteWhere((key) => OVERRIDES.has(key) || key.endsWith('cdn-cache-control'));
  if (isPrivate(headers)) return;
  const kept = directives(headers).filter(
    (directive) => !['public', 's-maxage', 'private'].includes(nameOf(directive)),
  );
  headers.set('cache-control', ['private', ...kept].join(', '));
}

/** Whether shared caches must not store the response. `private="field"` protects only that field. */
export function isPrivate(headers: HeaderList): boolean {
  return directives(headers).some((directive) => /^(?:private|no-store)$/i.test(directive));
}

/** Lets scripts of other origins read a field (WHATWG Fetch §3.2.3). */
export function expose(headers: HeaderList, name: string): void {
  const field = 'access-control-expose-headers';
  const present = listMembers(headers.combined(field)).map((one) => one.toLowerCase());
  if (!present.includes(name.toLowerCase())) headers.append('Access-Control-Expose-Headers', name);
}

function directives(headers: HeaderList): string[] {
  return splitList(headers.combined('cache-control') ?? '');
}

function nameOf(directive: string): string {
  return directive.toLowerCase().split('=', 1)[0]?.trim() ?? '';
}
