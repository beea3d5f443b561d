import { about, type Exchange, type Handler, type ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { AnnouncedHub } from './announced-hub.ts';
import { type Announce, withoutQuery } from './changed-urls.ts';
import { readAlong } from './answer-body.ts';
import { type AskedUpdate, DATA_FIELD, PUBLISH_FIELD, readHubPublish } from './hub-publish.ts';
import { requestUrl } from '../http/request-url.ts';

export interface PublishedAnswersOptions {
  readonly hub: AnnouncedHub;
  /** Whether responses to a request may publish. */
  readonly concerns: (exchange: Exchange) => boolean;
  readonly announce: Announce;
}

/**
 * Publishes the updates that the app's responses request in `Hub-Publish`, in the head or in the trailers.
 */
export function createPublishedAnswers({
  hub,
  concerns,
  announce,
}: PublishedAnswersOptions): Handler {
  const read = (exchange: Exchange, headers: HeaderList): readonly AskedUpdate[] => {
    const fields = headers.getAll(PUBLISH_FIELD);
    if (fields.length === 0) return [];
    const base = requestUrl(exchange)?.href ?? 'https://hub.invalid/';
    const { updates, faults } = readHubPublish(fields, headers.getAll(DATA_FIELD), base);
    for (const fault of faults) {
      hub.announcements.refused += 1;
      const details = about(exchange, { field: PUBLISH_FIELD, fault });
      exchange.log.warn('The app sent an invalid Hub-Publish field', details);
    }
    return updates;
  };
  const publish = (exchange: Exchange, update: AskedUpdate, body: string | null): void => {
    const data = update.data ?? body;
    if (data === null) {
      hub.announcements.refused += 1;
      exchange.log.warn('The body was not published: it is too large, incomplete or not UTF-8', {
        field: PUBLISH_FIELD,
        topics: update.topics.map(withoutQuery),
      });
    } else void announce({ ...update, data }, exchange.log, PUBLISH_FIELD);
  };

  return (exchange, next) => {
    if (!concerns(exchange)) return next();
    exchange.onHead((head) => {
      if (head.source !== 'upstream' || head.status < 200) return undefined;
      // Trailers count only after a head that the app has sent.
      exchange.onTrailers((trailers) => {
        for (const update of read(exchange, trailers)) publish(exchange, update, null);
      });
      const updates = read(exchange, head.headers);
      const ofBody = updates.filter(({ data }) => data === null);
      for (const update of updates) if (update.data !== null) publish(exchange, update, null);
      if (ofBody.length === 0) return undefined;
      if (hasNoBody(exchange, head)) {
        for (const update of ofBody) publish(exchange, update, '');
        return undefined;
      }
      return readAlong(head, (text) => {
        for (const update of ofBody) publish(exchange, update, text);
      });
    });
    return next();
  };
}

function hasNoBody({ method }: Exchange, { status }: ResponseHead): boolean {
  return method === 'HEAD' || status === 204 || status === 205 || status === 304;
}
