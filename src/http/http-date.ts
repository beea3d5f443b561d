const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const DAY = '(?:mon|tue|wed|thu|fri|sat|sun)';
const LONG_DAY = '(?:mon|tues|wednes|thurs|fri|satur|sun)day';
const TIME = '(\\d{2}):(\\d{2}):(\\d{2})';

const IMF_FIXDATE = new RegExp(`^${DAY}, (\\d{2}) ([a-z]{3}) (\\d{4}) ${TIME} gmt$`);
const RFC_850 = new RegExp(`^${LONG_DAY}, (\\d{2})-([a-z]{3})-(\\d{2}) ${TIME} gmt$`);
const ASCTIME = new RegExp(`^${DAY} ([a-z]{3}) ([ \\d]\\d) ${TIME} (\\d{4})$`);

/** A two-digit year that is further in the future than this belongs to the last century (RFC 9110 §5.6.7). */
const MAX_YEARS_AHEAD = 50;

/**
 * The time of an HTTP date in one of its three forms (RFC 9110 §5.6.7), in milliseconds since the Unix epoch;
 * null for anything else. Case is ignored, because some servers write it wrong and the meaning is clear.
 */
export function parseHttpDate(text: string, nowMs = Date.now()): number | null {
  const field = text.trim().toLowerCase();
  const fixed = IMF_FIXDATE.exec(field);
  if (fixed !== null) {
    const [, day, month, year, ...time] = fixed;
    return utc(Number(year), month, Number(day), time);
  }
  const rfc850 = RFC_850.exec(field);
  if (rfc850 !== null) {
    const [, day, month, shortYear, ...time] = rfc850;
    const thisYear = new Date(nowMs).getUTCFullYear();
    const year = Math.floor(thisYear / 100) * 100 + Number(shortYear);
    return utc(year > thisYear + MAX_YEARS_AHEAD ? year - 100 : year, month, Number(day), time);
  }
  const [, month, day, hours, minutes, seconds, year] = ASCTIME.exec(field) ?? [];
  if (year === undefined) return null;
  return utc(Number(year), month, Number(day), [hours, minutes, seconds]);
}

function utc(
  year: number,
  monthName: string | undefined,
  day: number,
  [hours, minutes, seconds]: readonly (string | undefined)[],
): number | null {
  const month = MONTHS.indexOf(monthName ?? '');
  if (month === -1 || day < 1 || day > 31) return null;
  const time = [Number(hours), Number(minutes), Number(seconds)] as const;
  // RFC 9110 §5.6.7: a leap second is written as 60.
  if (time[0] > 23 || time[1] > 59 || time[2] > 60) return null;
  return Date.UTC(year, month, day, ...time);
}

let dateSecond = 0;
let dateText = '';

/** The present second as a date (RFC 9110 §5.6.7). */
export function httpDate(): string {
  const now = Date.now();
  const second = Math.floor(now / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = new Date(now).toUTCString();
  }
  return dateText;
}
