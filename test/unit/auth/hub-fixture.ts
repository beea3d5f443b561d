import assert from 'node:assert/strict';
import { SignJWT } from 'jose';
import {
  type AccessToken,
  createTokenVerifier,
  type Diagnosis,
  InvalidTokenError,
  type Role,
  type TokenVerifier,
  type TokenVerifierOptions,
  type TrustedIssuer,
} from '../../../src/auth/verify.ts';
import { type KeySet, staticKeySet } from '../../../src/auth/key.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { hubBase } from '../../../src/hub/topic.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { FakeClock } from './fake-clock.ts';

export const ISSUER = 'https://issuer.example';
export const AUDIENCE = 'https://hub.example/.well-known/hub';
export const DETAIL_TYPE = 'urn:hub:authorization-detail';
export const PUBLISHER_SECRET = 'a publisher secret of more than 32 bytes';
export const SUBSCRIBER_SECRET = 'a subscriber secret of more than 32 bytes';
/** 2026-01-01T00:00:00Z. */
export const NOW_MS = 1_767_225_600_000;
export const NOW = NOW_MS / 1000;

export function secretKeys(key: string, algorithm: string | null = null): KeySet {
  const keys = staticKeySet({ kind: 'jwt', key: new Secret(key), algorithm });
  assert.ok(keys !== null);
  return keys;
}

export const issuer: TrustedIssuer = {
  id: ISSUER,
  publisher: secretKeys(PUBLISHER_SECRET),
  subscriber: secretKeys(SUBSCRIBER_SECRET),
};

export interface Fixture {
  readonly clock: FakeClock;
  readonly options: TokenVerifierOptions;
  readonly verifier: TokenVerifier;
}

export function fixture(changes: Partial<TokenVerifierOptions> = {}): Fixture {
  const clock = new FakeClock(NOW_MS);
  const options = {
    issuers: [issuer],
    clock,
    scheduler: new Scheduler(),
    detailType: DETAIL_TYPE,
    base: hubBase(AUDIENCE, '/.well-known/hub'),
    cache: null,
    legacyClaim: null,
    legacyForms: { strings: false, topics: false, templates: false },
    ...changes,
  };
  return { clock, options, verifier: createTokenVerifier(options) };
}

export function detail(
  action: 'publish' | 'subscribe',
  ...topics: readonly unknown[]
): Readonly<Record<string, unknown>> {
  return { type: DETAIL_TYPE, actions: [action], topics };
}

export const PUBLISH_ALL = detail('publish', { match: '*' });

/** The claims of a good publisher token, with changes; undefined removes one. */
export function claims(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    iss: ISSUER,
    aud: AUDIENCE,
    exp: NOW + 60,
    iat: NOW,
    sub: 'urn:user:1',
    jti: 'urn:token:1',
    authorization_details: [PUBLISH_ALL],
    ...changes,
  };
}

export interface Signing {
  readonly header?: Record<string, unknown>;
  readonly key?: Parameters<SignJWT['sign']>[0];
}

/** A token signed by jose; by default with the publisher's secret. */
export function sign(
  payload: Record<string, unknown> = claims(),
  { header = {}, key = Buffer.from(PUBLISHER_SECRET) }: Signing = {},
): Promise<string> {
  return new SignJWT(payload)
    .setProtectedHeader({ alg: 'HS256', typ: 'at+jwt', ...header })
    .sign(key);
}

export async function accepted(
  { verifier }: Pick<Fixture, 'verifier'>,
  token: string,
  role: Role = 'publisher',
): Promise<AccessToken> {
  return await verifier.verify(token, role, AUDIENCE);
}

/** The diagnosis of a token that must be refused, like every other. */
export async function refused(
  { verifier }: Pick<Fixture, 'verifier'>,
  token: string,
  { role = 'publisher', audience = AUDIENCE }: { role?: Role; audience?: string } = {},
): Promise<Diagnosis> {
  try {
    await verifier.verify(token, role, audience);
  } catch (error) {
    assert.ok(error instanceof InvalidTokenError, String(error));
    assert.equal(error.code, 'invalid-token');
    assert.equal(error.message, 'the access token is not valid');
    const text = JSON.stringify(error.diagnosis);
    assert.ok(token === '' || !text.includes(token), 'a diagnosis never holds the token');
    assert.ok(!text.includes(PUBLISHER_SECRET), 'a diagnosis never holds a key');
    return error.diagnosis;
  }
  return assert.fail('the token was accepted');
}
