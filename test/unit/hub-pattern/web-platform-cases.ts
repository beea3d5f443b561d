import { readFileSync } from 'node:fs';
import type { Question } from './native-oracle.ts';

type Init = Readonly<Record<string, string>>;
type Written = readonly [(string | Init)?, (string | object)?, object?];

/** A case of `urlpatterntestdata.json`. */
interface WebPlatformCase {
  readonly pattern: Written;
  readonly inputs?: Written;
  readonly expected_obj?: object | 'error';
  readonly expected_match?: object | 'error' | null;
}

const BASE = 'https://example.com/';

const cases = JSON.parse(
  readFileSync(new URL('web-platform/urlpatterntestdata.json', import.meta.url), 'utf8'),
  // The file is as its project documents it.
) as readonly WebPlatformCase[];

export const stringCases = cases.filter(({ pattern: [first] }) => typeof first === 'string');
export const objectCases = cases.filter(({ pattern: [first] }) => typeof first === 'object');

/**
 * What the data itself expects. A hub always has a base, which changes what a pattern without an
 * authority means, and is asked neither with options nor about objects.
 */
export const expectations = stringCases.flatMap((one) => {
  const [pattern, base = BASE, options] = one.pattern;
  const [input, inputBase = base] = one.inputs ?? [];
  if (typeof pattern !== 'string' || typeof base !== 'string' || options !== undefined) return [];
  if (typeof input !== 'string' || typeof inputBase !== 'string') return [];
  if (one.pattern.length === 1 && !pattern.includes('://')) return [];
  if (one.expected_obj === 'error' || one.expected_match === 'error') return [];
  const matches = one.expected_match !== null && one.expected_match !== undefined;
  return [{ pattern, base, input, inputBase, matches }];
});

/**
 * Every case as a question that a hub may be asked: what is written as an object, as the constructor
 * string that says the same. All topics of the data are tried on all patterns that share a host.
 */
export function webPlatformQuestions(): readonly Question[] {
  const topics = [...new Set(cases.flatMap(({ inputs = [] }) => asText(inputs[0]) ?? []))];
  const patterns = [...new Set(cases.flatMap(({ pattern }) => asText(pattern[0]) ?? []))];
  return patterns.map((pattern) => ({ pattern, topics, base: BASE }));
}

function asText(written: string | Init | undefined): string | null {
  if (written === undefined || typeof written === 'string') return written ?? null;
  const { protocol, username, password, hostname, port, pathname, search, hash, baseURL } = written;
  const user = username === undefined ? '' : `${username}${password ? `:${password}` : ''}@`;
  const authority = `${user}${hostname ?? (protocol === undefined ? '' : 'example.com')}`;
  const origin =
    authority === '' && protocol === undefined
      ? (baseURL?.replace(/\/$/, '') ?? '')
      : `${protocol ?? 'https'}://${authority}`;
  const tail = `${search === undefined ? '' : `?${search}`}${hash === undefined ? '' : `#${hash}`}`;
  return `${origin}${port ? `:${port}` : ''}${pathname ?? ''}${tail}`;
}
