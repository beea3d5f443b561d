/**
 * All names that contain the brand of the protocol, in one table. With the profile `mercure` the hub serves
 * existing Mercure 1.0 clients. No other file may contain such a name.
 */
export interface Profile {
  readonly name: 'hub' | 'mercure';
  /** Path of the hub. */
  readonly path: string;
  /** Link relation type of discovery. */
  readonly relation: string;
  readonly cookieName: string;
  /** Response header with the place where a replay began. */
  readonly cursorHeader: string;
  /** SSE event name of the hub's own updates; publishers may not use it. */
  readonly reservedType: string;
  /** `type` of the hub's authorization details (RFC 9396). */
  readonly detailType: string;
  /** Prefix of the hub's members in the protected resource metadata (RFC 9728). */
  readonly metadataPrefix: string;
  /** Claim and cookie of 0.x tokens. */
  readonly legacyClaim: string;
  readonly legacyCookieName: string;
}

export const profiles: Readonly<Record<Profile['name'], Profile>> = {
  hub: {
    name: 'hub',
    path: '/.well-known/hub',
    relation: 'hub',
    cookieName: '__Secure-hub_access_token',
    cursorHeader: 'Hub-Last-Event-ID',
    reservedType: 'hub',
    detailType: 'urn:hub:authorization-detail',
    metadataPrefix: 'hub',
    legacyClaim: 'hub',
    legacyCookieName: 'hubAuthorization',
  },
  mercure: {
    name: 'mercure',
    path: '/.well-known/mercure',
    relation: 'mercure',
    cookieName: '__Secure-mercure_access_token',
    cursorHeader: 'Mercure-Last-Event-ID',
    reservedType: 'mercure',
    detailType: 'https://mercure.rocks/authorization-detail',
    metadataPrefix: 'mercure',
    legacyClaim: 'mercure',
    legacyCookieName: 'mercureAuthorization',
  },
};
