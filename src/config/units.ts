/** The bounds of a port. */
export const PORT = { min: 1, max: 65_535 };

/** In milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const DAY = 24 * 60 * MINUTE;

const MS_PER_UNIT: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const BYTES_PER_UNIT: Readonly<Record<string, number>> = {
  '': 1,
  k: 1000,
  m: 1000 ** 2,
  g: 1000 ** 3,
  t: 1000 ** 4,
  ki: 1024,
  mi: 1024 ** 2,
  gi: 1024 ** 3,
  ti: 1024 ** 4,
};

const DURATION = /^(?:\d{1,15}(?:\.\d{1,9})?(?:ns|us|µs|ms|s|m|h|d))+$/;
const DURATION_PART = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)/g;
const SIZE = /^(\d{1,15}(?:\.\d{1,9})?)\s*((?:[kmgt]i?)?)b?$/i;

/**
 * Parses a duration such as `500ms`, `10s`, `1h30m`, `7d` or `0`, in milliseconds; null if it is not valid.
 */
export function parseDuration(text: string): number | null {
  if (text === '0') return 0;
  if (!DURATION.test(text)) return null;
  let total = 0;
  for (const [, amount, unit = ''] of text.matchAll(DURATION_PART)) {
    total += Number(amount) * (MS_PER_UNIT[unit] ?? 0);
  }
  const ms = Math.round(total);
  // Rounding must not turn a short wait into "no limit".
  if (ms === 0 && total > 0) return 1;
  return Number.isSafeInteger(ms) ? ms : null;
}

/** Parses a size such as `64KB` or `64k` (1000), `64KiB` or `64ki` (1024) or `65536`, in bytes; null if it is not valid. */
export function parseSize(text: string): number | null {
  const [, amount, unit = ''] = SIZE.exec(text) ?? [];
  const factor = BYTES_PER_UNIT[unit.toLowerCase()];
  if (amount === undefined || factor === undefined) return null;
  const bytes = Math.round(Number(amount) * factor);
  return Number.isSafeInteger(bytes) ? bytes : null;
}
