import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { reasonPhrase } from '../http/errors.ts';
import type { Identity } from './identity.ts';
import type { Diagnosis } from '../auth/verify.ts';
import { setNewest } from '../kernel/collections.ts';
import { isPowerOfTwo, type LogFields } from '../kernel/log.ts';

/** The error codes of RFC 6750 §3.1; null for a bare challenge. */
export type ChallengeCode = 'invalid_request' | 'invalid_token' | 'insufficient_scope' | null;

/**
 * A request that the hub refuses. It is thrown where the fault is found; the response is sent in one place.
 */
export class RefusedRequest extends Error {
  readonly status: number;
  /** The text for the client; it never contains the reason why a token was refused. */
  readonly text: string;
  /** undefined: no challenge. */
  readonly challenge: ChallengeCode | undefined;
  readonly fields: Readonly<Record<string, string>>;
  /** The check that failed, for the operator. */
  readonly check: string;

  constructor(
    status: number,
    options: {
      text?: string;
      challenge?: ChallengeCode;
      fields?: Readonly<Record<string, string>>;
      check?: string;
    } = {},
  ) {
    super(options.text ?? reasonPhrase(status));
    this.name = 'RefusedRequest';
    this.status = status;
    this.text = options.text ?? reasonPhrase(status);
    this.challenge = options.challenge;
    this.fields = options.fields ?? {};
    this.check = options.check ?? statusCheck(status);
  }
}

/** The check of a refusal that names no other one. */
function statusCheck(status: number): string {
  return `status_${status}`;
}

/** A malformed request: 400 with its challenge (RFC 6750 §3.1 `invalid_request`). */
export function badRequest(text?: string): RefusedRequest {
  return new RefusedRequest(400, {
    challenge: 'invalid_request',
    ...(text === undefined ? {} : { text }),
  });
}

export function methodNotAllowed(allow: string): RefusedRequest {
  return new RefusedRequest(405, { text: '', fields: { allow } });
}

export function notFound(fields: Readonly<Record<string, string>> = {}): RefusedRequest {
  return new RefusedRequest(404, { text: '404 page not found', fields });
}

/** The hub's store or an issuer's keys cannot be read: the same request may succeed a second later. */
export function unavailable(check?: string): RefusedRequest {
  const fields = { 'retry-after': '1' };
  return new RefusedRequest(503, check === undefined ? { fields } : { fields, check });
}

export function answerRefusal(
  exchange: Exchange,
  refusal: RefusedRequest,
  identity: Identity,
): void {
  const fields: Record<string, string> = { ...refusal.fields, 'x-request-id': exchange.id };
  if (refusal.challenge !== undefined) {
    fields['www-authenticate'] = challengeField(refusal.challenge, identity);
  }
  if (refusal.text === '') return answer(exchange, refusal.status, fields);
  fields['content-type'] = 'text/plain; charset=utf-8';
  answer(exchange, refusal.status, fields, `${refusal.text}\n`);
}

/** RFC 6750 §3 with the `resource_metadata` parameter of RFC 9728 §5.1. */
function challengeField(code: ChallengeCode, identity: Identity): string {
  const metadata = `resource_metadata="${identity.metadataUrl.replace(/["\\]/g, '\\$&')}"`;
  return code === null ? `Bearer ${metadata}` : `Bearer error="${code}", ${metadata}`;
}

/** Logs a refusal that has no diagnosis in the log: the client has got the whole reason. */
export function logUndiagnosed({ log, clientAddress }: Exchange, refusal: RefusedRequest): void {
  const { status, check, text } = refusal;
  if (check !== statusCheck(status)) return;
  log.debug(REFUSED, { client: clientAddress, check, found: text });
}

const REFUSED = 'The hub refused a request';

/** Clients that a hub remembers as logged. */
const MAX_CLIENTS = 1_000;

/**
 * Logs why requests are refused, for the operator only: the first time for a client and reason, and then with
 * the count at its second, fourth, eighth … time.
 */
export class RefusalLog {
  readonly #counts = new Map<string, number>();

  write(
    exchange: Exchange,
    diagnosis: Diagnosis,
    { message = REFUSED, ...more }: LogFields & { readonly message?: string } = {},
  ): void {
    const key = `${diagnosis.check} ${exchange.clientAddress}`;
    const count = (this.#counts.get(key) ?? 0) + 1;
    setNewest(this.#counts, key, count, MAX_CLIENTS);
    // A client that retries forever does not fill the disk.
    if (!isPowerOfTwo(count)) return;
    exchange.log.warn(message, {
      client: exchange.clientAddress,
      ...(count > 1 ? { times: count } : {}),
      ...more,
      ...diagnosis,
    });
  }
}
