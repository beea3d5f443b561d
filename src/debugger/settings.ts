/** `HUB/debug/config.json`: what the page has to know of its hub. Nothing of it is secret. */
export interface DebuggerSettings {
  /** Whether `HUB/debug/playground-token` gives a token. */
  readonly playground: boolean;
  readonly anonymous: boolean;
  /** Whether subscriptions are announced and can be asked for. */
  readonly subscriptions: boolean;
  readonly cookieName: string;
  /** Response header that says where a replay began. */
  readonly cursorHeader: string;
  /** `type` of the hub's authorization details. */
  readonly detailType: string;
  /** See `hubBase`. */
  readonly base: string;
  /** What a token must name in `aud`. */
  readonly audience: string;
  /** The claim of 0.x tokens. */
  readonly legacyClaim: string;
  /** Whether the hub has `protocol_version_compatibility`. */
  readonly compatible: boolean;
  /** Whether its process reads 0.x tokens. */
  readonly readsLegacy: boolean;
}
