import type { AccessToken } from '../auth/verify.ts';
import { streamLifetime, type Place } from '../hub/subscriber.ts';
import { framed, HEARTBEAT } from '../hub/event-stream.ts';
import { NO_GRANTS } from '../hub/grants.ts';
import type { SubscribeOptions, Subscription } from '../hub/hub.ts';
import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { fieldText, HeaderList, utf8Field } from '../http/header-list.ts';
import { sessionMark } from '../http/session-mark.ts';
import type { Access } from './access.ts';
import type { Identity } from './identity.ts';
import {
  FORM,
  MAX_FIELDS,
  mediaType,
  readBody,
  type FormField,
  parseForm,
  parseQuery,
  valuesOf,
} from './form.ts';
import type { HubEndpoint } from './endpoint.ts';
import { readMatchers } from './matcher-parameters.ts';
import { badRequest, methodNotAllowed, RefusedRequest } from './refusal.ts';

/** Headers that keep intermediaries from storing, transforming or holding back the stream. */
const STREAM_FIELDS = HeaderList.of({
  'content-type': 'text/event-stream',
  'cache-control': 'private, no-cache, no-store, must-revalidate, max-age=0',
  pragma: 'no-cache',
  expire: '0',
  'x-accel-buffering': 'no',
});
/** The first bytes of every stream. */
const OPENING = {
  chunked: framed([HEARTBEAT], HEARTBEAT.length, 'chunked'),
  plain: HEARTBEAT,
} as const;

/** `GET`, `HEAD` or `QUERY HUB`: opens an event stream. Resolves when it is open, not when it ends. */
export function createSubscribe(
  endpoint: HubEndpoint,
  access: Access,
): (exchange: Exchange, identity: Identity) => Promise<void> {
  const { hub, profile, cookieName, verifier, anonymous, stream } = endpoint;
  const { clock, random, connections, connectionLimits } = endpoint;
  const acceptsSubscribers = verifier.roles.subscriber;

  const authenticate = (
    exchange: Exchange,
    identity: Identity,
  ): AccessToken | null | Promise<AccessToken> => {
    const token = acceptsSubscribers ? access.authenticate(exchange, identity, 'subscriber') : null;
    if (token === null && !anonymous) throw access.tokenMissing(exchange);
    return token;
  };

  const headOf = (cursor: string | null): ResponseHead => {
    const headers = STREAM_FIELDS.clone();
    if (cursor !== null) headers.append(profile.cursorHeader, utf8Field(cursor));
    return { status: 200, headers, source: 'gateway' };
  };

  const takePlace = (exchange: Exchange): Place => {
    const place = connections.enter(exchange.clientAddress, connectionLimits);
    if (place !== null) return place;
    throw new RefusedRequest(429, {
      fields: { 'retry-after': String(5 + Math.floor(random() * 10)) },
    });
  };

  return async (exchange, identity) => {
    if (!acceptsSubscribers && !anonymous) throw methodNotAllowed('POST');
    const isQuery = exchange.method === 'QUERY';
    if (isQuery) requireForm(exchange);
    const { revocationEpoch } = hub.admission;
    const authenticated = authenticate(exchange, identity);
    const token = authenticated instanceof Promise ? await authenticated : authenticated;
    const content = isQuery ? await readContent(exchange, endpoint) : null;
    const inUrl = limited(parseQuery(exchange.target));
    const fields = content === null ? inUrl : [...inUrl, ...content];
    const read = readMatchers(fields, endpoint);
    const matchers = read instanceof Promise ? await read : read;
    const lastEventId = requestedCursor(exchange, fields);
    if (token !== null) access.requireStillValid(exchange, token, revocationEpoch);
    if (exchange.method === 'HEAD') {
      const cursor = await access.unlessFailing(exchange, hub.cursor(lastEventId));
      exchange.begin(headOf(cursor)).end();
      return;
    }
    const place = takePlace(exchange);
    let subscription: Subscription | undefined;
    try {
      const options: SubscribeOptions = {
        matchers,
        lastEventId,
        revocationEpoch,
        grants: token?.grants ?? NO_GRANTS,
        issuerKey: token?.issuerKey ?? null,
        tokenId: token?.tokenId ?? null,
        session: sessionMark(exchange, cookieName),
        lifetimeMs: streamLifetime({
          now: clock.now(),
          expiresAtMs: token?.expiresAtMs ?? null,
          writeTimeoutMs: endpoint.writeTimeoutMs,
          dispatchTimeoutMs: stream.dispatchTimeoutMs,
          random: random(),
        }),
        expiresAtMs: token?.expiresAtMs ?? null,
        settings: stream,
        place,
      };
      subscription = await access.unlessFailing(exchange, hub.subscribe(options));
      const sink = exchange.stream(headOf(subscription.cursor));
      sink.write(OPENING[sink.framing]);
      subscription.open(sink);
    } catch (error) {
      subscription?.abandon();
      place.leave();
      throw error;
    }
  };
}

/** RFC 10008: the content of a QUERY is added to the query of its URL. */
function requireForm(exchange: Exchange): void {
  const contentType = exchange.headers.get('content-type');
  const type = contentType === undefined ? null : mediaType(contentType);
  if (type === FORM) return;
  throw new RefusedRequest(type === null ? 400 : 415, {
    challenge: 'invalid_request',
    fields: { 'accept-query': FORM },
  });
}

async function readContent(
  exchange: Exchange,
  { maxRequestBodySize, scheduler }: HubEndpoint,
): Promise<readonly FormField[]> {
  const bytes = await readBody(exchange, maxRequestBodySize);
  return limited(await scheduler.compute((budget) => parseForm(bytes, budget)));
}

function limited(fields: readonly FormField[] | null): readonly FormField[] {
  if (fields === null) throw badRequest(`too many parameters (max ${MAX_FIELDS})`);
  return fields;
}

/**
 * The header takes precedence over the URL, and the URL over the content. An empty value only requests the
 * cursor header.
 */
function requestedCursor(exchange: Exchange, fields: readonly FormField[]): string | null {
  const field = exchange.headers.get('last-event-id');
  if (field !== undefined && field !== '') return fieldText(field);
  const values = valuesOf(fields, 'last_event_id');
  const value = values.find((one) => one !== null && one !== '') ?? values[0];
  if (value !== undefined) return value ?? '';
  return field === undefined ? null : '';
}
