import { answer } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import { reasonPhrase } from '../http/errors.ts';
import type { Identity } from './identity.ts';

/** The error codes of RFC 6750 §3.1; null for a bare challenge. */
export type ChallengeCode = 'invalid_request' | 'invalid_token' | 'insufficient_scope' | null;

/** A request that the hub refuses: thrown where the fault is found, answered in one place. */
export class Refusal extends Error {
  readonly status: number;
  /** What the client reads; it never says why a token was refused. */
  readonly text: string;
  /** undefined: no challenge. */
  readonly challenge: ChallengeCode | undefined;
  readonly fields: Readonly<Record<string, string>>;
  /** What was found wanting, for the operator. */
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
    this.name = 'Refusal';
    this.status = status;
    this.text = options.text ?? reasonPhrase(status);
    this.challenge = options.challenge;
    this.fields = options.fields ?? {};
    this.check = options.check ?? `status_${status}`;
  }
}

/** A malformed request: 400 with its challenge (RFC 6750 §3.1 `invalid_request`). */
export function badRequest(text?: string): Refusal {
  return new Refusal(400, {
    challenge: 'invalid_request',
    ...(text === undefined ? {} : { text }),
  });
}

export function methodNotAllowed(allow: string): Refusal {
  return new Refusal(405, { text: '', fields: { allow } });
}

export function notFound(fields: Readonly<Record<string, string>> = {}): Refusal {
  return new Refusal(404, { text: '404 page not found', fields });
}

export function answerRefusal(exchange: Exchange, refusal: Refusal, identity: Identity): void {
  const fields: Record<string, string> = { ...refusal.fields };
  if (refusal.challenge !== undefined) {
    fields['www-authenticate'] = challengeField(refusal.challenge, identity);
  }
  if (refusal.text === '') {
    answer(exchange, refusal.status, fields);
    return;
  }
  fields['content-type'] = 'text/plain; charset=utf-8';
  answer(exchange, refusal.status, fields, `${refusal.text}\n`);
}

/** RFC 6750 §3 with the `resource_metadata` parameter of RFC 9728 §5.1. */
function challengeField(code: ChallengeCode, identity: Identity): string {
  const metadata = `resource_metadata="${identity.metadataUrl.replace(/["\\]/g, '\\$&')}"`;
  return code === null ? `Bearer ${metadata}` : `Bearer error="${code}", ${metadata}`;
}
