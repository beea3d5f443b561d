import { mayReceive } from '../hub/grants.ts';
import type { Hub } from '../hub/hub.ts';
import type { SubscriptionRecord } from '../hub/presence.ts';
import type { Profile } from '../hub/profile.ts';
import { parseTopic } from '../hub/topic.ts';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { utf8Field } from '../http/header-list.ts';
import { quotedString } from '../http/quoted-string.ts';
import type { Meter, Slices } from '../kernel/slices.ts';
import { type Access, grantMissing } from './access.ts';
import type { Identity } from './identity.ts';
import { badRequest, methodNotAllowed, notFound } from './refusal.ts';

export interface SubscriptionApiSettings {
  readonly hub: Hub;
  readonly profile: Profile;
  /** Path of the hub. */
  readonly path: string;
  readonly base: string;
  readonly access: Access;
  readonly slices: Slices;
}

/** What is asked for; undefined asks for all. */
interface Selection {
  readonly matchType: string | undefined;
  readonly match: string | undefined;
  readonly subscriber: string | undefined;
}

/** What looking at a record costs, and writing it, in steps. */
const LOOK_STEPS = 5;
const WRITE_STEPS = 300;

/** `GET HUB/subscriptions[/{match_type}/{match}[/{subscriber}]]`: who is subscribed now. */
export function createSubscriptionApi(
  settings: SubscriptionApiSettings,
): (exchange: Exchange, identity: Identity, path: string) => Promise<void> {
  const { hub, profile, path: hubPath, base, access, slices } = settings;

  const authorise = async (exchange: Exchange, identity: Identity, path: string): Promise<void> => {
    const token = await access.authenticate(exchange, identity, 'subscriber');
    if (token === null) throw access.tokenMissing(exchange);
    if (!mayReceive(token.grants, [parseTopic(path, base)])) {
      throw grantMissing(exchange, `a subscribe grant on ${path}`, 'none that covers it');
    }
  };

  return async (exchange, identity, path) => {
    const selection = readSelection(path.slice(`${hubPath}/subscriptions`.length), exchange.method);
    await authorise(exchange, identity, path);
    const { lastEventId } = hub;
    const etag = `"${encodeEtag(lastEventId)}"`;
    const fields = {
      'cache-control': 'must-revalidate',
      etag,
      link: utf8Field(
        `<${hubPath}>; rel="${profile.relation}"; last-event-id=${quotedString(lastEventId)}; ` +
          `type="${profile.reservedType}"; content-type="application/json"`,
      ),
    };
    // Nothing has changed for who knows the last update: nobody has to be looked for.
    if (exchange.headers.get('if-none-match') === etag) {
      answer(exchange, 304, fields);
      return;
    }
    const records = await hub.subscriptions();
    const document = await slices.compute((meter) => write(records, selection, path, meter));
    if (document === null) throw notFound();
    answer(exchange, 200, { 'content-type': 'application/json', ...fields }, document);
  };
}

function readSelection(rest: string, method: string): Selection {
  const segments = rest.split('/').slice(1);
  // An empty matcher in the middle is one that a subscriber may have asked for.
  if (segments[0] === '' || segments.at(-1) === '') throw notFound();
  if (segments.length === 1 || segments.length > 3) throw notFound();
  if (method !== 'GET') throw methodNotAllowed('GET');
  const [matchType, match, subscriber] = segments.map(decodeSegment);
  if (matchType !== undefined && matchType !== 'exact' && matchType !== 'urlpattern') {
    throw badRequest();
  }
  return { matchType, match, subscriber };
}

/**
 * The document of what is selected, written a slice at a time; null where the one that was asked
 * for is not there.
 */
function* write(
  records: readonly SubscriptionRecord[],
  { matchType, match, subscriber }: Selection,
  path: string,
  meter: Meter,
): Generator<void, Buffer | null, void> {
  const parts: Buffer[] = [];
  const open = `{"id":${JSON.stringify(path)},"type":"subscriptions","subscriptions":[`;
  let text = open;
  let separator = '';
  for (const record of records) {
    if (meter.left <= 0) {
      parts.push(Buffer.from(text));
      text = '';
      yield;
    }
    meter.left -= LOOK_STEPS;
    const isMatch = matchType === undefined || record.match === match;
    if (!isMatch || (matchType !== undefined && record.match_type !== matchType)) continue;
    if (subscriber !== undefined && record.subscriber !== subscriber) continue;
    meter.left -= WRITE_STEPS;
    if (subscriber !== undefined) return Buffer.from(JSON.stringify(record));
    text += separator + JSON.stringify(record);
    separator = ',';
  }
  if (subscriber !== undefined) return null;
  parts.push(Buffer.from(`${text}]}`));
  return Buffer.concat(parts);
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
