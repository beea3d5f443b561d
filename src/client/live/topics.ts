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

/** Most topics of one page. */
const MAX_TOPICS = 100;

/**
 * The topics of a page: its own URL, the URLs that the app names as canonical or self in the page or in the
 * fields of its response, and those in `data-hub-topic`. Each is used as it is written, for publishers that
 * use that form, and as `changes` announces it. A short link (`/?p=7`) is added if an alias knows its query,
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
    ...names.slice(0, MAX_TOPICS).flatMap(urlsOf),
    ...urlsOf(short).filter((url) => topicOf(url).mark === ''),
  ];
  const named = urls.map((url) =>
    url.origin === origin ? topicOf(url) : { topic: url.href, mark: queryMark(url.search) },
  );
  const followed = [...urls.map((url) => url.href), ...named.map(({ topic }) => topic)];
  return { named, followed: [...new Set(followed)] };
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
