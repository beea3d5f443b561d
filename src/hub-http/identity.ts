import type { Exchange } from '../http/exchange.ts';

/** Who the hub is for one request. */
export interface Identity {
  /** The audience that a token must name, and `resource` of the metadata. */
  readonly resource: string;
  readonly metadataUrl: string;
}

/**
 * The identity of the hub as this client contacted it; null when the request names no host. The
 * connection alone decides, never a forwarded header: a hub behind another TLS endpoint pins its
 * `resource_identifier`.
 */
export function identityOf(
  exchange: Exchange,
  hubPath: string,
  resourceIdentifier: string | null,
): Identity | null {
  if (exchange.host === '') return null;
  if (resourceIdentifier !== null) {
    const { origin } = new URL(resourceIdentifier);
    return { resource: resourceIdentifier, metadataUrl: origin + metadataPath(hubPath) };
  }
  const origin = `${exchange.scheme}://${exchange.host}`;
  return { resource: origin + hubPath, metadataUrl: origin + metadataPath(hubPath) };
}

/** RFC 9728 §3.1: the well-known segment goes before the resource's own path. */
export function metadataPath(hubPath: string): string {
  return `/.well-known/oauth-protected-resource${hubPath}`;
}
