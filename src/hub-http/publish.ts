import { randomUUID } from 'node:crypto';
import { mayPublish } from '../hub/grants.ts';
import { parsePublication, PublicationError } from '../hub/publication.ts';
import { parseTopic } from '../hub/topic.ts';
import type { Update } from '../hub/update.ts';
import { answer } from '../http/answer.ts';
import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { authenticate, grantMissing, tokenMissing } from './access.ts';
import { readBody } from './body.ts';
import type { HubEndpoint } from './endpoint.ts';
import { parseForm, valuesOf, type FormField } from './form.ts';
import type { Identity } from './identity.ts';
import { FORM, mediaType } from './media-type.ts';
import { badRequest, methodNotAllowed, Refusal } from './refusal.ts';

/** `POST HUB`: who it is, then what it says, then whether that is allowed; then it is stored. */
export async function publish(
  exchange: Exchange,
  endpoint: HubEndpoint,
  identity: Identity,
): Promise<void> {
  if (!endpoint.verifier.roles.publisher) throw methodNotAllowed('GET, HEAD, QUERY');
  const access = await authenticate(exchange, endpoint, identity, 'publisher');
  if (access === null) throw tokenMissing(exchange, endpoint);
  const update = await readUpdate(exchange, endpoint);
  const topics = update.topics.map((topic) => parseTopic(topic, endpoint.base));
  if (!mayPublish(access.grants, topics)) {
    throw grantMissing(
      exchange,
      `a publish grant on each of ${JSON.stringify(update.topics)}`,
      access.grants.publish.length === 0 ? 'no publish grant' : 'grants that do not cover them all',
    );
  }
  try {
    await endpoint.hub.publish(update);
  } catch (error) {
    exchange.log.error('An update was not stored', { error: messageOf(error) });
    // Closed for good, or away for a while; an update that may be stored has the id that was sent.
    if (codeOf(error) === 'transport-closed') throw new Refusal(500);
    throw new Refusal(503, { fields: { 'retry-after': '1' } });
  }
  answer(exchange, 200, { 'content-type': 'text/plain; charset=utf-8' }, update.id);
}

async function readUpdate(exchange: Exchange, endpoint: HubEndpoint): Promise<Update> {
  const contentType = exchange.headers.get('content-type');
  const type = contentType === undefined ? '' : mediaType(contentType);
  if (type === null) throw badRequest();
  const bytes = await readLimited(exchange, endpoint.maxRequestBodySize);
  const fields = type === FORM ? parseForm(bytes) : [];
  try {
    return parsePublication(
      {
        topics: valuesOf(fields, 'topic'),
        data: first(fields, 'data'),
        private: valuesOf(fields, 'private').length > 0,
        id: first(fields, 'id'),
        type: first(fields, 'type'),
        retry: first(fields, 'retry'),
      },
      {
        profile: endpoint.profile,
        base: endpoint.base,
        hubPath: endpoint.path,
        newId: () => `urn:uuid:${randomUUID()}`,
      },
    );
  } catch (error) {
    if (!(error instanceof PublicationError)) throw error;
    if (error.code === 'publication-too-large') throw new Refusal(413, { text: error.message });
    throw badRequest(error.message);
  }
}

/** @throws Refusal 413 with the phrase that clients of such hubs know */
export async function readLimited(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  try {
    return await readBody(exchange, maxBytes);
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    if (error.status !== 413) throw badRequest();
    throw new Refusal(413, { text: 'Request Entity Too Large' });
  }
}

function first(fields: readonly FormField[], name: string): string | null | undefined {
  return valuesOf(fields, name)[0];
}
