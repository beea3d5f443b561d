import type { Writable } from 'node:stream';
import { streamLifetime } from '../hub/deadline.ts';
import { HEARTBEAT } from '../hub/event-stream.ts';
import { NO_GRANTS } from '../hub/grants.ts';
import type { SubscribeOptions } from '../hub/hub.ts';
import type { EventSink } from '../hub/subscriber.ts';
import type { Exchange } from '../http/exchange.ts';
import { fieldUtf8, HeaderList, utf8Field } from '../http/header-list.ts';
import { sessionMark } from '../http/session-mark.ts';
import { messageOf } from '../kernel/error.ts';
import { authenticate, tokenMissing } from './access.ts';
import type { HubEndpoint } from './endpoint.ts';
import { parseForm, parseQuery, valuesOf, type FormField } from './form.ts';
import type { Identity } from './identity.ts';
import { parseMatchers } from './matcher-parameters.ts';
import { FORM, mediaType } from './media-type.ts';
import { readLimited } from './publish.ts';
import { methodNotAllowed, Refusal } from './refusal.ts';

/** `GET`, `HEAD` or `QUERY HUB`: opens an event stream. */
export async function subscribe(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
): Promise<void> {
  const hasVerifier = endpoint.verifier.roles.subscriber;
  if (!hasVerifier && !endpoint.anonymous) throw methodNotAllowed('POST');
  const query = parseQuery(exchange.target);
  const content = exchange.method === 'QUERY' ? await readQueryContent(exchange, endpoint) : [];
  const access = hasVerifier
    ? await authenticate(exchange, endpoint, identity, 'subscriber')
    : null;
  if (access === null && !endpoint.anonymous) throw tokenMissing(exchange, endpoint);

  const options: SubscribeOptions = {
    matchers: parseMatchers([...query, ...content], endpoint.base, endpoint.matcherCache),
    lastEventId: requestedCursor(exchange, [...query, ...content]),
    grants: access?.grants ?? NO_GRANTS,
    vouchedBy: access?.vouchedBy ?? null,
    tokenId: access?.tokenId ?? null,
    session: sessionMark(exchange, endpoint.cookieName),
    heartbeatMs: endpoint.heartbeatMs,
    lifetimeMs: streamLifetime({
      now: endpoint.clock.now(),
      expiresAtMs: access?.expiresAtMs ?? null,
      writeTimeoutMs: endpoint.writeTimeoutMs,
      dispatchTimeoutMs: endpoint.dispatchTimeoutMs,
      random: endpoint.random(),
    }),
    dispatchTimeoutMs: endpoint.dispatchTimeoutMs,
    maxBufferBytes: endpoint.maxSubscriberBuffer,
    announced: endpoint.subscriptions,
  };
  if (exchange.method === 'HEAD') {
    const cursor = await unlessFailing(exchange, () => endpoint.hub.cursor(options.lastEventId));
    beginStream(exchange, endpoint, cursor).end();
    return;
  }
  await openStream(exchange, endpoint, options);
}

async function openStream(
  exchange: Exchange,
  endpoint: HubEndpoint,
  options: SubscribeOptions,
): Promise<void> {
  const leave = endpoint.connections.enter(exchange.clientAddress, endpoint.connectionLimits);
  if (leave === undefined) {
    throw new Refusal(429, {
      fields: { 'retry-after': String(5 + Math.floor(endpoint.random() * 10)) },
    });
  }
  try {
    const { signal } = exchange;
    const subscription = await unlessFailing(exchange, () => endpoint.hub.subscribe(options));
    const left = (): void => subscription.end('client');
    if (signal.aborted) {
      left();
      return;
    }
    signal.addEventListener('abort', left, { once: true });
    const body = beginStream(exchange, endpoint, subscription.cursor);
    body.write(HEARTBEAT);
    subscription.open(eventSink(body, exchange));
    await new Promise<void>((resolve) => body.once('close', resolve));
  } finally {
    leave();
  }
}

/** Headers that keep intermediaries from storing, transforming or holding back the stream. */
function beginStream(exchange: Exchange, endpoint: HubEndpoint, cursor: string | null): Writable {
  const headers = HeaderList.of({
    'content-type': 'text/event-stream',
    'cache-control': 'private, no-cache, no-store, must-revalidate, max-age=0',
    pragma: 'no-cache',
    expire: '0',
    'x-accel-buffering': 'no',
  });
  if (cursor !== null) headers.append(endpoint.profile.cursorHeader, utf8Field(cursor));
  return exchange.begin({ status: 200, headers, source: 'gateway' });
}

function eventSink(body: Writable, exchange: Exchange): EventSink {
  return {
    write: (chunk) => body.write(chunk),
    get bufferedBytes() {
      return body.writableLength;
    },
    onDrain: (callback) => body.once('drain', callback),
    end: () => body.end(),
    destroy: () => {
      if (!body.closed) exchange.abort();
    },
  };
}

/** RFC 10008: the content of a QUERY adds to the query of its URL. */
async function readQueryContent(exchange: Exchange, endpoint: HubEndpoint): Promise<FormField[]> {
  const contentType = exchange.headers.get('content-type');
  const type = contentType === undefined ? null : mediaType(contentType);
  if (type !== FORM) {
    throw new Refusal(type === null ? 400 : 415, {
      challenge: 'invalid_request',
      fields: { 'accept-query': FORM },
    });
  }
  return parseForm(await readLimited(exchange, endpoint.maxRequestBodySize));
}

/** The header beats the URL, which beats the content; an empty one of them only asks for the cursor header. */
function requestedCursor(exchange: Exchange, fields: readonly FormField[]): string | null {
  const field = exchange.headers.get('last-event-id');
  if (field !== undefined && field !== '') return fieldUtf8(field) ?? field;
  const values = valuesOf(fields, 'last_event_id');
  const value = values.find((one) => one !== null && one !== '') ?? values[0];
  if (value !== undefined) return value ?? '';
  return field === undefined ? null : '';
}

async function unlessFailing<T>(exchange: Exchange, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (error) {
    exchange.log.error('The transport refused a subscriber', { error: messageOf(error) });
    throw new Refusal(503);
  }
}
