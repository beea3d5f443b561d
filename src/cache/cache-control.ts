import type { HeaderList } from '../http/header-list.ts';
import { parseMembers } from '../http/structured-field.ts';

/** Maximum number of directives of a field that are read. */
const MAX_DIRECTIVES = 64;
/** RFC 9111 §1.2.2: longer times are limited to this. */
const MAX_SECONDS = 2_147_483_648;

const TOKEN = String.raw`[!#$%&'*+.^_\x60|~0-9A-Za-z-]+`;
const DIRECTIVE = new RegExp(String.raw`^(${TOKEN})(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s",]*)))?$`);

/** The directives of `Cache-Control`, or of a field with the same directives. */
export class CacheDirectives {
  /** By lower-case name; null for one without a value. */
  readonly #values: ReadonlyMap<string, readonly (string | null)[]>;

  constructor(values: ReadonlyMap<string, readonly (string | null)[]>) {
    this.#values = values;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  /**
   * The time of a directive in seconds; null if it is absent. Among several the shortest applies, and an
   * invalid one makes a response stale (RFC 9111 §4.2.1).
   */
  seconds(name: string): number | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    return Math.min(...values.map(deltaSeconds));
  }

  /** The fields of `no-cache` or `private`; `all` if it names none; null if it is absent. */
  fields(name: string): readonly string[] | 'all' | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    if (values.some((value) => value === null || value === '')) return 'all';
    return values.flatMap((value) =>
      (value ?? '').split(',').map((one) => one.trim().toLowerCase()),
    );
  }
}

/** RFC 9111 §1.2.2: only digits. The suite of caches shows what else is sent. */
function deltaSeconds(value: string | null): number {
  if (value === null || !/^\d+$/.test(value)) return 0;
  return Math.min(Number(value), MAX_SECONDS);
}

/** RFC 9111 §5.2. Invalid directives are ignored; commas in quotes separate nothing. */
export function parseCacheControl(field: string | undefined): CacheDirectives {
  const values = new Map<string, (string | null)[]>();
  for (const part of splitList(field ?? '').slice(0, MAX_DIRECTIVES)) {
    const [, name, quoted, plain] = DIRECTIVE.exec(part) ?? [];
    if (name === undefined) continue;
    add(values, name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain ?? null);
  }
  return new CacheDirectives(values);
}

/** Fields for caches of this kind only, which are not passed on. */
export const TARGETED_FIELDS: readonly string[] = ['cdn-cache-control', 'surrogate-control'];

/**
 * The directives for shared caches in front of the origin server (RFC 9213 §2.2). If there are any,
 * `Cache-Control` and `Expires` do not apply here. null if there are none, or if they are invalid.
 */
export function targetedDirectives(headers: HeaderList): CacheDirectives | null {
  return dictionary(headers.combined('cdn-cache-control')) ?? surrogate(headers);
}

/** RFC 9213 §2.1: a Dictionary; an invalid one counts as absent. */
function dictionary(field: string | undefined): CacheDirectives | null {
  if (field === undefined) return null;
  try {
    const values = new Map<string, (string | null)[]>();
    for (const { key, items } of parseMembers(field.toLowerCase(), MAX_DIRECTIVES)) {
      const [item] = items;
      if (item === undefined || items.length !== 1) continue;
      if (key === null) {
        if (item.kind === 'token') add(values, item.value, null);
      } else if (item.kind === 'number') add(values, key, String(item.value));
      else if (item.kind === 'string' && /^(?:no-cache|private)$/.test(key)) {
        add(values, key, item.value);
      } else if (item.kind === 'boolean' && item.value) add(values, key, null);
    }
    return values.size === 0 ? null : new CacheDirectives(values);
  } catch {
    return null;
  }
}

/**
 * The older field of the Edge Architecture. Its directives about other things than storing do not concern
 * caches.
 */
function surrogate(headers: HeaderList): CacheDirectives | null {
  if (!headers.has('surrogate-control')) return null;
  const directives = parseCacheControl(headers.combined('surrogate-control'));
  return directives.has('max-age') || directives.has('no-store') ? directives : null;
}

function add(values: Map<string, (string | null)[]>, name: string, value: string | null): void {
  const known = values.get(name);
  if (known === undefined) values.set(name, [value]);
  else known.push(value);
}

/** The members of a list (RFC 9110 §5.6.1), trimmed and without empty ones. */
export function splitList(field: string): string[] {
  const members = field.includes('"')
    ? (field.match(/(?:"(?:[^"\\]|\\.)*"|[^",])+/g) ?? [])
    : field.split(',');
  return members.map((member) => member.trim()).filter((member) => member !== '');
}
