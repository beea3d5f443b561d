import { randomUUID } from 'node:crypto';
import { HubgateError } from '../kernel/error.ts';
import { type Budget, completed, unlimitedBudget } from '../kernel/scheduler.ts';
import type { Profile } from './profile.ts';
import { hasForbiddenCharacters, isReservedTopic, parseTopic, type Topic } from './topic.ts';
import { EARLIEST, isPossibleId, MAX_ID_BYTES, type Update } from './update.ts';

/** The fields of a publication as they were sent; null for bytes that are not UTF-8. */
export interface PublicationFields {
  readonly topics: readonly (string | null)[];
  readonly data: string | null | undefined;
  readonly private: boolean;
  readonly id: string | null | undefined;
  readonly type: string | null | undefined;
  readonly retry: string | null | undefined;
}

export interface PublicationRules {
  readonly profile: Profile;
  /** Base URL of topics, the same as for URL Patterns. */
  readonly base: string;
  readonly hubPath: string;
}

/** A valid publication with its parsed topics. */
export interface Publication {
  readonly update: Update;
  readonly topics: readonly Topic[];
}

/**
 * The error of an invalid publication. Its message is for the publisher and contains only what the publisher
 * sent.
 */
export class PublicationError extends HubgateError {
  constructor(code: 'invalid-publication' | 'publication-too-large', message: string) {
    super(code, message);
    this.name = 'PublicationError';
  }
}

/** Topics of one update. */
export const MAX_TOPICS = 1000;
const MAX_TOPIC_BYTES = 4096;
const MAX_TYPE_BYTES = 1024;
const MAX_RETRY = 18446744073709551615n;

/**
 * Creates an update from a publication without pauses; see {@link readPublication}.
 *
 * @throws PublicationError for the first mistake
 */
export function parsePublication(fields: PublicationFields, rules: PublicationRules): Publication {
  return completed(readPublication(fields, rules, unlimitedBudget()));
}

/**
 * Creates an update from a publication. Yields when the budget is used up.
 *
 * @throws PublicationError for the first mistake
 */
export function* readPublication(
  fields: PublicationFields,
  rules: PublicationRules,
  budget: Budget,
): Generator<void, Publication, void> {
  const topics = yield* readTopics(fields.topics, rules, budget);
  const retry = parseRetry(fields.retry);
  const update = {
    id: parseId(fields.id) ?? `urn:uuid:${randomUUID()}`,
    topics: topics.map(({ text }) => text),
    data: requireUtf8('data', fields.data ?? undefined, fields.data === null),
    private: fields.private,
    type: parseType(fields.type, rules.profile),
    retry,
  };
  return { update, topics };
}

/** What would add a line to an event, or cannot be sent as UTF-8. */
const UNSENDABLE = /[\0\r\n]|\p{Cs}/u;

/**
 * Checks that an update from a file can be stored and sent. It may be an event of the hub itself, or an update with fields
 * that a publication could not have.
 *
 * @throws PublicationError for the first mistake
 */
export function checkStoredUpdate({ id, topics, data, type, retry }: Update): void {
  if (topics.length > MAX_TOPICS) throw tooLarge(`too many topics in update (max ${MAX_TOPICS})`);
  for (const text of [id, type ?? '', ...topics]) {
    if (UNSENDABLE.test(text)) {
      throw refuse('a field contains a line end, NUL or half of a surrogate pair');
    }
  }
  if (/\p{Cs}/u.test(data)) throw refuse('"data" contains half of a surrogate pair');
  // It becomes the value of header fields.
  refuseForbidden('id', id);
  if (!isPossibleId(id)) throw tooLarge(`id too long (max ${MAX_ID_BYTES} bytes)`);
  if (id === EARLIEST) throw refuse(`"id" must not be "${EARLIEST}"`);
  parseRetry(retry ?? '');
}

function* readTopics(
  topics: readonly (string | null)[],
  rules: PublicationRules,
  budget: Budget,
): Generator<void, Topic[], void> {
  if (topics.length === 0) throw refuse('Missing "topic" parameter');
  if (topics.length > MAX_TOPICS) throw tooLarge(`too many topics in update (max ${MAX_TOPICS})`);
  const read: Topic[] = [];
  for (const topic of topics) {
    if (budget.isSpent) yield;
    read.push(readTopic(topic, rules, budget));
  }
  return read;
}

function readTopic(topic: string | null, rules: PublicationRules, budget: Budget): Topic {
  const text = requireUtf8('topic', topic ?? undefined, topic === null);
  if (Buffer.byteLength(text) > MAX_TOPIC_BYTES) {
    throw tooLarge(`topic too long (max ${MAX_TOPIC_BYTES} bytes)`);
  }
  refuseForbidden('topic', text);
  if (text === '*') throw refuse('the wildcard "*" is a matcher, not a topic');
  const parsed = parseTopic(text, rules.base);
  budget.spend(parsed.urlSteps);
  if (isReservedTopic(parsed, rules.hubPath)) {
    throw refuse(`"topic" is in the namespace reserved for the hub`);
  }
  return parsed;
}

function parseId(id: string | null | undefined): string | undefined {
  if (id === undefined || id === '') return undefined;
  const text = requireUtf8('id', id ?? undefined, id === null);
  if (!isPossibleId(text)) throw tooLarge(`id too long (max ${MAX_ID_BYTES} bytes)`);
  refuseForbidden('id', text);
  // RFC 9110 §5.5: a client could not send it back in Last-Event-ID.
  if (/^ | $/.test(text)) throw refuse('"id" must not begin or end with a space');
  if (text.startsWith('#')) throw refuse('"id" must not start with "#"');
  if (text === EARLIEST) throw refuse(`"id" must not be "${EARLIEST}"`);
  return text;
}

function parseType(type: string | null | undefined, profile: Profile): string | null {
  if (type === undefined || type === '') return null;
  const text = requireUtf8('type', type ?? undefined, type === null);
  if (Buffer.byteLength(text) > MAX_TYPE_BYTES) {
    throw tooLarge(`type too long (max ${MAX_TYPE_BYTES} bytes)`);
  }
  refuseForbidden('type', text);
  if (text === profile.reservedType) throw refuse(`"type" must not be "${profile.reservedType}"`);
  return text;
}

/** Zero is allowed and has no effect: clients use their default. */
function parseRetry(retry: string | null | undefined): string | null {
  if (retry === undefined || retry === '') return null;
  if (retry === null || !/^[0-9]+$/.test(retry)) throw refuse('Invalid "retry" parameter');
  const digits = retry.replace(/^0+/, '');
  if (digits.length > 20 || BigInt(digits) > MAX_RETRY) throw refuse('Invalid "retry" parameter');
  return digits === '' ? null : digits;
}

function requireUtf8(field: string, text: string | undefined, broken: boolean): string {
  if (broken) throw refuse(`"${field}" field is not valid UTF-8`);
  return text ?? '';
}

function refuseForbidden(field: string, text: string): void {
  if (hasForbiddenCharacters(text)) {
    throw refuse(`"${field}" must not contain control or format characters`);
  }
}

function refuse(message: string): PublicationError {
  return new PublicationError('invalid-publication', message);
}

function tooLarge(message: string): PublicationError {
  return new PublicationError('publication-too-large', message);
}
