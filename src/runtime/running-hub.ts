import type { AnnouncementCounts } from '../discovery/announced-hub.ts';
import type { HubCounts, SlowStream } from '../hub/hub-measures.ts';

/** What is counted of a hub: in its core, and where the gateway speaks for the app. */
export type RunningHubCounts = HubCounts & AnnouncementCounts;

export type RevocationReach = 'here' | 'everywhere';

/** A hub of the running configuration, as its operator sees it. */
export interface RunningHub {
  /** Label of the configuration; several hubs without one are all `default`. */
  readonly name: string;
  readonly profile: 'hub' | 'mercure';
  readonly counts: Readonly<RunningHubCounts>;
  /** @throws HubgateError when its transport does not work */
  check(): Promise<void>;
  /**
   * Ends the streams that were opened with the token of this `jti`, and says how many there were here.
   *
   * @param reach whether other machines are told
   */
  revoke(tokenId: string, reach: RevocationReach): Promise<number>;
}

/** A stream of which much waits, and the name of its hub. */
export interface SlowSubscriber extends SlowStream {
  readonly hub: string;
}

/** Slow streams that are told of. */
const SLOWEST = 10;

/** Those of which most waits first. */
export function slowestOf(streams: readonly SlowSubscriber[]): readonly SlowSubscriber[] {
  return streams.toSorted((a, b) => b.bytes - a.bytes).slice(0, SLOWEST);
}
