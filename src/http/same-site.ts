import { getDomain } from 'tldts';

/**
 * A redirect stays on the site if its template says so. Whatever placeholders contain, a target that is
 * written with one slash never becomes one that browsers read as another host. The same is true for a value
 * at the beginning of a target, unless it is a whole URL (WHATWG URL §4.4). Browsers read `\` as a slash and
 * ignore tabs and line ends, so `/\evil.example` and `/<tab>/evil.example` are `//evil.example` to them.
 */
export function sameSiteLocation(template: string, location: string): string {
  const mayLeave = !template.startsWith('{') && !/^\/(?![/\\])/.test(template);
  return mayLeave ? location : withoutHost(location);
}

/** The same for a location in which a regular expression has changed a part. */
export function changedLocation(before: string, after: string): string {
  return hasHost(before) ? after : withoutHost(after);
}

/** The characters that a browser removes before it reads a URL, and those that it ignores inside of one. */
// oxlint-disable-next-line no-control-regex
const UNREAD = /^[\0-\x20]+|[\t\n\r]+/g;

function hasHost(location: string): boolean {
  return /^[/\\]{2}/.test(location.replace(UNREAD, ''));
}

function withoutHost(location: string): string {
  return hasHost(location) ? location.replace(UNREAD, '').replace(/^[/\\]+/, '/') : location;
}

/**
 * The registrable domain of a host (`example.co.uk` for `a.b.example.co.uk`), with private suffixes such as
 * `github.io` counted as suffixes; null for a suffix itself, a single label or an IP address.
 */
export function registrableDomain(host: string): string | null {
  return getDomain(host, { allowPrivateDomains: true, detectIp: true });
}
