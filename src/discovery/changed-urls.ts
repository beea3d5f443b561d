import type { ResponseHead } from '../http/exchange.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import type { Logger } from '../kernel/log.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import type { AnnouncedHub, AnnouncedUpdate } from './announced-hub.ts';

/** Redirects with which apps respond to a form: the change is made, and the result is at another URL. */
const SEE_OTHER = new Set([301, 302, 303]);

/** A path segment that identifies a login page. */
const LOGIN =
  /(?:^|\/)(?:(?:wp-)?(?:log|sign)[-_]?(?:in|on)(?:\.[a-z]+)?|sso|sessions?\/new)(?:\/|$)/i;

/**
 * Whether a response to an unsafe request means that its target has changed. A 2xx does, and a 301, 302 or
 * 303 to a URL of the same origin that is not a login page. Any other redirect asks for the same request
 * elsewhere, or for a visitor that has to log in first.
 */
export function saysChanged({ status, headers }: ResponseHead, url: URL): boolean {
  if (status >= 200 && status < 300) return true;
  if (!SEE_OTHER.has(status)) return false;
  const location = parseUrl(headers.get('location') ?? '', url.href);
  if (location === null || !headers.has('location')) return false;
  return location.origin === url.origin && !LOGIN.test(location.pathname);
}

/** A topic, or the target of a request, in the form for logs and updates. */
export function withoutQuery(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

/** The queries with which each path has changed, as marks of `queryMark`; '' for none. */
export type QueryMarks = Readonly<Record<string, readonly string[]>>;

/** Publishes in the app's name, and resolves to whether the hub has stored it. Failures are only logged. */
export type Announce = (update: AnnouncedUpdate, log: Logger, because: string) => Promise<boolean>;

/** Never rejects: no request fails because its change could not be announced. */
export function createAnnounce({ publish, announcements }: AnnouncedHub): Announce {
  return async (update, log, because) => {
    if (publish === null) return false;
    const { type, private: isPrivate } = update;
    const topics = update.topics.map(withoutQuery);
    try {
      await publish(update);
      announcements.announced += 1;
      log.debug('Announced', { because, topics, private: isPrivate, type });
      return true;
    } catch (error) {
      announcements.refused += 1;
      log.warn('The hub refused an update of the app', {
        because,
        topics,
        code: codeOf(error),
        error: messageOf(error),
      });
      return false;
    }
  };
}
