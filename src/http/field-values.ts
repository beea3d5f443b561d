import type { HeaderList } from './header-list.ts';

/**
 * The value of the first cookie with that name in a request (RFC 6265 §4.2.1) that `accepts` returns true
 * for; undefined if there is none. There is no space around the `=`, and quotes around a value are not part
 * of it (§4.1.1).
 */
export function cookieValue(
  headers: HeaderList,
  name: string,
  accepts: (value: string) => boolean = () => true,
): string | undefined {
  for (const field of headers.getAll('cookie')) {
    for (const pair of field.split(';')) {
      const equals = pair.indexOf('=');
      if (equals === -1 || pair.slice(0, equals).trimStart() !== name) continue;
      const written = pair.slice(equals + 1).trimEnd();
      if (/^\s/.test(written)) continue;
      const value = /^".*"$/s.test(written) && written.length > 1 ? written.slice(1, -1) : written;
      if (accepts(value)) return value;
    }
  }
  return undefined;
}

/** Whether a response has a field with one of these names, or announces one for its trailers. */
export function hasField(headers: HeaderList, names: readonly string[]): boolean {
  const announced = headers
    .combined('trailer')
    ?.toLowerCase()
    .split(/[\s,]+/);
  return names.some(
    (name) => headers.has(name) || announced?.includes(name.toLowerCase()) === true,
  );
}

/** A quoted-string (RFC 9110 §5.6.4). Characters beyond ASCII are left to the encoding of the field. */
export function quotedString(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}
