import type { ResponseHead } from '../http/exchange.ts';
import { parseUrl, requireUrl } from '../kernel/parse-url.ts';

/** Redirections by which apps answer a form: the change is made, and the result is elsewhere. */
const SEE_OTHER = new Set([301, 302, 303]);

/** A part of a path that names the page where visitors log in. */
const LOGIN =
  /(?:^|\/)(?:(?:wp-)?(?:log|sign)[-_]?(?:in|on)(?:\.[a-z]+)?|sso|sessions?\/new)(?:\/|$)/i;

/**
 * Whether an answer to an unsafe request says that its target has changed: a 2xx does, and a 301,
 * 302 or 303 to a URL of the same origin that is not a page to log in. Any other redirection asks
 * for the same request elsewhere, or for a visitor who has to log in first.
 */
export function saysChanged({ status, headers }: ResponseHead, url: URL): boolean {
  if (status >= 200 && status < 300) return true;
  if (!SEE_OTHER.has(status)) return false;
  const location = parseUrl(headers.get('location') ?? '', url.href);
  if (location === null || !headers.has('location')) return false;
  return location.origin === url.origin && !LOGIN.test(location.pathname);
}

/**
 * The topic of a URL that has changed. Queries hold secrets (`/reset-password?token=…`), and a topic
 * is broadcast and stored: only a query that the operator has written stays.
 */
export function topicOfChange(url: URL, template: string): string {
  const topic = requireUrl(url.href);
  topic.hash = '';
  if (!template.includes('?')) topic.search = '';
  return topic.href;
}

/** A topic, or the target of a request, as logs and updates may have it. */
export function withoutQuery(target: string): string {
  return target.split('?', 1)[0] ?? '';
}

/** The queries under which each path has changed, as {@link queryMark} says; '' for none. */
export type QueryMarks = Readonly<Record<string, readonly string[]>>;

/**
 * Eight bits of the query of a page that an answer names. By them a page of `/index.php?title=A` knows that a change of
 * `/index.php?title=B` is not its own, and nobody learns more of a query than these eight bits. Of 256
 * other pages one asks in vain. The script of live pages computes the same (`client/live/topics.ts`).
 */
export function queryMark(search: string): string {
  if (search.length < 2) return '';
  let hash = 0x811c9dc5;
  for (let at = 1; at < search.length; at += 1) {
    hash = Math.imul(hash ^ search.charCodeAt(at), 0x01000193);
  }
  return ((hash ^ (hash >>> 8) ^ (hash >>> 16) ^ (hash >>> 24)) & 0xff)
    .toString(16)
    .padStart(2, '0');
}
