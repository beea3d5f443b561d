import type { Exchange } from '../http/exchange.ts';
import { requireUrl } from '../kernel/parse.ts';

/** The identity of the hub for one request. */
export interface Identity {
  /** The audience that a token must have, and `resource` in the metadata. */
  readonly resource: string;
  readonly metadataUrl: string;
}

/**
 * Determines the identity of the hub from the URL that a client has used, so from `Host` and the connection; null if the
 * request names no host. A forwarded header has no effect. A hub behind another TLS endpoint, or one for any host, sets
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
    return ({ originalHost }) => (originalHost === '' ? null : pinned);
  }
  return ({ scheme, originalHost }) => {
    if (originalHost === '') return null;
    const origin = `${scheme}://${originalHost}`;
    return { resource: origin + hubPath, metadataUrl: origin + metadata };
  };
}

/** RFC 9728 §3.1: the well-known segment goes before the resource's own path. */
export function metadataPath(hubPath: string): string {
  return `/.well-known/oauth-protected-resource${hubPath}`;
}
