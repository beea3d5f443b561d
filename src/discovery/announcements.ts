import type { Logger } from '../kernel/log.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { withoutQuery } from './changed-urls.ts';
import type { AnnouncedHub, AnnouncedUpdate } from './announced-hub.ts';

/** Publishes for the app; whatever becomes of it is told to the log alone. */
export type Announce = (update: AnnouncedUpdate, log: Logger, because: string) => Promise<void>;

/** Never rejects: no request fails because its change could not be announced. */
export function createAnnounce({ publish, announcements }: AnnouncedHub): Announce {
  return async (update, log, because) => {
    if (publish === null) return;
    const { type, private: isPrivate } = update;
    const topics = update.topics.map(withoutQuery);
    try {
      await publish(update);
      announcements.announced += 1;
      log.debug('Announced', { because, topics, private: isPrivate, type });
    } catch (error) {
      announcements.refused += 1;
      log.warn('The hub refused what the app announced', {
        because,
        topics,
        code: codeOf(error),
        error: messageOf(error),
      });
    }
  };
}
