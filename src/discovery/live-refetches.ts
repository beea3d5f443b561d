import { type Clock, pause } from '../kernel/clock.ts';
import type { Exchange, RequestHook } from '../http/exchange.ts';
import { hasField } from '../http/field-values.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { DATA_FIELD, PUBLISH_FIELD } from './hub-publish.ts';
import type { TopicOf } from '../client/page-topics.ts';
import { requestUrl } from '../http/request-path.ts';

export interface LiveRefetchesOptions {
  readonly hub: AnnouncedHub;
  readonly concerns: (exchange: Exchange) => boolean;
  /** For how long a response is shared with other requests, counted from its own request. */
  readonly windowMs: number;
  readonly topicOf: TopicOf;
  readonly clock: Clock;
  /** Returns a number from 0 up to 1. */
  readonly random: () => number;
  /** Fields of the app's responses that concern one user: the token, or what it is created from. */
  readonly personalFields: readonly string[];
}

/** The field in which the script of live pages names the update that causes its fetch. */
const CAUSE = 'Hub-Live';
/** Private pages that are fetched per second because of one update. */
const REFETCHES_PER_SECOND = 200;
/** Longest wait of the last of them. */
const MAX_SPREAD_MS = 30_000;

/**
 * Handles the pages that are fetched because of an update. Equal requests can share one response of the app;
 * others are spread over time. This is decided next to the upstream, after each request has passed all rules
 * of its site.
 */
export function createLiveRefetches(options: LiveRefetchesOptions) {
  const { hub, concerns, windowMs, topicOf, clock, random, personalFields } = options;
  /** For requests of clients, not for requests on their behalf. */
  const causes = new WeakMap<Exchange, string>();
  /** Removes the field with which a request names the update that caused it. */
  const take: RequestHook = (exchange) => {
    const cause = exchange.headers.get(CAUSE);
    if (cause === undefined) return;
    exchange.headers.delete(CAUSE);
    if (exchange.method === 'GET' && concerns(exchange)) causes.set(exchange, cause);
  };
  return {
    take,
    /** Which requests because of one update are equal, for the handler that forwards them. */
    sharing: {
      // If a page fetches because of a named update, later requests for the same page get the same response.
      // If a page does not know which updates it has missed, it shares only a response that was requested
      // after its own request had arrived.
      groupOf(exchange: Exchange) {
        const name = causes.get(exchange.standsFor ?? exchange);
        if (name === undefined) return null;
        const gathers = name === '';
        return { name, gatherMs: gathers ? windowMs : 0, keepMs: gathers ? 0 : windowMs };
      },
      async spread(exchange: Exchange): Promise<void> {
        const url = requestUrl(exchange);
        if (url === null) return;
        const readers = hub.interest(topicOf(url).topic);
        const spreadMs = Math.min(((readers - 1) * 1000) / REFETCHES_PER_SECOND, MAX_SPREAD_MS);
        if (spreadMs > 0) await pause(clock, random() * spreadMs, exchange);
      },
      forOthers(fields: HeaderList): HeaderList | null {
        if (hasField(fields, personalFields)) return null;
        const others = fields.clone();
        // A response is published only once.
        for (const name of [PUBLISH_FIELD, DATA_FIELD]) others.delete(name);
        return others;
      },
      shared: () => {
        hub.announcements.collapsed += 1;
      },
    },
  };
}
