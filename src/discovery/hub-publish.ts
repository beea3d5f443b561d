import { fieldUtf8 } from '../http/header-list.ts';
import {
  type BareItem,
  FieldSyntaxError,
  type Member,
  parseMembers,
} from '../http/structured-field.ts';
import { parseUrl } from '../kernel/parse.ts';

/** The fields with which an app publishes in its response. The names are the same in both profiles. */
export const PUBLISH_FIELD = 'Hub-Publish';
export const DATA_FIELD = 'Hub-Data';

/** Most updates of one response. */
const MAX_UPDATES = 16;
/** Most topics of one update. */
const MAX_TOPICS = 16;

/** An update that a response requests. */
export interface AskedUpdate {
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly type: string | undefined;
  readonly id: string | undefined;
  /** null: the body of the response. */
  readonly data: string | null;
}

export interface Asked {
  readonly updates: readonly AskedUpdate[];
  /** The faults, for the log; the rest is valid. */
  readonly faults: readonly string[];
}

/**
 * Reads `Hub-Publish: topic="/books/1"; private; type="change"` (RFC 9651). There may be several members, in
 * one field or in many. A single `Hub-Data` applies to all of them. Of several, the n-th belongs to the n-th
 * member, whether that member is valid or not. If their number differs from that of the members, or a field
 * cannot be split into members, nothing is published: the data of a private update must not become that of a
 * public one.
 *
 * @param base URL of the request; topics that begin with "/" are resolved against it
 */
export function readHubPublish(
  fields: readonly string[],
  data: readonly string[],
  base: string,
): Asked {
  const updates: AskedUpdate[] = [];
  const faults: string[] = [];
  const members = fields.flatMap((field) => membersOf(field, faults));
  if (data.length > 1 && (faults.length > 0 || members.length !== data.length)) {
    faults.push(`${members.length} valid members, but ${data.length} ${DATA_FIELD}`);
    return { updates: [], faults };
  }
  for (const [position, member] of members.entries()) {
    if (position === MAX_UPDATES) {
      faults.push(`more than ${MAX_UPDATES} updates`);
      break;
    }
    const given = data.length === 1 ? data[0] : data[position];
    try {
      updates.push(updateOf(member, given, base));
    } catch (error) {
      if (!(error instanceof FieldSyntaxError)) throw error;
      faults.push(error.message);
    }
  }
  return { updates, faults };
}

function membersOf(field: string, faults: string[]): Member[] {
  try {
    return parseMembers(field, MAX_UPDATES + 1);
  } catch (error) {
    if (!(error instanceof FieldSyntaxError)) throw error;
    faults.push(error.message);
    return [];
  }
}

function updateOf(
  { key, items, parameters }: Member,
  given: string | undefined,
  base: string,
): AskedUpdate {
  if (key !== null && key !== 'topic') throw invalidField(`"topic" expected, not "${key}"`);
  if (items.length === 0) throw invalidField('a topic expected');
  if (items.length > MAX_TOPICS) throw invalidField(`more than ${MAX_TOPICS} topics in an update`);
  for (const name of parameters.keys()) {
    if (!KNOWN.includes(name)) throw invalidField(`known are ${KNOWN.join(', ')}, not "${name}"`);
  }
  const own = text('data', parameters.get('data'));
  const header = given === undefined ? undefined : fieldUtf8(given);
  if (given !== undefined && header === undefined) throw invalidField(`${DATA_FIELD} is not UTF-8`);
  return {
    topics: items.map((item) => absolute(text('topic', item) ?? '', base)),
    private: flag('private', parameters.get('private')),
    type: text('type', parameters.get('type')),
    id: text('id', parameters.get('id')),
    data: flag('body', parameters.get('body')) ? null : (own ?? header ?? ''),
  };
}

const KNOWN = ['private', 'type', 'id', 'data', 'body'];

/** Clients subscribe to the URL of a page, of which an app may know only the path. */
function absolute(topic: string, base: string): string {
  const url = topic.startsWith('/') ? parseUrl(topic, base) : null;
  return url?.href ?? topic;
}

function text(name: string, item: BareItem | undefined): string | undefined {
  if (item === undefined) return undefined;
  if (typeof item.value !== 'string') throw invalidField(`${name} is a string, as in ${name}="…"`);
  return item.value;
}

function flag(name: string, item: BareItem | undefined): boolean {
  if (item === undefined) return false;
  if (item.kind !== 'boolean') throw invalidField(`${name} has no value`);
  return item.value;
}

function invalidField(message: string): FieldSyntaxError {
  return new FieldSyntaxError(0, message);
}
