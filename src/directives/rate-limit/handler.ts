import { createHash } from 'node:crypto';
import { clientNetwork } from '../../http/client-network.ts';
import { HttpError } from '../../http/errors.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import {
  type RateZone,
  type Verdict,
  verdictOf,
  type WindowCounts,
} from '../../http/rate-limits.ts';
import { messageOf } from '../../kernel/error.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { RateLimitConfig, RateZoneConfig } from './data.ts';

/** Characters of a key; longer ones are counted by their digests. */
const MAX_KEY = 128;
/** How often it is said that counts are not shared, at most. */
const COMPLAIN_MS = 60_000;

interface Zone extends RateZoneConfig {
  readonly counts: RateZone;
}

/**
 * Lets pass at most so many requests of a key within a window's length, in each of the zones. What
 * is refused is not counted. Counts are those of all workers, a little late, and of all nodes where
 * the site's hub has a store for that; while that one is away, of this machine.
 */
export function rateLimit({ zones }: RateLimitConfig, context: HandlerContext): Handler {
  const { expand, rateLimits, sharedCounts, defer, log, clock } = context;
  const leased = zones.map((zone): Zone => {
    const lease = rateLimits.acquire(zone.name, zone.windowMs);
    defer(() => lease.release());
    return { ...zone, counts: lease.value };
  });
  let complainedMs = Number.NEGATIVE_INFINITY;

  /** null where there is no such store, or it is away. */
  const countShared = async (zone: Zone, key: string): Promise<WindowCounts | null> => {
    if (sharedCounts === null) return null;
    try {
      return await sharedCounts.count(
        `${zone.name} ${zone.windowMs} ${key}`,
        zone.events,
        zone.windowMs,
      );
    } catch (error) {
      if (clock.monotonic() - complainedMs >= COMPLAIN_MS) {
        complainedMs = clock.monotonic();
        log.warn('rate_limit counts on this machine only', { error: messageOf(error) });
      }
      return null;
    }
  };

  return async (exchange, next) => {
    const asked = leased.map((zone) => ({ zone, key: keyOf(zone.key, exchange, expand) }));
    // Whoever is refused in one zone is counted in none, as far as it can be known here.
    const refused = asked.find(
      ({ zone, key }) => !verdictOf(zone.counts.counts(key), zone).allowed,
    );
    const verdicts: [Zone, Verdict][] = [];
    for (const { zone, key } of refused === undefined ? asked : [refused]) {
      const counts = refused === undefined ? await countShared(zone, key) : zone.counts.counts(key);
      const verdict = verdictOf(counts ?? zone.counts.counts(key), zone);
      verdicts.push([zone, verdict]);
      if (!verdict.allowed) break;
      zone.counts.count(key);
    }
    describe(exchange, verdicts);
    if (verdicts.some(([, { allowed }]) => !allowed)) {
      throw new HttpError(429, `too many requests in zone ${verdicts.at(-1)?.[0].name ?? ''}`);
    }
    await next();
  };
}

/** A client stands for its network, as far as one client has several addresses. */
function keyOf(template: string, exchange: Exchange, expand: HandlerContext['expand']): string {
  const encode =
    template === '{client_ip}' ||
    template === '{remote_host}' ||
    template === '{http.request.remote.host}'
      ? clientNetwork
      : undefined;
  const key = expand(template, exchange, undefined, encode);
  return key.length <= MAX_KEY ? key : createHash('sha256').update(key).digest('base64');
}

/** `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), and `Retry-After` (RFC 9110 §10.2.3). */
function describe(exchange: Exchange, verdicts: readonly (readonly [Zone, Verdict])[]): void {
  exchange.onHead((head) => {
    for (const [{ name, events, windowMs }, { allowed, remaining, waitMs }] of verdicts) {
      const seconds = Math.ceil(waitMs / 1000);
      head.headers.append(
        'RateLimit-Policy',
        `"${name}";q=${events};w=${Math.ceil(windowMs / 1000)}`,
      );
      head.headers.append('RateLimit', `"${name}";r=${remaining};t=${seconds}`);
      if (!allowed && head.status === 429) head.headers.set('Retry-After', String(seconds));
    }
    return undefined;
  });
}
