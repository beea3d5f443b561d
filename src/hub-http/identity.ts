import type { Exchange } from '../http/exchange.ts';
import { requireUrl } from '../kernel/parse-url.ts';

/** Who the hub is for one request. */
export interface Identity {
  /** The audience that a token must name, and `resource` of the metadata. */
  readonly resource: string;
  readonly metadataUrl: string;
}

/**
 * Tells the identity of the hub as a client has contacted it; null when the request names no host.
 * The connection alone decides, never a forwarded header: a hub behind another TLS endpoint pins
 * its `resource_identifier`.
 */
export function createIdentity(
  hubPath: string,
  resourceIdentifier: string | null,
): (exchange: Exchange) => Identity | null {
  const metadata = metadataPath(hubPath);
  if (resourceIdentifier !== null) {
    const { origin } = requireUrl(resourceIdentifier);
    const pinned = { resource: resourceIdentifier, metadataUrl: origin + metadata };
    return ({ host }) => (host === '' ? null : pinned);
  }
  return ({ scheme, host }) => {
    if (host === '') return null;
    const origin = `${scheme}://${host}`;
    return { resource: origin + hubPath, metadataUrl: origin + metadata };
  };
}

/** RFC 9728 §3.1: the well-known segment goes before the resource's own path. */
export function metadataPath(hubPath: string): string {
  return `/.well-known/oauth-protected-resource${hubPath}`;
}
