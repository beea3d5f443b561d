import { mayReceive } from '../hub/grants.ts';
import type { SubscriptionRecord } from '../hub/presence.ts';
import type { PresenceMatcher } from '../hub/presence-board.ts';
import { parseTopic } from '../hub/topic.ts';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { utf8Field } from '../http/header-list.ts';
import { quotedString } from '../http/field-values.ts';
import type { Budget } from '../kernel/scheduler.ts';
import type { Access } from './access.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { badRequest, methodNotAllowed, notFound } from './refusal.ts';

/** The requested subscriptions: all, those with a matcher, or a single one. */
interface Selection {
  readonly matcher: PresenceMatcher | null;
  readonly subscriber: string | null;
}

/** Cost of writing a record, in steps. */
const WRITE_STEPS = 300;

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

  /** The whole document. It is sent with its length, or not at all if a page of it fails. */
  const collection = async (
    matcher: PresenceMatcher | null,
    path: string,
    exchange: Exchange,
  ): Promise<Buffer> => {
    const open = `{"id":${JSON.stringify(path)},"type":"subscriptions","subscriptions":[`;
    const parts = [Buffer.from(open)];
    let isFirst = true;
    for await (const records of hub.subscriptions(matcher ?? undefined)) {
      if (exchange.abandoned) break;
      const wanted = matcher === null ? records : records.filter(hasMatcher(matcher));
      if (wanted.length === 0) continue;
      parts.push(await scheduler.compute((budget) => write(wanted, isFirst ? '' : ',', budget)));
      isFirst = false;
    }
    parts.push(Buffer.from(']}'));
    return Buffer.concat(parts);
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
    if (exchange.headers.get('if-none-match') === etag) {
      answer(exchange, 304, fields);
      return;
    }
    const document = await access.unlessFailing(
      exchange,
      subscriber === null ? collection(matcher, path, exchange) : one(matcher, subscriber),
    );
    if (exchange.abandoned) return;
    // A client that waits for the subscription learns the position after which to follow the history.
    if (document === null) throw notFound(position);
    answer(exchange, 200, { 'content-type': 'application/json', ...fields }, document);
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

/** Writes some members of the collection, each after a comma, but the first after `separator`. */
function* write(
  records: readonly SubscriptionRecord[],
  separator: string,
  budget: Budget,
): Generator<void, Buffer<ArrayBuffer>, void> {
  let text = '';
  for (const record of records) {
    if (budget.isSpent) yield;
    budget.spend(WRITE_STEPS);
    text += (text === '' ? separator : ',') + JSON.stringify(record);
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
