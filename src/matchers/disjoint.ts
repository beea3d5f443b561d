// What two matchers say about each other, without a request. It is safe to answer "may both match": the answer
// `true` needs a proof, which exists for paths and hosts that are plain texts.

import type { MatchCondition, RequestMatcher } from '../config/routes.ts';

/** Conditions that only look: testing them changes nothing that later handlers could see. */
const ONLY_LOOKING: ReadonlySet<MatchCondition['kind']> = new Set([
  'path',
  'host',
  'method',
  'header',
  'query',
  'protocol',
] as const);

/** A path without escapes, placeholders and repeated slashes, or everything that begins with it. */
const PLAIN_PATH = /^((?:\/[\w.~-]+)*\/?)(\*?)$/;
/** One host. Its labels decide, so a host with a dot at its end does not count. */
const PLAIN_HOST = /^[\w-]+(?:\.[\w-]+)*$/;

/**
 * Whether it is certain that no request in one state matches both, and that testing `other` has no effect on
 * a request that matches `one`. null matches every request.
 */
export function areDisjoint(one: RequestMatcher | null, other: RequestMatcher | null): boolean {
  if (one === null || other === null) return false;
  if (!other.every(({ kind }) => ONLY_LOOKING.has(kind))) return false;
  return one.some((first) => other.some((second) => excludeEachOther(first, second)));
}

function excludeEachOther(one: MatchCondition, other: MatchCondition): boolean {
  if (one.kind === 'path' && other.kind === 'path') {
    return everyPair(one.paths, other.paths, arePathsApart);
  }
  return (
    one.kind === 'host' && other.kind === 'host' && everyPair(one.hosts, other.hosts, areHostsApart)
  );
}

function everyPair(
  ones: readonly string[],
  others: readonly string[],
  areApart: (one: string, other: string) => boolean,
): boolean {
  return ones.every((one) => others.every((other) => areApart(one, other)));
}

/** Paths are compared without case. */
function arePathsApart(one: string, other: string): boolean {
  const [, start, star] = PLAIN_PATH.exec(one.toLowerCase()) ?? [];
  const [, otherStart, otherStar] = PLAIN_PATH.exec(other.toLowerCase()) ?? [];
  if (start === undefined || otherStart === undefined) return false;
  if (star === '*' && otherStart.startsWith(start)) return false;
  if (otherStar === '*' && start.startsWith(otherStart)) return false;
  return start !== otherStart;
}

function areHostsApart(one: string, other: string): boolean {
  return (
    PLAIN_HOST.test(one) && PLAIN_HOST.test(other) && one.toLowerCase() !== other.toLowerCase()
  );
}
