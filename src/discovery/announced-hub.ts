// Updates of the gateway itself reach the hub's history through a function, with the rules of every
// publication.

/** An update that the gateway publishes in the app's name. */
export interface AnnouncedUpdate {
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly data: string;
  readonly type?: string | undefined;
  readonly id?: string | undefined;
}

/** Counters of what the gateway does in the app's name. They never decrease. */
export interface AnnouncementCounts {
  /** Updates that result from responses of the app. */
  announced: number;
  /** Changes that were merged into another update. */
  merged: number;
  /** Updates that the hub, or the limits of `Hub-Publish`, refused. */
  refused: number;
  /** Fetches of pages that got the response to another request. */
  collapsed: number;
  /** Pages that do not show everything that the server sends because their visitor is active there, */
  withheldForVisitor: number;
  /** because a script has changed the same part, */
  withheldForScript: number;
  /** or because they are gone, and leaving them would lose data. */
  withheldGone: number;
}

/** The hub that a site's pages announce. */
export interface AnnouncedHub {
  /** Path, or absolute URL when the hub is on another site. */
  readonly target: string;
  readonly path: string;
  readonly relation: string;
  readonly cookieName: string;
  /** Returns the hub-wide cursor; null for an external hub. */
  readonly lastEventId: () => string | null;
  /** Host of the hub for a page on that host. */
  readonly hostFor: (pageHost: string) => string;
  /** Whether scripts of an origin may use the hub; null if only those of its own origin may. */
  readonly allowsOrigin: ((origin: string) => boolean) | null;
  /**
   * Publishes an update on the hub; null for an external hub.
   *
   * @throws HubgateError (rejects with it) for an update that the hub refuses or cannot store
   */
  readonly publish: ((update: AnnouncedUpdate) => Promise<void>) | null;
  /** The number of streams that have subscribed to exactly this topic. */
  readonly interest: (topic: string) => number;
  readonly announcements: AnnouncementCounts;
  /** Ends the streams of a token by its `jti`. */
  readonly revoke: (tokenId: string) => void;
  /** Ends the streams of a browser session by its mark. */
  readonly signOut: (session: string) => void;
}
