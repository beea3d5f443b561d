import { isIP } from 'node:net';
import type { SiteConfig } from '../config/config.ts';
import { defaultTls } from '../config/defaults.ts';
import type { HandshakePolicies } from '../server/tls-endpoint.ts';
import { type HandshakePolicy, openHandshakePolicy } from '../tls/handshake-policy.ts';
import type { PlannedSite } from './listen-plan.ts';

/** The handshake policies of one listener, and which requests a connection may carry after its handshake. */
export interface Handshakes extends HandshakePolicies {
  /**
   * Whether a connection may carry a request for a site. A site with client certificates accepts only
   * connections on which it has requested the certificate itself. The name in a request may differ from the
   * one in the handshake, and the connection may be older than the trust pool (RFC 9110 §15.5.20).
   */
  admits(site: SiteConfig, policyId: string | null): boolean;
}

/**
 * Opens the handshake policies of a listener's sites.
 *
 * @param siteOf the site of a host, the same for server names and for requests
 * @throws the errors of {@link openHandshakePolicy}
 */
export async function openHandshakes(
  sites: readonly PlannedSite[],
  siteOf: (host: string) => SiteConfig | undefined,
): Promise<Handshakes> {
  const bySite = new Map<SiteConfig, HandshakePolicy>();
  for (const { site, addresses } of sites) {
    bySite.set(site, await openHandshakePolicy(site.tls, addresses));
  }
  const own = unique(bySite.values());
  const [only] = own;
  const open = own.find(({ clientAuth }) => clientAuth === null);
  // For names without a site, whose handshakes fail, and for addresses without a site. No client certificate
  // is requested there.
  const other =
    own.length === 1 && only !== undefined
      ? only
      : (open ?? (await openHandshakePolicy(defaultTls, [])));
  return {
    all: unique([...own, other]),
    policyFor(name) {
      const site = siteOf(isIP(name) === 6 ? `[${name}]` : name);
      return (site === undefined ? undefined : bySite.get(site)) ?? other;
    },
    admits: (site, policyId) => site.tls.clientAuth === null || bySite.get(site)?.id === policyId,
  };
}

function unique(policies: Iterable<HandshakePolicy>): HandshakePolicy[] {
  return [...new Map([...policies].map((policy) => [policy.id, policy])).values()];
}
