import type { Update } from '../events.ts';

export interface Topics {
  /** Those that the page has, or names. */
  readonly named: readonly string[];
  /** Those that it asks the hub for. */
  readonly followed: readonly string[];
}

/** Topics of one page. */
const MAX_TOPICS = 100;

/**
 * What a page follows: its own URL, `<link rel="canonical">` and `<link rel="self">`, what
 * `data-hub-topic` names, and each of them without its query, under which `changes` announces it.
 *
 * @param origin by which the gateway knows this site
 */
export function topicsOfPage(origin: string): Topics {
  const { href, pathname, search } = location;
  const named = [pathname + search];
  for (const element of document.querySelectorAll<HTMLLinkElement>(
    'link[rel~=self],link[rel~=canonical],[data-hub-topic]',
  )) {
    named.push(...(element.dataset['hubTopic'] ?? element.href).split(/\s+/));
  }
  const topics = named.slice(0, MAX_TOPICS).flatMap((name) => {
    if (name === '' || !URL.canParse(name, href)) return [];
    const url = new URL(name, href);
    url.hash = '';
    return url.origin === location.origin ? origin + url.href.slice(url.origin.length) : url.href;
  });
  const plain = topics.filter((topic) => topic.startsWith(`${origin}/`)).map(withoutQuery);
  return { named: topics, followed: [...new Set([...topics, ...plain])] };
}

/** Whether an update of the gateway is of other queries than all that the page names. */
export function isOfOthers({ type, data }: Update, { named }: Topics): boolean {
  if (type !== 'change') return false;
  try {
    const { queries } = JSON.parse(data) as { queries?: Record<string, readonly string[]> };
    const concerned = named.flatMap((topic) => {
      const marks = queries?.[withoutQuery(topic)];
      return marks === undefined ? [] : { marks, query: topic.slice(withoutQuery(topic).length) };
    });
    return (
      concerned.length > 0 &&
      concerned.every(({ marks, query }) => {
        // Without a query, a page is about all of them; without one, a change is of all of them.
        return query !== '' && !marks.includes('') && !marks.includes(queryMark(query.slice(1)));
      })
    );
  } catch {
    // What a publisher has made of it.
    return false;
  }
}

function withoutQuery(topic: string): string {
  return topic.split('?', 1).join();
}

/** The same as in `discovery/changed-urls.ts`. */
function queryMark(query: string): string {
  let hash = 0x811c9dc5;
  for (let at = 0; at < query.length; at += 1) {
    hash = Math.imul(hash ^ query.charCodeAt(at), 0x01000193);
  }
  return ((hash ^ (hash >>> 8) ^ (hash >>> 16) ^ (hash >>> 24)) & 0xff)
    .toString(16)
    .padStart(2, '0');
}
