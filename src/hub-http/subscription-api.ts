import { mayReceive } from '../hub/grants.ts';
import { parseTopic } from '../hub/topic.ts';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { utf8Field } from '../http/header-list.ts';
import { quotedString } from '../http/quoted-string.ts';
import { authenticate, grantMissing, tokenMissing } from './access.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import { badRequest, methodNotAllowed, notFound } from './refusal.ts';

/** `GET HUB/subscriptions[/{match_type}/{match}[/{subscriber}]]`: who is subscribed now. */
export async function answerSubscriptions(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
  path: string,
): Promise<void> {
  if (!endpoint.subscriptions || !endpoint.verifier.roles.subscriber) throw notFound();
  const segments = path.slice(`${endpoint.path}/subscriptions`.length).split('/').slice(1);
  // An empty matcher in the middle is one that a subscriber may have asked for.
  if (segments[0] === '' || segments.at(-1) === '') throw notFound();
  if (segments.length === 1 || segments.length > 3) throw notFound();
  if (exchange.method !== 'GET') throw methodNotAllowed('GET');
  const [matchType, match, subscriber] = segments.map(decodeSegment);
  if (matchType !== undefined && matchType !== 'exact' && matchType !== 'urlpattern') {
    throw badRequest();
  }
  const access = await authenticate(exchange, endpoint, identity, 'subscriber');
  if (access === null) throw tokenMissing(exchange, endpoint);
  if (!mayReceive(access.grants, [parseTopic(path, endpoint.base)])) {
    throw grantMissing(exchange, `a subscribe grant on ${path}`, 'none that covers it');
  }

  const { lastEventId } = endpoint.hub;
  const etag = `"${encodeEtag(lastEventId)}"`;
  const fields = {
    'cache-control': 'must-revalidate',
    etag,
    link: utf8Field(
      `<${endpoint.path}>; rel="${endpoint.profile.relation}"; last-event-id=${quotedString(lastEventId)}; ` +
        `type="${endpoint.profile.reservedType}"; content-type="application/json"`,
    ),
  };
  const selected = (await endpoint.hub.subscriptions()).filter(
    (record) =>
      (matchType === undefined || (record.match_type === matchType && record.match === match)) &&
      (subscriber === undefined || record.subscriber === subscriber),
  );
  const [only] = selected;
  if (subscriber !== undefined && only === undefined) throw notFound();
  if (exchange.headers.get('if-none-match') === etag) {
    answer(exchange, 304, fields);
    return;
  }
  const document =
    subscriber === undefined ? { id: path, type: 'subscriptions', subscriptions: selected } : only;
  answer(
    exchange,
    200,
    { 'content-type': 'application/json', ...fields },
    JSON.stringify(document),
  );
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
