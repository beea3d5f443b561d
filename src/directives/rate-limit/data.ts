import type { HandlerData } from '../../config/routes.ts';
import type { Report } from '../../config/problem.ts';
import { list, object } from '../../config/shape.ts';
import { count, duration, text } from '../../config/shape-values.ts';

export interface RateLimitConfig {
  readonly kind: 'rate_limit';
  readonly zones: readonly RateZoneConfig[];
}

export interface RateZoneConfig {
  /** Zones of one name and one length of window are one, in all sites. */
  readonly name: string;
  /** Who is counted, with placeholders. */
  readonly key: string;
  /** Requests within a window's length. */
  readonly events: number;
  readonly windowMs: number;
}

export const MIN_WINDOW_MS = 100;
export const MAX_WINDOW_MS = 24 * 60 * 60 * 1000;

/** A name stands in a field as it is. */
export function isZoneName(name: string): boolean {
  return /^[\w.-]{1,64}$/.test(name);
}

const zone = object<RateZoneConfig>(
  {
    name: text('a name of letters, digits, _, - and .', isZoneName),
    key: text('a key such as {client_ip}'),
    events: count({ min: 1 }),
    windowMs: duration({ min: MIN_WINDOW_MS }),
  },
  { key: '{client_ip}' },
);

declare module '../../config/routes.ts' {
  interface HandlerKinds {
    rate_limit: RateLimitConfig;
  }
}

export const rateLimit: HandlerData<RateLimitConfig> = {
  shape: () => object({ zones: list(zone, { min: 1 }) }),
  check: checkZones,
};

function checkZones({ zones }: RateLimitConfig, report: Report): void {
  const known = new Set<string>();
  for (const each of zones) {
    if (known.has(each.name)) {
      const message = `the zone ${each.name} is given twice`;
      report(each, { severity: 'error', code: 'duplicate-zone', message });
    }
    known.add(each.name);
    if (each.windowMs > MAX_WINDOW_MS) {
      const message = `the window of zone ${each.name} is longer than 24h`;
      report(each, { severity: 'error', code: 'window-too-long', message });
    }
  }
}
