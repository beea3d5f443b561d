import type { Exchange, Handler, Next } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { copyBody } from './copied-body.ts';
import { requestUrl } from './request-url.ts';
import { fits, isShareable, type SharedAnswer, shareKey } from './shared-answer.ts';

export interface CrowdOptions {
  readonly hub: AnnouncedHub;
  readonly concerns: (exchange: Exchange) => boolean;
  /** For how long an answer is handed to others, from when it was asked for. */
  readonly windowMs: number;
  readonly clock: Clock;
  /** From 0 up to 1. */
  readonly random: () => number;
}

/** By which the script of live pages says because of which update it fetches. */
const CAUSE = 'Hub-Live';
/** Answers at a time that are asked for or handed out. */
const MAX_ANSWERS = 200;
/** Bytes of one of them. */
const MAX_ANSWER_BYTES = 1024 * 1024;
/** How long others wait for one. */
const MAX_WAIT_MS = 5_000;
/** Pages known to be somebody's own. */
const MAX_OWN_PAGES = 10_000;
/** Private pages that are fetched because of one update, in a second. */
const REFETCHES_PER_SECOND = 200;
/** The last of a crowd waits no longer. */
const MAX_SPREAD_MS = 30_000;

/**
 * Stands between an update and all the pages that are fetched because of it. Where an answer may be
 * shared (RFC 9111 §3, §4) one request is made for all; where not, the requests are spread.
 */
export function createCrowd(options: CrowdOptions): Handler {
  const { hub, concerns, windowMs, clock, random } = options;
  const answers = new Map<string, Promise<SharedAnswer | null>>();
  const ownPages = new Set<string>();

  const spread = async (exchange: Exchange, next: Next): Promise<void> => {
    const url = requestUrl(exchange);
    if (url !== null) {
      url.search = '';
      const readers = hub.interest(url.href);
      const spreadMs = Math.min(((readers - 1) * 1000) / REFETCHES_PER_SECOND, MAX_SPREAD_MS);
      if (spreadMs > 0) await pause(clock, random() * spreadMs, exchange);
    }
    if (!exchange.abandoned) await next();
  };

  /**
   * Makes the request for all who ask the same: after an update has told them, who asks next gets
   * the answer too; who does not know what he has missed gets only what was asked for after he came.
   */
  const lead = async (
    exchange: Exchange,
    next: Next,
    { key, gathers }: { readonly key: string; readonly gathers: boolean },
  ): Promise<void> => {
    let settle: (answer: SharedAnswer | null) => void = () => {};
    answers.set(
      key,
      new Promise((resolve) => {
        settle = resolve;
      }),
    );
    if (gathers) await pause(clock, windowMs, exchange);
    else clock.after(windowMs, () => answers.delete(key));
    if (gathers) answers.delete(key);
    if (exchange.abandoned) return settle(null);
    clock.after(MAX_WAIT_MS, () => settle(null));
    const request = exchange.headers.clone();
    exchange.onHead((head) => {
      const { status, headers, source } = head;
      if (source !== 'upstream' || !isShareable(head, request, clock.now())) {
        if (request.has('cookie') && ownPages.size < MAX_OWN_PAGES) ownPages.add(pageOf(exchange));
        settle(null);
        return undefined;
      }
      return copyBody(MAX_ANSWER_BYTES, (body) => {
        settle(body === null ? null : { status, headers: headers.clone(), request, body });
      });
    });
    try {
      await next();
    } finally {
      if (!exchange.begun) settle(null);
    }
  };

  return async (exchange, next) => {
    const cause = exchange.headers.get(CAUSE);
    exchange.headers.delete(CAUSE);
    if (cause === undefined || exchange.method !== 'GET' || !concerns(exchange)) return next();
    const isOwn = exchange.headers.has('cookie') && ownPages.has(pageOf(exchange));
    const key = windowMs === 0 || isOwn ? null : shareKey(exchange, cause);
    if (key === null) return spread(exchange, next);
    const asked = answers.get(key);
    if (asked === undefined) {
      if (answers.size >= MAX_ANSWERS) return spread(exchange, next);
      return lead(exchange, next, { key, gathers: cause === '' });
    }
    const answer = await asked;
    if (exchange.abandoned) return undefined;
    if (answer === null || !fits(answer, exchange.headers)) return spread(exchange, next);
    hub.announcements.collapsed += 1;
    const { status, headers, body } = answer;
    exchange.begin({ status, headers: headers.clone(), source: 'upstream' }).end(body);
    return undefined;
  };
}

function pageOf({ host, originalTarget }: Exchange): string {
  return host + (originalTarget.split('?', 1)[0] ?? '');
}

/** Resolves early when the client leaves. */
function pause(clock: Clock, delayMs: number, exchange: Exchange): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(delayMs, () => {
      forget();
      resolve();
    });
    const forget = exchange.onAbandoned(() => {
      cancel();
      resolve();
    });
  });
}
