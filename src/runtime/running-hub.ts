import type { AnnouncementCounts } from '../discovery/announced-hub.ts';
import type { HubCounts, SlowStream } from '../hub/hub-measures.ts';

/** The counters of a hub: those of its core, and those of its announcements. */
export type RunningHubCounts = HubCounts & AnnouncementCounts;

export type RevocationReach = 'here' | 'everywhere';

/** A hub of the active configuration, from the view of its operator. */
export interface RunningHub {
  /** Name in the configuration; all hubs without one have the name `default`. */
  readonly name: string;
  readonly profile: 'hub' | 'mercure';
  readonly counts: Readonly<RunningHubCounts>;
  /** @throws HubgateError if its transport does not work, or its outbox cannot be read */
  check(): Promise<void>;
  /**
   * Ends the streams that were opened with the token of this `jti`, and returns how many there were here.
   *
   * @param reach whether other machines are notified
   */
  revoke(tokenId: string, reach: RevocationReach): Promise<number>;
}

/** A stream with much waiting data, and the name of its hub. */
export interface SlowSubscriber extends SlowStream {
  readonly hub: string;
}

/** Slow streams that are reported. */
const SLOWEST = 10;

/** The streams with the most waiting data first. */
export function slowestOf(streams: readonly SlowSubscriber[]): readonly SlowSubscriber[] {
  return streams.toSorted((a, b) => b.bytes - a.bytes).slice(0, SLOWEST);
}
