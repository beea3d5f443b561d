import { type Report, error } from '../config/problem.ts';
import { defaultsOf, list, object, type Of, withDefault } from '../config/shape.ts';
import {
  count as countShape,
  duration as durationShape,
  text as textShape,
} from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue, duration, optionsOf, within } from '../hubfile/values.ts';
import { hash } from 'node:crypto';
import { CircuitBreaker } from '../kernel/circuit-breaker.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import {
  clientNetwork,
  type RateZone,
  type Verdict,
  verdictOf,
  type WindowCounts,
} from '../http/rate-limits.ts';
import { messageOf } from '../kernel/error.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

const MIN_WINDOW_MS = 100;
const MAX_WINDOW_MS = 24 * 60 * 60 * 1000;

/** A name becomes part of a field without escapes. */
function isZoneName(name: string): boolean {
  return /^[\w.-]{1,64}$/.test(name);
}

const zoneMembers = {
  /** Zones with the same name and the same length of window are the same zone, in all sites. */
  name: textShape('a name of letters, digits, _, - and .', isZoneName),
  /** The counted key, with placeholders. */
  key: withDefault(textShape('a key such as {client_ip}'), '{client_ip}'),
  /** Requests within a window's length. */
  events: countShape({ min: 1 }),
  windowMs: durationShape({ min: MIN_WINDOW_MS }),
};

interface RateZoneConfig extends Of<typeof zoneMembers> {}

export interface RateLimitConfig {
  readonly kind: 'rate_limit';
  readonly zones: readonly RateZoneConfig[];
}

function checkZones({ zones }: RateLimitConfig, report: Report): void {
  const known = new Set<string>();
  for (const each of zones) {
    if (known.has(each.name)) {
      const message = `the zone ${each.name} is given twice`;
      report(each, error('duplicate-zone', message));
    }
    known.add(each.name);
    if (each.windowMs > MAX_WINDOW_MS) {
      const message = `the window of zone ${each.name} is longer than 24h`;
      report(each, error('window-too-long', message));
    }
  }
}

const USAGE = `
rate_limit [<matcher>] {
    zone <name> {
        key <text>
        events <n>
        window <duration>
    }
}
`;

export const rateLimit: HandlerDirective<RateLimitConfig> = {
  data: {
    shape: () => object({ zones: list(object(zoneMembers), { min: 1 }) }),
    check: checkZones,
  },
  syntax: {
    usage: USAGE,
    summary: 'limits the rate of requests',
    after: 'try_files',
    read: oneStep((cursor) => {
      const start: { zones: readonly RateZoneConfig[] } = { zones: [] };
      cursor.block();
      const { zones } = cursor.options(
        start,
        { zone: (option, sofar) => ({ zones: [...sofar.zones, zone(option)] }) },
        {
          repeatable: ['zone'],
          unsupported: {
            distributed:
              'nodes share their counts if the hub of the site has transport redis or postgres',
            storage:
              'nodes share their counts if the hub of the site has transport redis or postgres',
            jitter: 'Retry-After is exact',
            sweep_interval: 'hubgate removes old counts by itself',
          },
        },
      );
      if (zones.length === 0 && cursor.line.block?.length === 0) {
        const hint = 'for example zone api { events 100; window 1m }, each on a line of its own';
        cursor.fail(cursor.span, 'expected-argument', 'rate_limit needs a zone', hint);
      }
      return { kind: 'rate_limit', zones };
    }),
  },
  compile,
};

interface Draft {
  readonly key: string;
  readonly events: number | null;
  readonly windowMs: number | null;
}

function zone(cursor: Cursor): RateZoneConfig {
  const name = cursor.argument('a name');
  if (!isZoneName(name.text)) badValue(cursor, name, 'a name of letters, digits, _, - and .');
  const start: Draft = { ...defaultsOf(zoneMembers), events: null, windowMs: null };
  const { key, events, windowMs } = cursor.options(
    start,
    {
      ...optionsOf(zoneMembers, { name: null }),
      window: (option) => ({ windowMs: windowLength(option) }),
    },
    { unsupported: { match: 'write a matcher before the block: rate_limit @api { … }' } },
  );
  if (events === null || windowMs === null) {
    const hint = 'for example events 100 and window 1m';
    return cursor.fail(cursor.span, 'missing-option', 'a zone needs events and window', hint);
  }
  return cursor.origins.of(cursor.span, { name: name.text, key, events, windowMs });
}

function windowLength(option: Cursor): number {
  const isPossible = (ms: number): boolean => ms >= MIN_WINDOW_MS && ms <= MAX_WINDOW_MS;
  return within(option, duration, isPossible, 'a duration from 100ms to 24h');
}

/** Characters of a key; longer ones are counted by their digests. */
const MAX_KEY = 128;
/** Shortest time between two warnings that counts are not shared. */
const COMPLAIN_MS = 60_000;

interface Zone extends RateZoneConfig {
  readonly counts: RateZone;
}

/**
 * Admits at most this many requests with the same key within a window's length, in each of the zones. Refused
 * requests are not counted. The counts include all workers, with a small delay, and all nodes if the site's
 * hub has a store for that. While the store is unavailable or slow, they are those of this machine.
 */
function compile({ zones }: RateLimitConfig, context: HandlerContext): Handler {
  const { expand, rateLimits, sharedCounts, defer, log, clock } = context;
  const leased = zones.map((zone): Zone => {
    const lease = rateLimits.acquire(zone.name, zone.windowMs);
    defer(() => lease.release());
    return { ...zone, counts: lease.value };
  });
  const breaker = new CircuitBreaker(clock);
  let complainedMs = Number.NEGATIVE_INFINITY;

  /** Returns null if there is no such store, or if it is unavailable or slow. */
  const countShared = async (zone: Zone, key: string): Promise<WindowCounts | null> => {
    if (sharedCounts === null || breaker.isOpen) return null;
    const { name, events, windowMs } = zone;
    try {
      return await breaker.limit(
        sharedCounts.count(`${name} ${windowMs} ${key}`, events, windowMs),
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
    // Nobody passes by it: what is kept would be given to others without asking.
    exchange.dependsOn?.('client');
    const asked = leased.map((zone) => ({ zone, key: keyOf(zone.key, exchange, expand) }));
    // A request that is refused in one zone is counted in none, as far as this can be determined here.
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

/** Placeholders, by short names, for the address of a client. */
const ADDRESSES: ReadonlySet<string> = new Set(['client_ip', 'remote_host']);

/** A client counts as its network, because it may have several addresses. */
function keyOf(template: string, exchange: Exchange, expand: HandlerContext['expand']): string {
  const key = expand(template, exchange, undefined, (value, name) =>
    ADDRESSES.has(name) ? clientNetwork(value) : value,
  );
  return key.length <= MAX_KEY ? key : hash('sha256', key, 'base64');
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
