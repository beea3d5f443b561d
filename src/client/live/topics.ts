import { navigation } from '../discovery.ts';
import type { Update } from '../events.ts';
import { type PageTopic, queryMark, type TopicOf, withoutParameters } from '../page-topics.ts';

export interface Topics {
  /**
   * The topics of the page itself and those that it names, in the form in which the gateway announces them.
   */
  readonly named: readonly PageTopic[];
  /** The topics of the subscription. */
  readonly followed: readonly string[];
}

/** A hub refuses subscriptions with more matchers, and those with a longer one. */
const MAX_TOPICS = 100;
const MAX_TOPIC_LENGTH = 4096;

/**
 * The topics of a page: its own URL, the URLs that the app names as canonical or self in the page or in the
 * fields of its response, and those in `data-hub-topic`. Each is used as `changes` announces it, and as it is
 * written, for publishers that use that form. If there are too many, the latter are left out first. A short link (`/?p=7`) is added if an alias knows its query,
 * because all short links of a site have the same path, often that of its front page.
 *
 * @param page its URL, without a fragment
 * @param origin the site's origin as the gateway knows it
 */
export function topicsOfPage(page: URL, origin: string, topicOf: TopicOf): Topics {
  const { href, pathname, search } = page;
  const names = [withoutParameters(pathname) + search, ...namesInFields(href)];
  for (const element of document.querySelectorAll<HTMLLinkElement>(
    'link[rel~=self],link[rel~=canonical],[data-hub-topic]',
  )) {
    names.push(...(element.dataset['hubTopic'] ?? withoutParameters(element.href)).split(/\s+/));
  }
  const urlsOf = (name: string): URL[] => {
    if (name === '' || !URL.canParse(name, href)) return [];
    const url = new URL(name, href);
    url.hash = '';
    const isOwn = url.origin === location.origin;
    return [isOwn ? new URL(origin + url.href.slice(url.origin.length)) : url];
  };
  const short = document.querySelector<HTMLLinkElement>('link[rel~=shortlink]')?.href ?? '';
  const urls = [
    ...urlsOf(short).filter((url) => topicOf(url).mark === ''),
    ...names.flatMap(urlsOf),
  ];
  const named = urls.map((url) =>
    url.origin === origin ? topicOf(url) : { topic: url.href, mark: queryMark(url.search) },
  );
  const all = [...named.map(({ topic }) => topic), ...urls.map(({ href }) => href)];
  const followed = [...new Set(all)].filter(({ length }) => length <= MAX_TOPIC_LENGTH);
  return { named, followed: followed.slice(0, MAX_TOPICS) };
}

export function withoutHash(url: string): string {
  return url.replace(/#.*/, '');
}

/**
 * The names that the gateway has found in the fields of the response. They are valid as long as the loaded
 * page is shown.
 */
function namesInFields(page: string): string[] {
  const { name = '', serverTiming = [] } = navigation() ?? {};
  if (withoutHash(name) !== page) return [];
  return serverTiming.flatMap(({ name: metric, description }) =>
    metric === 'hub-page' ? description.split(' ') : [],
  );
}

/** Whether an update of the gateway concerns only other queries than those that the page names. */
export function isOfOthers({ type, data }: Update, { named }: Topics): boolean {
  if (type !== 'change') return false;
  try {
    const { queries } = JSON.parse(data) as { queries?: Record<string, readonly string[]> };
    const concerned = named.flatMap(({ topic, mark }) => {
      const marks = queries?.[topic.split('?', 1).join()];
      return marks === undefined ? [] : { marks, mark };
    });
    return (
      concerned.length > 0 &&
      concerned.every(({ marks, mark }) => {
        // A page without a query is about all queries, and so is a change without one.
        return mark !== '' && !marks.includes('') && !marks.includes(mark);
      })
    );
  } catch {
    // The publisher has sent other data.
    return false;
  }
}
