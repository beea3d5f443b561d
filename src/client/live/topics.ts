import { navigation } from '../discovery.ts';
import type { Update } from '../events.ts';
import { type PageTopic, queryMark, type TopicOf } from '../page-topics.ts';

export interface Topics {
  /** Those that the page has, or names, as the gateway announces them. */
  readonly named: readonly PageTopic[];
  /** Those that it asks the hub for. */
  readonly followed: readonly string[];
}

/** Topics of one page. */
const MAX_TOPICS = 100;

/**
 * What a page follows: its own URL, those that the app calls canonical or self, in the page or in the
 * fields of its answer, and what `data-hub-topic` names; each as it is written, for publishers that name
 * it, and as `changes` announces it. A short link (`/?p=7`) is one more where an alias knows its query:
 * all short links of a site have one path, which is often that of its front page.
 *
 * @param origin by which the gateway knows this site
 */
export function topicsOfPage(origin: string, topicOf: TopicOf): Topics {
  const { href, pathname, search } = location;
  const names = [pathname + search, ...namesInFields()];
  for (const element of document.querySelectorAll<HTMLLinkElement>(
    'link[rel~=self],link[rel~=canonical],[data-hub-topic]',
  )) {
    names.push(...(element.dataset['hubTopic'] ?? element.href).split(/\s+/));
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

/** What the gateway has read in the fields of the answer, as long as the page is still the one that was loaded. */
function namesInFields(): string[] {
  const { name = '', serverTiming = [] } = navigation() ?? {};
  if (name.split('#', 1)[0] !== location.href.split('#', 1)[0]) return [];
  return serverTiming.flatMap(({ name: metric, description }) =>
    metric === 'hub-page' ? description.split(' ') : [],
  );
}

/** Whether an update of the gateway is of other queries than all that the page names. */
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
        // Without a query, a page is about all of them; without one, a change is of all of them.
        return mark !== '' && !marks.includes('') && !marks.includes(mark);
      })
    );
  } catch {
    // What a publisher has made of it.
    return false;
  }
}
