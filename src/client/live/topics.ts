/** Topics of one page. */
const MAX_TOPICS = 100;

/**
 * What a page follows: its own URL with and without query, `<link rel="self">`, and what
 * `data-hub-topic` names.
 *
 * @param origin by which the gateway knows this site
 */
export function topicsOfPage(origin: string): string[] {
  const { href, pathname, search } = location;
  const named = [pathname, pathname + search];
  for (const element of document.querySelectorAll<HTMLLinkElement>(
    'link[rel~=self],[data-hub-topic]',
  )) {
    named.push(...(element.dataset['hubTopic'] ?? element.href).split(/\s+/));
  }
  const topics = named.slice(0, MAX_TOPICS).flatMap((name) => {
    if (name === '' || !URL.canParse(name, href)) return [];
    const url = new URL(name, href);
    url.hash = '';
    return url.origin === location.origin ? origin + url.href.slice(url.origin.length) : url.href;
  });
  return [...new Set(topics)];
}
