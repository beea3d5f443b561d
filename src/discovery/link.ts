import { type HeaderList, utf8Field } from '../http/header-list.ts';
import { quotedString } from '../http/field-values.ts';

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
 * The same for the script of a document, which can read no field of the response that brought the
 * document but this one (W3C Server Timing): the URL of the stream, with the cursor in its query.
 */
export function hubTiming({ target, relation, lastEventId }: HubLink): string {
  const cursor = lastEventId === null ? '' : `last_event_id=${encodeURIComponent(lastEventId)}`;
  const joint = cursor === '' ? '' : target.includes('?') ? '&' : '?';
  return utf8Field(`${relation};desc=${quotedString(target + joint + cursor)}`);
}

/** What responses say of a hub as long as nothing new is published there. */
export interface HubFields {
  readonly link: string;
  readonly timing: string;
}

/** Gives both fields for the hub's last update; they are written once for each update. */
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

/** `rel="self"` for the target of a request; null for a target that is no path. */
export function selfLink(target: string): string | null {
  if (!target.startsWith('/')) return null;
  // Clients may send anything: what ends the reference could begin another link, and what begins
  // with two slashes would name another host (RFC 3986 §4.2).
  const safe = target.replace(/[^\w\-.~!$&'()*+,;=:@/?%]/g, percentEncoded);
  return `<${safe.startsWith('//') ? `/.${safe}` : safe}>; rel="self"`;
}

/** Whether the app announces a hub itself. */
export function announcesHub(headers: HeaderList, relation: string): boolean {
  return headers.getAll('link').some((field) => relationsOf(field).includes(relation));
}

/** Targets, quoted strings, separators, and what is between them; each character in one of them. */
const LINK_TOKEN = /<[^>]*>?|"(?:[^"\\]|\\.?)*(?:"|$)|[;,=]|[^\s<";,=]+/g;

/**
 * The relation types of all links in a field, lower case. Of a link only the first `rel` counts;
 * others are ignored (RFC 8288 §3.3).
 */
function relationsOf(field: string): string[] {
  const relations: string[] = [];
  const tokens = field.match(LINK_TOKEN) ?? [];
  let known = false;
  tokens.forEach((token, index) => {
    if (token.startsWith('<')) known = false;
    const isRelation = token.toLowerCase() === 'rel' && tokens[index - 1] === ';';
    if (!isRelation || tokens[index + 1] !== '=' || known) return;
    known = true;
    const value = (tokens[index + 2] ?? '').replace(/^"|"$/g, '');
    relations.push(...value.toLowerCase().split(/\s+/));
  });
  return relations;
}

/** One character of a byte string. */
function percentEncoded(byte: string): string {
  return `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
}
