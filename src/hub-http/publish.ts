import { MAX_SHOWN, quote } from '../auth/diagnosis.ts';
import type { AccessToken } from '../auth/verify.ts';
import { publishQuestion } from '../hub/grants.ts';
import {
  type Publication,
  PublicationError,
  type PublicationRules,
  readPublication,
} from '../hub/publication.ts';
import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { codeOf, messageOf, ignore } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Budget } from '../kernel/scheduler.ts';
import type { Access } from './access.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { Identity } from './identity.ts';
import {
  FORM,
  MAX_FIELDS,
  mediaType,
  readBody,
  type FormField,
  parseForm,
  valuesOf,
} from './form.ts';
import { badRequest, methodNotAllowed, RefusedRequest, unavailable } from './refusal.ts';

/**
 * The largest form that is read before its publisher is known: as much as the smallest buffer of a connection, that of a
 * mounted hub under Node 20.
 */
const EARLY_BYTES = 16 * 1024;

/** `POST HUB`: checks the client's identity, then the form, then the permission; then stores the update. */
export function createPublish(
  endpoint: HubEndpoint,
  access: Access,
): (exchange: Exchange, identity: Identity) => Promise<void> {
  const { hub, verifier, profile, base, path, maxRequestBodySize, scheduler } = endpoint;
  const rules = { profile, base, hubPath: path };

  const requireGrant = async (
    exchange: Exchange,
    { grants }: AccessToken,
    { topics }: Publication,
  ): Promise<void> => {
    const granted = scheduler.compute((budget) => publishQuestion(grants, topics, budget));
    if (granted instanceof Promise ? await granted : granted) return;
    // Each refusal writes this text, so only what `quote` can show is passed to it.
    const shown = topics.slice(0, MAX_SHOWN).map(({ text }) => text.slice(0, MAX_SHOWN));
    throw access.grantMissing(
      exchange,
      `a publish grant on each of ${quote(shown)}`,
      grants.publish.length === 0 ? 'no publish grant' : 'grants that do not cover them all',
    );
  };

  const unstored = new UnstoredUpdates();

  const store = async (exchange: Exchange, { update, topics }: Publication): Promise<void> => {
    try {
      await hub.publish(update, topics);
      unstored.stored(exchange.log);
    } catch (error) {
      unstored.failed(exchange.log, messageOf(error));
      // Closed permanently, or temporarily unavailable. An update that may have been stored has the id that
      // was sent.
      if (codeOf(error) === 'transport-closed') throw new RefusedRequest(500);
      throw unavailable();
    }
  };

  return async (exchange, identity) => {
    if (!verifier.roles.publisher) throw methodNotAllowed('GET, HEAD, QUERY');
    const { revocationEpoch } = hub.admission;
    const authenticated = access.authenticate(exchange, identity, 'publisher');
    let early: Promise<Buffer> | null = null;
    if (authenticated instanceof Promise && isShort(exchange)) {
      early = readForm(exchange, maxRequestBodySize);
      // The token is checked first: what is wrong with the form may never matter.
      early.catch(ignore);
    }
    const token = authenticated instanceof Promise ? await authenticated : authenticated;
    if (token === null) throw access.tokenMissing(exchange);
    const bytes = await (early ?? readForm(exchange, maxRequestBodySize));
    const read = scheduler.compute((budget) => readUpdate(bytes, rules, budget));
    const publication = read instanceof Promise ? await read : read;
    await requireGrant(exchange, token, publication);
    access.requireStillValid(exchange, token, revocationEpoch);
    await store(exchange, publication);
    answer(exchange, 200, { 'content-type': 'text/plain; charset=utf-8' }, publication.update.id);
  };
}

/** Most reasons of failed updates that are logged until one is stored. */
const MAX_REASONS = 8;

/** Logs that updates are not stored: each publisher gets its 503, but each reason is logged as an error only once. */
export class UnstoredUpdates {
  /** Number of failed updates since the last one that was stored, and their reasons. */
  #failures = 0;
  readonly #reasons = new Set<string>();

  failed(log: Logger, reason: string): void {
    this.#failures += 1;
    const isNew = !this.#reasons.has(reason) && this.#reasons.size < MAX_REASONS;
    if (isNew) this.#reasons.add(reason);
    log[isNew ? 'error' : 'debug']('An update was not stored', { error: reason });
  }

  stored(log: Logger): void {
    if (this.#failures === 0) return;
    log.info('Updates can be stored again', { notStored: this.#failures });
    this.#failures = 0;
    this.#reasons.clear();
  }
}

/**
 * Whether the whole form fits into the buffer of every connection. It is read while the token is checked, because a
 * publisher may disconnect as soon as it has sent its update, and the server of a mounted hub then discards what nobody
 * has read. A client that waits for `100 Continue` has not sent it yet.
 */
function isShort({ headers }: Exchange): boolean {
  const length = Number(headers.get('content-length'));
  return length <= EARLY_BYTES && !headers.has('expect');
}

/** The bytes of the form; empty if the body is not a form. */
async function readForm(exchange: Exchange, maxBytes: number): Promise<Buffer> {
  const contentType = exchange.headers.get('content-type');
  const type = contentType === undefined ? '' : mediaType(contentType);
  if (type === null) throw badRequest();
  const bytes = await readBody(exchange, maxBytes);
  return type === FORM ? bytes : Buffer.alloc(0);
}

/** @throws RefusedRequest 400 or 413 with the reason */
function* readUpdate(
  bytes: Buffer,
  rules: PublicationRules,
  budget: Budget,
): Generator<void, Publication, void> {
  const fields = yield* parseForm(bytes, budget);
  if (fields === null) {
    throw new RefusedRequest(413, { text: `too many fields in update (max ${MAX_FIELDS})` });
  }
  try {
    return yield* readPublication(
      {
        topics: valuesOf(fields, 'topic'),
        data: first(fields, 'data'),
        private: fields.some(({ name }) => name === 'private'),
        id: first(fields, 'id'),
        type: first(fields, 'type'),
        retry: first(fields, 'retry'),
      },
      rules,
      budget,
    );
  } catch (error) {
    if (!(error instanceof PublicationError)) throw error;
    if (error.code === 'publication-too-large')
      throw new RefusedRequest(413, { text: error.message });
    throw badRequest(error.message);
  }
}

function first(fields: readonly FormField[], name: string): string | null | undefined {
  return fields.find((field) => field.name === name)?.value;
}
