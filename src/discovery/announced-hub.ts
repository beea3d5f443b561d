// What the gateway publishes itself reaches the hub's log by a function, under the rules of every
// publication.

/** What the gateway publishes in the app's name. */
export interface AnnouncedUpdate {
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly data: string;
  readonly type?: string | undefined;
  readonly id?: string | undefined;
}

/** How often the gateway has spoken for the app; they only grow. */
export interface AnnouncementCounts {
  /** Updates made of answers of the app. */
  announced: number;
  /** Changes that were merged into another update. */
  merged: number;
  /** Updates that the hub, or the bounds of `Hub-Publish`, refused. */
  refused: number;
  /** Refetches of pages that were answered with somebody else's answer. */
  collapsed: number;
  /** Pages that do not show all that the server sends: their visitor is at work there, */
  withheldForVisitor: number;
  /** a script has changed the same, */
  withheldForScript: number;
  /** or they are gone, and leaving them would lose something. */
  withheldGone: number;
}

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
  /**
   * Puts an update into the hub's log; null for a hub that is elsewhere.
   *
   * @throws HubgateError (rejects with it) for an update that the hub refuses or cannot store
   */
  readonly publish: ((update: AnnouncedUpdate) => Promise<void>) | null;
  /** How many streams have asked for exactly this topic. */
  readonly interest: (topic: string) => number;
  readonly announcements: AnnouncementCounts;
  /** Ends the streams of a token by its `jti`. */
  readonly revoke: (tokenId: string) => void;
  /** Ends the streams of a browser session by its mark. */
  readonly signOut: (session: string) => void;
}
