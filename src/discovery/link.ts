// A page cannot read its own `Link` header, so HTML also gets `Server-Timing` with the hub's URL
// and the cursor.

import { fieldText, type HeaderList, utf8Field } from '../http/header-list.ts';
import { quotedString, selfReference } from '../http/field-values.ts';

export interface HubLink {
  readonly target: string;
  readonly relation: string;
  /** null leaves it out. */
  readonly lastEventId: string | null;
  readonly contentType: string | null;
  readonly type: string | null;
}

/** A `Link` value (RFC 8288 §3) as a byte string. */
export function hubLink(link: HubLink): string {
  let text = `<${link.target}>; rel="${link.relation}"`;
  if (link.lastEventId !== null) text += `; last-event-id=${quotedString(link.lastEventId)}`;
  if (link.type !== null) text += `; type=${quotedString(link.type)}`;
  if (link.contentType !== null) text += `; content-type=${quotedString(link.contentType)}`;
  return utf8Field(text);
}

/**
 * The same for the script of a document, which can read no other field of the document's own response (W3C
 * Server Timing): the URL of the stream, with the cursor in its query.
 */
export function hubTiming({ target, relation, lastEventId }: HubLink): string {
  const cursor = lastEventId === null ? '' : `last_event_id=${encodeURIComponent(lastEventId)}`;
  const joint = cursor === '' ? '' : target.includes('?') ? '&' : '?';
  return utf8Field(`${relation};desc=${quotedString(target + joint + cursor)}`);
}

/** The fields about a hub, which are the same in all responses until a new update is published. */
export interface HubFields {
  readonly link: string;
  readonly timing: string;
}

/** Creates both fields for the hub's last update, once for each update. */
export function hubFields(
  hub: Omit<HubLink, 'lastEventId'>,
): (lastEventId: string | null) => HubFields {
  let known: string | null = null;
  let fields: HubFields | undefined;
  return (lastEventId) => {
    if (fields === undefined || known !== lastEventId) {
      const link = { ...hub, lastEventId };
      known = lastEventId;
      fields = { link: hubLink(link), timing: hubTiming(link) };
    }
    return fields;
  };
}

/** Whether the app announces a hub itself. */
export function announcesHub(headers: HeaderList, relation: string): boolean {
  if (!headers.has('link')) return false;
  return headers
    .getAll('link')
    .flatMap(linksIn)
    .some(({ relations }) => relations.includes(relation));
}

/** Targets, quoted strings, separators, and the text between them; each character belongs to one of them. */
const LINK_TOKEN = /<[^>]*>?|"(?:[^"\\]|\\.?)*(?:"|$)|[;,=]|[^\s<";,=]+/g;

interface LinkValue {
  readonly target: string;
  /** Relation types, lower case. Only the first `rel` counts; others are ignored (RFC 8288 §3.3). */
  relations: readonly string[];
  /** Whether the link is about another resource (RFC 8288 §3.2). */
  isAnchored: boolean;
}

function linksIn(field: string): LinkValue[] {
  const links: LinkValue[] = [];
  const tokens = field.match(LINK_TOKEN) ?? [];
  let isKnown = false;
  tokens.forEach((token, index) => {
    if (token.startsWith('<')) {
      links.push({ target: token.replace(/^<|>$/g, '').trim(), relations: [], isAnchored: false });
      isKnown = false;
    }
    const link = links.at(-1);
    const isParameter = tokens[index - 1] === ';' && tokens[index + 1] === '=';
    if (link === undefined || !isParameter) return;
    const name = token.toLowerCase();
    if (name === 'anchor') link.isAnchored = true;
    if (name !== 'rel' || isKnown) return;
    isKnown = true;
    const value = (tokens[index + 2] ?? '').replace(/^"|"$/g, '');
    link.relations = value.toLowerCase().split(/\s+/);
  });
  return links;
}

/** Relations with which a response names its page; the first one is the most certain (RFC 6596, RFC 4287). */
const PAGE_RELATIONS = ['canonical', 'self'];

/** The page that a response names in `Link` beside the target of the request itself, or null. */
export function linkedPage(headers: HeaderList, target: string): string | null {
  const own = selfReference(target);
  return linkedPages(headers).find((page) => page !== own) ?? null;
}

/** All names of its page that a response has in `Link`. */
export function linkedPages(headers: HeaderList): string[] {
  const links = headers.getAll('link').flatMap((field) => linksIn(fieldText(field)));
  return PAGE_RELATIONS.flatMap((relation) =>
    links
      .filter(({ relations, isAnchored }) => relations.includes(relation) && !isAnchored)
      .map(({ target }) => target),
  );
}
