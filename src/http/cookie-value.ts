import type { HeaderList } from './header-list.ts';

/**
 * The value of the first cookie of that name in a request (RFC 6265 §4.2.1) that `accepts` takes;
 * undefined for none.
 */
export function cookieValue(
  headers: HeaderList,
  name: string,
  accepts: (value: string) => boolean = () => true,
): string | undefined {
  for (const field of headers.getAll('cookie')) {
    for (const pair of field.split(';')) {
      const equals = pair.indexOf('=');
      if (equals === -1 || pair.slice(0, equals).trim() !== name) continue;
      const value = pair.slice(equals + 1).trim();
      if (accepts(value)) return value;
    }
  }
  return undefined;
}
