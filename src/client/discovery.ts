/** Where to subscribe, and after which update; without a cursor from now on. */
export interface HubAddress {
  readonly url: string;
  readonly cursor: string | null;
}

const LINK = /<([^>]*)>((?:\s*;\s*[^\s=;,]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;,"]*))*)/g;
const PARAMETER = /;\s*([^\s=;,]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*))/g;

/** The hub in a `Link` header (RFC 8288); null if there is none. */
export function findHub(link: string | null, relation: string, base: string): HubAddress | null {
  for (const [, target = '', parameters = ''] of (link ?? '').matchAll(LINK)) {
    const values: Record<string, string> = {};
    for (const [, name = '', quoted, plain = ''] of parameters.matchAll(PARAMETER)) {
      // RFC 8288 §3.3: of several values, the first one counts.
      values[name.toLowerCase()] ??= quoted?.replace(/\\(.)/g, '$1') ?? plain;
    }
    if (!values['rel']?.toLowerCase().split(/\s+/).includes(relation)) continue;
    const cursor = values['last-event-id'];
    return {
      url: new URL(target, base).href,
      cursor: cursor === undefined ? null : utf8(cursor),
    };
  }
  return null;
}

/**
 * The hub of the page that runs this script. A script cannot read the `Link` header of its own page, and
 * fetching the page again would return a newer state. The `Server-Timing` header has the same information for
 * this very page.
 */
export function hubOfPage(relation: string, base: string): HubAddress | null {
  const timing = navigation()?.serverTiming?.find(({ name }) => name === relation);
  if (timing === undefined) return null;
  const url = new URL(timing.description, base);
  return { url: url.href, cursor: url.searchParams.get('last_event_id') };
}

/** The navigation that loaded this page. */
interface Navigation {
  /** The URL that was requested. */
  readonly name?: string;
  readonly type?: string;
  readonly serverTiming?: readonly { readonly name: string; readonly description: string }[];
}

export function navigation(): Navigation | undefined {
  // The types are those of Node, which has no navigation.
  const timeline = performance as unknown as { getEntriesByType(type: string): Navigation[] };
  return timeline.getEntriesByType('navigation')[0];
}

/** Headers arrive as byte strings; the hub encodes text in them as UTF-8. */
export function utf8(bytes: string): string {
  return new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
}
