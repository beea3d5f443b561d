import { mayReceive } from '../hub/grants.ts';
import type { SubscriptionRecord } from '../hub/presence.ts';
import type { PresenceMatcher } from '../hub/presence-board.ts';
import { parseTopic } from '../hub/topic.ts';
import { answer } from '../http/answer.ts';
import { drained } from '../http/body-end.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { HeaderList, utf8Field } from '../http/header-list.ts';
import { quotedString } from '../http/field-values.ts';
import { fairShareNetwork } from '../http/rate-limits.ts';
import { messageOf } from '../kernel/error.ts';
import type { Budget } from '../kernel/scheduler.ts';
import { FairQueue } from '../kernel/semaphore.ts';
import type { Access } from './access.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { badRequest, methodNotAllowed, notFound, unavailable } from './refusal.ts';

/** The requested subscriptions: all, those with a matcher, or a single one. */
interface Selection {
  readonly matcher: PresenceMatcher | null;
  readonly subscriber: string | null;
}

/** Cost of writing a record, and characters that are written per step, in steps. */
const WRITE_STEPS = 300;
const CHARACTERS_PER_STEP = 5;
/** Subscribers of the first page and of the largest one. A subscriber has at most a hundred subscriptions of 16 KB. */
const FIRST_SUBSCRIBERS = 4;
const MOST_SUBSCRIBERS = 250;
/** Bytes of a page above which the next one has fewer subscribers; it has more after much smaller pages. */
const PAGE_BYTES = 256 * 1024;
/** How long a client may read nothing of a document. */
const MAX_STALL_MS = 120_000;

/** How long a request waits for its turn. */
const LONGEST_WAIT_MS = 10_000;

/** The documents that are begun at the same time. That takes only as long as reading some pages. */
const beginnings = new FairQueue({
  places: 16,
  unknownPlaces: 16,
  placesPerUnknown: 4,
  maxWaiting: 1_000,
});
/** The long documents that are written at the same time, each at the speed of its client. Each holds one page. */
const longDocuments = new FairQueue({
  places: 64,
  unknownPlaces: 64,
  placesPerUnknown: 8,
  maxWaiting: 100,
});

/** `GET HUB/subscriptions[/{match_type}/{match}[/{subscriber}]]`: the current subscriptions. */
export function createSubscriptionApi(
  endpoint: HubEndpoint,
  access: Access,
): (exchange: Exchange, identity: Identity, path: string) => Promise<void> {
  const { hub, profile, path: hubPath, base, scheduler } = endpoint;

  const authorise = async (exchange: Exchange, identity: Identity, path: string): Promise<void> => {
    const token = await access.authenticate(exchange, identity, 'subscriber');
    if (token === null) throw access.tokenMissing(exchange);
    if (!mayReceive(token.grants, [parseTopic(path, base)])) {
      throw access.grantMissing(exchange, `a subscribe grant on ${path}`, 'none that covers it');
    }
  };

  const one = async (
    matcher: PresenceMatcher | null,
    subscriber: string,
  ): Promise<Buffer | null> => {
    const records = await hub.subscriptionsOf(subscriber);
    const found = matcher === null ? undefined : records.find(hasMatcher(matcher));
    return found === undefined ? null : Buffer.from(JSON.stringify(found));
  };

  /** The members of a collection, page by page. */
  async function* pagesOf(matcher: PresenceMatcher | null): AsyncGenerator<Buffer, void, void> {
    let [after, limit, isFirst]: [string | null, number, boolean] = [null, FIRST_SUBSCRIBERS, true];
    do {
      const page = await hub.subscriptionPage(after, limit, matcher ?? undefined);
      const wanted = matcher === null ? page.records : page.records.filter(hasMatcher(matcher));
      const members = await scheduler.compute((budget) => write(wanted, isFirst, budget));
      if (members.length > PAGE_BYTES) limit = Math.ceil(limit / 4);
      else if (members.length < PAGE_BYTES / 8) limit = Math.min(MOST_SUBSCRIBERS, 4 * limit);
      if (members.length > 0) {
        isFirst = false;
        yield members;
      }
      after = page.next;
    } while (after !== null);
  }

  /** A short document has a length. A long one is written page by page as its client reads it. */
  const sendCollection = async (
    exchange: Exchange,
    fields: Readonly<Record<string, string>>,
    matcher: PresenceMatcher | null,
    path: string,
  ): Promise<void> => {
    const pages = pagesOf(matcher);
    const read = async (): Promise<Buffer | null> => {
      const { value, done } = await access.unlessFailing(exchange, pages.next());
      return done === true ? null : value;
    };
    const open = Buffer.from(
      `{"id":${JSON.stringify(path)},"type":"subscriptions","subscriptions":[`,
    );
    const close = Buffer.from(']}');
    const begun = await inTurn(exchange, beginnings, async () => {
      const first: Buffer[] = [open];
      let bytes = 0;
      let next = await read();
      for (; next !== null && !exchange.abandoned; next = await read()) {
        first.push(next);
        bytes += next.length;
        if (bytes > PAGE_BYTES) break;
      }
      if (next === null) first.push(close);
      return { bytes: Buffer.concat(first), isWhole: next === null };
    });
    if (exchange.abandoned) return;
    if (begun.isWhole) return answer(exchange, 200, fields, begun.bytes);
    await inTurn(exchange, longDocuments, async () => {
      const head = { status: 200, headers: HeaderList.of(fields), source: 'gateway' } as const;
      const body = exchange.begin(head);
      const abort = (): void => exchange.abort(body);
      try {
        let next: Buffer | null = begun.bytes;
        for (; next !== null && !body.destroyed; next = await read()) {
          if (!body.write(next)) await drained(body, endpoint.clock, MAX_STALL_MS, abort);
        }
        if (!body.destroyed) body.end(close);
      } catch (error) {
        // The client must not take what it has for the whole document.
        exchange.log.warn('A list of subscriptions was cut off', { error: messageOf(error) });
        abort();
      }
    });
  };

  const inTurn = async <T>(
    { clientAddress, signal }: Exchange,
    turns: FairQueue,
    work: () => Promise<T>,
  ): Promise<T> => {
    const limit = new AbortController();
    const cancel = endpoint.clock.after(LONGEST_WAIT_MS, () => limit.abort());
    let giveBack: () => void;
    try {
      giveBack = await turns.take(
        fairShareNetwork(clientAddress),
        false,
        AbortSignal.any([signal, limit.signal]),
      );
    } catch (cause) {
      if (signal.aborted) throw new HttpError(499, 'the client left', { cause });
      throw unavailable('subscriptions');
    } finally {
      cancel();
    }
    try {
      return await work();
    } finally {
      giveBack();
    }
  };

  return async (exchange, identity, path) => {
    const { matcher, subscriber } = readSelection(
      path.slice(`${hubPath}/subscriptions`.length),
      exchange.method,
    );
    await authorise(exchange, identity, path);
    const { lastEventId } = hub;
    const etag = `"${encodeEtag(lastEventId)}"`;
    const position = {
      'cache-control': 'must-revalidate',
      link: utf8Field(
        `<${hubPath}>; rel="${profile.relation}"; last-event-id=${quotedString(lastEventId)}; ` +
          `type="${profile.reservedType}"; content-type="application/json"`,
      ),
    };
    const fields = { ...position, etag };
    // Nothing has changed for a client that knows the last update, so no subscriptions have to be searched.
    if (exchange.headers.get('if-none-match') === etag) return answer(exchange, 304, fields);
    const found = { 'content-type': 'application/json', ...fields };
    if (subscriber === null) {
      await sendCollection(exchange, found, matcher, path);
      return;
    }
    const document = await access.unlessFailing(exchange, one(matcher, subscriber));
    if (exchange.abandoned) return;
    // A client that waits for the subscription learns the position after which to follow the history.
    if (document === null) throw notFound(position);
    answer(exchange, 200, found, document);
  };
}

function readSelection(rest: string, method: string): Selection {
  const segments = rest.split('/').slice(1);
  // An empty matcher in the middle is one that a subscriber may have used.
  if (segments[0] === '' || segments.at(-1) === '') throw notFound();
  if (segments.length === 1 || segments.length > 3) throw notFound();
  if (method !== 'GET') throw methodNotAllowed('GET');
  const [matchType, match, subscriber] = segments.map(decodeSegment);
  if (matchType !== undefined && matchType !== 'exact' && matchType !== 'urlpattern') {
    throw badRequest();
  }
  return {
    matcher: matchType === undefined ? null : { match_type: matchType, match: match ?? '' },
    subscriber: subscriber ?? null,
  };
}

function hasMatcher({ match, match_type }: PresenceMatcher): (one: PresenceMatcher) => boolean {
  return (one) => one.match === match && one.match_type === match_type;
}

/** Writes some members of a collection, each but the very first after a comma. */
function* write(
  records: readonly SubscriptionRecord[],
  isFirst: boolean,
  budget: Budget,
): Generator<void, Buffer<ArrayBuffer>, void> {
  let text = '';
  for (const record of records) {
    if (budget.isSpent) yield;
    const member = JSON.stringify(record);
    budget.spend(WRITE_STEPS + Math.ceil(member.length / CHARACTERS_PER_STEP));
    text += (text === '' && isFirst ? '' : ',') + member;
  }
  return Buffer.from(text);
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw badRequest();
  }
}

/** RFC 9110 §8.8.3 allows most bytes in an entity tag; the others are percent-encoded. */
function encodeEtag(id: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return utf8Field(id).replace(/[\x00-\x20"%\x7f]/g, (character) => {
    return `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;
  });
}
