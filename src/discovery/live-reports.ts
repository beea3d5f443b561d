import { about, type Exchange, type Handler } from '../http/exchange.ts';
import { answer, answerError } from '../http/answer.ts';
import { clientNetwork } from '../http/client-network.ts';
import { type RateZone, verdictOf } from '../http/rate-limits.ts';
import { withoutSecretParts } from '../kernel/secret.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import type { AnnouncedHub, AnnouncementCounts } from './announced-hub.ts';
import { requestUrl } from '../http/request-url.ts';

/** Why a live page differs from what the server sends: the words of its script, and their counters. */
const REASONS = {
  visitor: 'withheldForVisitor',
  script: 'withheldForScript',
  gone: 'withheldGone',
} as const satisfies Record<string, keyof AnnouncementCounts>;

/** Reports of one client per minute; each page sends at most one for each reason. */
const REPORTS_PER_MINUTE = 60;
export const REPORT_WINDOW_MS = 60_000;
/** Characters of a page's path in the log. */
const MAX_PATH = 200;

export interface LiveReportsOptions {
  readonly hub: AnnouncedHub;
  readonly counts: RateZone;
}

/** The path to which the script of live pages sends its reports, on the page's own site. */
export function reportPath({ path }: Pick<AnnouncedHub, 'path'>): string {
  return `${path}/live-report`;
}

/**
 * Counts the pages with withheld changes: `POST HUB/live-report?withheld=visitor`. A report is one of three
 * words in the query. Its body is never read.
 */
export function createLiveReports({ hub, counts }: LiveReportsOptions): Handler {
  const path = reportPath(hub);
  return (exchange, next) => {
    const url = requestUrl(exchange);
    if (url === null || url.pathname !== path) return next();
    if (exchange.method !== 'POST') {
      answer(exchange, 405, { allow: 'POST' });
      return Promise.resolve();
    }
    const reason = url.searchParams.get('withheld') ?? '';
    const client = clientNetwork(exchange.clientAddress);
    const quota = { events: REPORTS_PER_MINUTE, windowMs: REPORT_WINDOW_MS };
    if (!isReason(reason)) return refuse(exchange, 400);
    if (!verdictOf(counts.counts(client), quota).allowed) return refuse(exchange, 429);
    counts.count(client);
    hub.announcements[REASONS[reason]] += 1;
    // Browsers name the page, to its own site only. Its query is not logged.
    const referrer = parseUrl(exchange.headers.get('referer') ?? '')?.pathname ?? '';
    const page = withoutSecretParts(referrer.slice(0, MAX_PATH), 'REDACTED');
    exchange.log.debug('A change is withheld from a live page', about(exchange, { reason, page }));
    answer(exchange, 204, {});
    return Promise.resolve();
  };
}

function refuse(exchange: Exchange, status: number): Promise<void> {
  answerError(exchange, status);
  return Promise.resolve();
}

function isReason(text: string): text is keyof typeof REASONS {
  return Object.hasOwn(REASONS, text);
}
