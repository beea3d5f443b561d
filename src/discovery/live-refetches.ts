import { type Clock, pause } from '../kernel/clock.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { DATA_FIELD, PUBLISH_FIELD } from './hub-publish.ts';
import type { TopicOf } from '../client/page-topics.ts';
import { requestUrl } from '../http/request-url.ts';

export interface LiveRefetchesOptions {
  readonly hub: AnnouncedHub;
  readonly concerns: (exchange: Exchange) => boolean;
  /** For how long an answer is handed to others, from when it was asked for. */
  readonly windowMs: number;
  readonly topicOf: TopicOf;
  readonly clock: Clock;
  /** From 0 up to 1. */
  readonly random: () => number;
  /** Fields of the app's answers that tell of one user: its token, or what one is made of. */
  readonly personalFields: readonly string[];
}

/** By which the script of live pages says because of which update it fetches. */
const CAUSE = 'Hub-Live';
/** Private pages that are fetched because of one update, in a second. */
const REFETCHES_PER_SECOND = 200;
/** The last of them waits no longer. */
const MAX_SPREAD_MS = 30_000;

/** Requests that ask the same because of one update, as whatever forwards them is told. */
interface RefetchSharing {
  groupOf(exchange: Exchange): {
    readonly name: string;
    readonly gatherMs: number;
    readonly keepMs: number;
  } | null;
  spread(exchange: Exchange): Promise<void>;
  forOthers(fields: HeaderList): HeaderList | null;
  shared(): void;
}

/**
 * The pages that are fetched because of an update. Where they ask the same, they can share one
 * answer of the app; where not, they are spread. Which of the two is decided beside the upstream,
 * once each has passed all rules of its site.
 */
export function createLiveRefetches(options: LiveRefetchesOptions): {
  /** Takes off the field by which a request says because of which update it comes. */
  readonly take: Handler;
  readonly sharing: RefetchSharing;
} {
  const { hub, concerns, windowMs, topicOf, clock, random, personalFields } = options;
  /** Of the requests that clients have made, not of those that are made on their behalf. */
  const causes = new WeakMap<Exchange, string>();
  return {
    take: (exchange, next) => {
      const cause = exchange.headers.get(CAUSE);
      if (cause === undefined) return next();
      exchange.headers.delete(CAUSE);
      if (exchange.method === 'GET' && concerns(exchange)) causes.set(exchange, cause);
      return next();
    },
    sharing: {
      // After an update has told them, a page that asks next gets the answer too; one that does not
      // know what it has missed gets only what was asked for after it came.
      groupOf(exchange) {
        const name = causes.get(exchange.standsFor ?? exchange);
        if (name === undefined) return null;
        const gathers = name === '';
        return { name, gatherMs: gathers ? windowMs : 0, keepMs: gathers ? 0 : windowMs };
      },
      async spread(exchange) {
        const url = requestUrl(exchange);
        if (url === null) return;
        const readers = hub.interest(topicOf(url).topic);
        const spreadMs = Math.min(((readers - 1) * 1000) / REFETCHES_PER_SECOND, MAX_SPREAD_MS);
        if (spreadMs > 0) await pause(clock, random() * spreadMs, exchange);
      },
      forOthers(fields) {
        if (personalFields.some((name) => fields.has(name))) return null;
        const others = fields.clone();
        // What an answer publishes it publishes once.
        for (const name of [PUBLISH_FIELD, DATA_FIELD]) others.delete(name);
        return others;
      },
      shared: () => {
        hub.announcements.collapsed += 1;
      },
    },
  };
}
