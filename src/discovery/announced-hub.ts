/** The hub that a site's pages announce. */
export interface AnnouncedHub {
  /** Path, or absolute URL when the hub is on another site. */
  readonly target: string;
  readonly path: string;
  readonly relation: string;
  readonly cookieName: string;
  /** The hub-wide cursor now; null for a hub that is elsewhere. */
  readonly lastEventId: () => string | null;
  /** Host of the hub for a page on that host. */
  readonly hostFor: (pageHost: string) => string;
  /** Whether scripts of an origin may use the hub; null when only its own may. */
  readonly allowsOrigin: ((origin: string) => boolean) | null;
  /** Ends the streams of a token by its `jti`. */
  readonly revoke: (tokenId: string) => void;
  /** Ends the streams of a browser session by its mark. */
  readonly signOut: (session: string) => void;
}
