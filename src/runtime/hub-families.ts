import type { AnnouncementCounts } from '../discovery/announced-hub.ts';
import type { OutboxCounts } from '../outbox/outbox-reader.ts';
import { HubgateError } from '../kernel/error.ts';
import type { HubCounts, SlowStream } from '../hub/hub-measures.ts';
import {
  counter,
  distribution,
  type Family,
  gauge,
  percentiles,
  type Series,
} from '../kernel/measures.ts';
import type { ReadyHub } from './hub-setup.ts';

/**
 * The metrics of a hub. Hubs with the same name have the same series, which are added up when they are
 * printed.
 */
export async function hubFamilies(
  { config: { name, profile }, core }: Pick<ReadyHub, 'config' | 'core'>,
  outbox: OutboxCounts | null,
): Promise<Family[]> {
  const { hub, watching } = core;
  const { measures } = hub;
  const counts = { ...hub.counts, ...core.announcements };
  const { bytes, waitingMs } = await hub.backlog();
  const families = [
    gauge('hub_subscribers_connected', 'Event streams that are open.', counts.connected),
    counter('hub_subscribers_total', 'Event streams that have been opened.', counts.subscribers),
    counter('hub_updates_total', 'Updates that have been published.', counts.updates),
    counter(
      'hub_legacy_tokens_total',
      'Requests with a token that only 0.x compatibility accepts.',
      counts.legacyTokens,
    ),
    counter(
      'hub_announced_updates_total',
      'Updates that the gateway created from responses of the app.',
      counts.announced,
    ),
    counter(
      'hub_merged_changes_total',
      'Changes that were merged into another update.',
      counts.merged,
    ),
    counter(
      'hub_refused_announcements_total',
      'Updates from responses of the app that were refused.',
      counts.refused,
    ),
    counter(
      'hub_collapsed_refetches_total',
      'Fetches of live pages that were answered with the response to another request.',
      counts.collapsed,
    ),
    counter(
      'hub_withheld_pages_total',
      'Live pages that withhold a change of the server, by reason.',
      by('reason', [
        ['visitor', counts.withheldForVisitor],
        ['script', counts.withheldForScript],
        ['gone', counts.withheldGone],
      ]),
    ),
    gauge('hub_watched_pages', 'Followed pages that this process watches.', watching.watched),
    counter(
      'hub_watch_requests_total',
      'Requests of the gateway itself for watched pages, by what they have shown.',
      by('outcome', [
        ['first', watching.first],
        ['unchanged', watching.unchanged],
        ['changed', watching.changed],
        ['unfit', watching.unfit],
        ['failed', watching.failed],
      ]),
    ),
    counter(
      'hub_unwatched_pages_total',
      'Followed pages that were not watched because there were too many.',
      watching.refused,
    ),
    counter('hub_deliveries_total', 'Events that were queued for streams.', measures.deliveries),
    counter(
      'hub_delivered_bytes_total',
      'Bytes of these events, before compression and encryption.',
      measures.deliveredBytes,
    ),
    distribution('hub_update_size_bytes', 'Data of published updates.', measures.updateSize),
    distribution(
      'hub_store_duration_seconds',
      'Time until an update is stored, including waiting.',
      measures.store,
    ),
    counter('hub_store_failures_total', 'Updates that were not stored.', measures.failedAppends),
    gauge(
      'hub_log_position',
      'Position of the newest entry of the history that this process has seen.',
      core.transport.position,
      'max',
    ),
    distribution(
      'hub_replayed_updates',
      'Updates that a stream received from the history before it continued live.',
      measures.replays,
    ),
    gauge(
      'hub_stream_queue_bytes',
      'Percentiles, over the open streams, of the bytes that wait for the client.',
      percentiles(bytes),
      'max',
    ),
    gauge(
      'hub_stream_lag_seconds',
      'Percentiles, over the open streams, of how long the oldest waiting data has waited.',
      percentiles(waitingMs.map((ms) => ms / 1000)),
      'max',
    ),
    counter(
      'hub_streams_ended_total',
      'Event streams that have ended, by reason.',
      by('reason', Object.entries(measures.ended)),
    ),
    counter(
      'hub_slow_subscribers_total',
      'Streams that ended because their client was slow: more than max_subscriber_buffer was waiting, or it read nothing for dispatch_timeout.',
      by('reason', Object.entries(measures.slow)),
    ),
    counter(
      'hub_refusals_total',
      'Requests that the hub refused, by the check that failed.',
      by('check', measures.refusals),
    ),
    ...(outbox === null ? [] : outboxFamilies(outbox)),
  ];
  return [
    ...families.map((family) => ofHub(name, family)),
    ...(profile === 'mercure' ? mercureFamilies(counts) : []),
  ];
}

/** The series of a hub say its name. */
function ofHub(hub: string, family: Family): Family {
  const values = family.values.map((sample) => ({ ...sample, labels: { hub, ...sample.labels } }));
  return { ...family, values };
}

function by(label: string, values: Iterable<readonly [string, number]>): Series {
  return [...values].map(([key, value]) => [{ [label]: key }, value]);
}

function outboxFamilies(counts: OutboxCounts): readonly Family[] {
  return [
    counter(
      'hub_outbox_published_total',
      'Rows of the outbox that became updates.',
      counts.published,
    ),
    counter(
      'hub_outbox_dead_letters_total',
      'Rows of the outbox that could not be published.',
      counts.deadLetters,
    ),
    counter(
      'hub_outbox_failures_total',
      'Times that the outbox could not be read, or its rows not be stored.',
      counts.failures,
    ),
    gauge(
      'hub_outbox_reading',
      'Whether this process publishes the rows of the outbox.',
      counts.reading,
    ),
    gauge('hub_outbox_rows', 'Rows that wait in the outbox, at most 10,000.', counts.rows, 'max'),
    gauge(
      'hub_outbox_lag_seconds',
      'Age of the oldest row in the outbox.',
      counts.lagSeconds,
      'max',
    ),
  ];
}

/** With the names that dashboards of the reference hub use: without labels, for all hubs together. */
function mercureFamilies({ connected, subscribers, updates }: HubCounts): readonly Family[] {
  return [
    gauge('mercure_subscribers_connected', 'As hub_subscribers_connected.', connected),
    counter('mercure_subscribers_total', 'As hub_subscribers_total.', subscribers),
    counter('mercure_updates_total', 'As hub_updates_total.', updates),
  ];
}

/** The counters of a hub: those of its core, and those of its announcements. */
type RunningHubCounts = HubCounts & AnnouncementCounts;

export type RevocationReach = 'here' | 'everywhere';

/** @throws HubgateError `invalid-argument`: the types do not bind a program in JavaScript */
export function requireReach(reach: RevocationReach, of: 'purge' | 'revoke'): void {
  if (reach === 'here' || reach === 'everywhere') return;
  throw new HubgateError('invalid-argument', `The reach of ${of} is here or everywhere`);
}

/** A hub of the active configuration, from the view of its operator. */
export interface RunningHub {
  /** Name in the configuration; all hubs without one have the name `default`. */
  readonly name: string;
  readonly profile: 'hub' | 'mercure';
  readonly counts: Readonly<RunningHubCounts>;
  /** @throws HubgateError if its transport does not work, or its outbox cannot be read */
  check(): Promise<void>;
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
