import { fieldUtf8 } from '../http/header-list.ts';
import {
  type BareItem,
  FieldSyntaxError,
  type Member,
  parseMembers,
} from '../http/structured-field.ts';
import { parseUrl } from '../kernel/parse-url.ts';

/** The fields by which an app publishes with its answer. The names are the same in both profiles. */
export const PUBLISH_FIELD = 'Hub-Publish';
export const DATA_FIELD = 'Hub-Data';

/** Updates of one answer. */
const MAX_UPDATES = 16;
/** Topics of one update. */
const MAX_TOPICS = 16;

/** An update as an answer asks for it. */
export interface AskedUpdate {
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly type: string | undefined;
  readonly id: string | undefined;
  /** null: the body of the answer. */
  readonly data: string | null;
}

export interface Asked {
  readonly updates: readonly AskedUpdate[];
  /** What was wrong, for the log; the rest counts. */
  readonly faults: readonly string[];
}

/**
 * Reads `Hub-Publish: topic="/books/1"; private; type="change"` (RFC 9651), of which there may be
 * several, in one field or in many. A single `Hub-Data` is everybody's. Of several, the n-th is the
 * n-th member's, whether that can be read or not; where there are not as many as members, or a field
 * cannot be told into members, nothing is published: the data of a private update must not become
 * that of a public one.
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
    faults.push(
      `${members.length} members can be read, and there are ${data.length} ${DATA_FIELD}`,
    );
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
  if (key !== null && key !== 'topic') throw misfit(`"topic" expected, not "${key}"`);
  if (items.length === 0) throw misfit('a topic expected');
  if (items.length > MAX_TOPICS) throw misfit(`more than ${MAX_TOPICS} topics in an update`);
  for (const name of parameters.keys()) {
    if (!KNOWN.includes(name)) throw misfit(`known are ${KNOWN.join(', ')}, not "${name}"`);
  }
  const own = text('data', parameters.get('data'));
  const header = given === undefined ? undefined : fieldUtf8(given);
  if (given !== undefined && header === undefined) throw misfit(`${DATA_FIELD} is not UTF-8`);
  return {
    topics: items.map((item) => absolute(text('topic', item) ?? '', base)),
    private: flag('private', parameters.get('private')),
    type: text('type', parameters.get('type')),
    id: text('id', parameters.get('id')),
    data: flag('body', parameters.get('body')) ? null : (own ?? header ?? ''),
  };
}

const KNOWN = ['private', 'type', 'id', 'data', 'body'];

/** Pages are subscribed to by their URL, of which an app may know the path alone. */
function absolute(topic: string, base: string): string {
  const url = topic.startsWith('/') ? parseUrl(topic, base) : null;
  return url?.href ?? topic;
}

function text(name: string, item: BareItem | undefined): string | undefined {
  if (item === undefined) return undefined;
  if (typeof item.value !== 'string') throw misfit(`${name} is a string, as in ${name}="…"`);
  return item.value;
}

function flag(name: string, item: BareItem | undefined): boolean {
  if (item === undefined) return false;
  if (item.kind !== 'boolean') throw misfit(`${name} has no value`);
  return item.value;
}

function misfit(message: string): FieldSyntaxError {
  return new FieldSyntaxError(0, message);
}
