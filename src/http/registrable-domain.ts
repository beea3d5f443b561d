import { getDomain } from 'tldts';

/**
 * The registrable domain of a host (`example.co.uk` for `a.b.example.co.uk`), private suffixes such
 * as `github.io` counted as suffixes; null for a suffix itself, a single label or an IP address.
 */
export function registrableDomain(host: string): string | null {
  return getDomain(host, { allowPrivateDomains: true, detectIp: true });
}
