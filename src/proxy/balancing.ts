import { createHmac } from 'node:crypto';
import { cookieValue } from '../http/field-values.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Upstream } from './upstreams.ts';
import type { BalancingPolicy } from './proxy-config.ts';

/**
 * Chooses among the available upstreams; undefined if there are none. One that was configured twice is among them twice.
 */
export type Balance = (exchange: Exchange, candidates: readonly Upstream[]) => Choice | undefined;

export interface Choice {
  readonly upstream: Upstream;
  /** A Set-Cookie value that leads the client back to the same upstream. */
  readonly cookie?: string;
}

/**
 * `random` returns numbers from 0 up to but not including 1; `order` is that of the weights, one for
 * each.
 */
export function createBalance(
  policy: BalancingPolicy,
  random: () => number,
  order: readonly Upstream[] = [],
): Balance {
  const anyone: Balance = (_, candidates) => chosen(pickRandom(candidates, random));
  switch (policy.kind) {
    case 'random':
      return anyone;
    case 'first':
      return (_, candidates) => chosen(candidates[0]);
    case 'round_robin':
      return roundRobin();
    case 'weighted_round_robin':
      return weighted(order, policy.weights);
    case 'random_choose':
      return (_, candidates) => {
        const some = pickSeveral(candidates, policy.choices, random);
        return chosen(pickRandom(leastBusy(some), random));
      };
    case 'least_conn':
      return (_, candidates) => chosen(pickRandom(leastBusy(candidates), random));
    case 'ip_hash':
      return (exchange, candidates) => chosen(byHash(exchange.remoteAddress, candidates));
    case 'client_ip_hash':
      return (exchange, candidates) => chosen(byHash(exchange.clientAddress, candidates));
    case 'uri_hash':
      return (exchange, candidates) => chosen(byHash(exchange.target, candidates));
    case 'header':
      return (exchange, candidates) => {
        const value = exchange.headers.get(policy.name);
        return value === undefined
          ? anyone(exchange, candidates)
          : chosen(byHash(value, candidates));
      };
    case 'query':
      return (exchange, candidates) => {
        const query = exchange.target.split(/\?(.*)/s, 2)[1] ?? '';
        const value = new URLSearchParams(query).get(policy.name);
        return value === null ? anyone(exchange, candidates) : chosen(byHash(value, candidates));
      };
    case 'cookie':
      return sticky(policy.name, policy.secret?.reveal() ?? '', anyone);
  }
}

function roundRobin(): Balance {
  let turn = -1;
  return (_, candidates) => {
    turn = (turn + 1) % Number.MAX_SAFE_INTEGER;
    return chosen(candidates[turn % candidates.length]);
  };
}

/**
 * Turns are spread: 3 to 1 results in a, a, b, a. An upstream without weight is chosen if no other is left.
 */
function weighted(order: readonly Upstream[], given: readonly number[]): Balance {
  const weights = new Map<Upstream, number>();
  for (const [index, upstream] of order.entries()) {
    weights.set(upstream, (weights.get(upstream) ?? 0) + (given[index] ?? 0));
  }
  const credit = new Map<Upstream, number>();
  return (_, candidates) => {
    let best: Upstream | undefined;
    let total = 0;
    for (const upstream of new Set(candidates)) {
      const weight = weights.get(upstream) ?? 0;
      if (weight === 0) continue;
      total += weight;
      credit.set(upstream, (credit.get(upstream) ?? 0) + weight);
      if (best === undefined || creditOf(upstream) > creditOf(best)) best = upstream;
    }
    if (best === undefined) return chosen(candidates[0]);
    credit.set(best, creditOf(best) - total);
    return chosen(best);
  };
  function creditOf(upstream: Upstream): number {
    return credit.get(upstream) ?? 0;
  }
}

/** The cookie contains a keyed hash of the upstream's address, which would otherwise be disclosed. */
function sticky(name: string, secret: string, fallback: Balance): Balance {
  const marks = new WeakMap<Upstream, string>();
  const mark = (upstream: Upstream): string => {
    const { hostport } = upstream.address;
    const known =
      marks.get(upstream) ?? createHmac('sha256', secret).update(hostport).digest('hex');
    marks.set(upstream, known);
    return known;
  };
  return (exchange, candidates) => {
    const wanted = cookieValue(exchange.headers, name);
    const known = candidates.find((upstream) => mark(upstream) === wanted);
    if (known !== undefined) return { upstream: known };
    const choice = fallback(exchange, candidates);
    if (choice === undefined) return undefined;
    const secure = exchange.scheme === 'https' ? '; Secure' : '';
    const cookie = `${name}=${mark(choice.upstream)}; Path=/; HttpOnly; SameSite=Lax${secure}`;
    return { upstream: choice.upstream, cookie };
  };
}

function leastBusy(candidates: readonly Upstream[]): Upstream[] {
  const least = Math.min(...candidates.map((upstream) => upstream.inFlight));
  return candidates.filter((upstream) => upstream.inFlight === least);
}

function pickRandom(candidates: readonly Upstream[], random: () => number): Upstream | undefined {
  return candidates[Math.floor(random() * candidates.length)];
}

/** This many different ones, or all if there are fewer. */
function pickSeveral(
  candidates: readonly Upstream[],
  count: number,
  random: () => number,
): Upstream[] {
  const left = [...candidates];
  const picked: Upstream[] = [];
  while (picked.length < count && left.length > 0) {
    picked.push(...left.splice(Math.floor(random() * left.length), 1));
  }
  return picked;
}

/** Rendezvous hashing: if an upstream is removed, only its own keys move. */
function byHash(key: string, candidates: readonly Upstream[]): Upstream | undefined {
  let best: Upstream | undefined;
  let highest = -1;
  for (const upstream of candidates) {
    const weight = hash(`${upstream.address.hostport}\n${key}`);
    if (weight > highest) {
      highest = weight;
      best = upstream;
    }
  }
  return best;
}

/** FNV-1a with the final mix of MurmurHash3, without which similar keys would have similar hashes. */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

function chosen(upstream: Upstream | undefined): Choice | undefined {
  return upstream === undefined ? undefined : { upstream };
}
