// Run as a program with the build condition `deprecated_claim`, which a running process cannot
// switch on. Reads the cases from standard input and writes one outcome for each.
import { text } from 'node:stream/consumers';
import { createTokenVerifier, InvalidTokenError } from '../../../src/auth/verify.ts';
import { parseTopic } from '../../../src/hub/topic.ts';
import { AUDIENCE, fixture, issuer, PUBLISHER_SECRET, secretKeys } from './hub-fixture.ts';
import type { LegacyCase, LegacyOutcome } from './legacy-claim.test.ts';
import { mayPublish } from '../../support/without-pauses.ts';

const nameless = { id: null, publisher: secretKeys(PUBLISHER_SECRET), subscriber: null };

async function outcome({ token, compatible, named, topic }: LegacyCase): Promise<LegacyOutcome> {
  const issuers = named ? [issuer, { ...issuer, id: 'https://b.example' }] : [nameless];
  const { options } = fixture({ issuers, legacyClaim: compatible ? 'hub' : null });
  try {
    const accepted = await createTokenVerifier(options).verify(token, 'publisher', AUDIENCE);
    return {
      refusedBy: null,
      mayPublish: mayPublish(accepted.grants, [parseTopic(topic, options.base)]),
      expiresAtMs: accepted.expiresAtMs,
    };
  } catch (error) {
    if (!(error instanceof InvalidTokenError)) throw error;
    return { refusedBy: error.diagnosis.check, mayPublish: false, expiresAtMs: null };
  }
}

// The test that starts this program writes exactly such cases.
const cases = JSON.parse(await text(process.stdin)) as readonly LegacyCase[];
process.stdout.write(JSON.stringify(await Promise.all(cases.map(outcome))));
