import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readLegacyClaim } from '../../../src/auth/legacy-claim.ts';
import { InvalidTokenError } from '../../../src/auth/verify.ts';
import { type Grants, type JsonValue, mayReceive, payloadFor } from '../../../src/hub/grants.ts';
import { parseTopic } from '../../../src/hub/topic.ts';
import { unlimitedBudget } from '../../../src/kernel/scheduler.ts';
import { resultOf } from '../../support/core-hub.ts';
import { claims, detail, fixture, NOW, NOW_MS, PUBLISHER_SECRET, sign } from './hub-fixture.ts';
import { cpuMs } from '../../support/cpu-time.ts';
import { mayPublish } from '../../support/without-pauses.ts';
import { SOURCE } from '../../support/process.ts';

/** One token for the program `legacy-hub.ts`. */
export interface LegacyCase {
  readonly token: string;
  /** Whether the hub runs with `protocol_version_compatibility`. */
  readonly compatible: boolean;
  /** Two issuers with ids, instead of the one of the 0.x directives. */
  readonly named: boolean;
  readonly topic: string;
}

export interface LegacyOutcome {
  /** The check that failed; null for a token that is accepted. */
  readonly refusedBy: string | null;
  readonly mayPublish: boolean;
  readonly expiresAtMs: number | null;
}

const { options } = fixture();
const topic = (text: string): ReturnType<typeof parseTopic> => parseTopic(text, options.base);

function read(claim: JsonValue): Grants {
  assert.ok(readLegacyClaim !== null);
  return resultOf(readLegacyClaim(claim, 'hub', options, unlimitedBudget()));
}

function rejects(claim: JsonValue, check: string): void {
  assert.throws(
    () => read(claim),
    (error) => error instanceof InvalidTokenError && error.diagnosis.check === check,
  );
}

describe('the claim of 0.x tokens (J)', () => {
  it('J-547 J-550 J-554 reads exact, URLPattern and Regexp entries', () => {
    const { publish } = read({
      publish: [
        { match: 'urn:exact' },
        { match: 'urn:other', matchType: 'Exact' },
        { match: 'https://example.com/:id', matchType: 'URLPattern' },
        { match: 'urn:(a|b)+', matchType: 'Regexp' },
        { match: 'urn:modern', match_type: 'exact' },
      ],
    });
    const covers = (text: string): boolean => mayPublish({ publish, subscribe: [] }, [topic(text)]);
    for (const text of [
      'urn:exact',
      'urn:other',
      'https://example.com/1',
      'urn:abba',
      'urn:modern',
    ]) {
      assert.ok(covers(text), text);
    }
    for (const text of ['urn:exact2', 'https://example.com/1/2', 'urn:abc', 'xurn:a', 'urn:']) {
      assert.ok(!covers(text), text);
    }
  });
  it('J-553 reads "*" as everything, whatever its type', () => {
    for (const matchType of ['Exact', 'URLPattern', 'Regexp']) {
      const grants = read({ publish: [{ match: '*', matchType }] });
      assert.ok(mayPublish(grants, [topic('http://[::1')]));
    }
  });
  it('J-554 matches hostile expressions in linear time, and refuses invalid ones', () => {
    const grants = read({ publish: [{ match: '(a+)+b', matchType: 'Regexp' }] });
    const hostile = topic('a'.repeat(4000));
    assert.ok(cpuMs(() => assert.ok(!mayPublish(grants, [hostile]))) < 5000);
    for (const match of ['(', '(?=a)', '(a)\\1', '(a{1000}){1000}']) {
      rejects({ publish: [{ match, matchType: 'Regexp' }] }, 'hub.publish[0].match');
    }
  });
  for (const [name, claim, check] of [
    ['J-551 a bare string', { publish: ['*'] }, 'hub.publish[0]'],
    ['J-551 a bare string to subscribe', { subscribe: ['a'] }, 'hub.subscribe[0]'],
    ['J-552 null', { publish: [null] }, 'hub.publish[0]'],
    ['J-552 no match', { publish: [{}] }, 'hub.publish[0].match'],
    [
      'J-552 an unknown type',
      { publish: [{ match: 'a', matchType: 'uripattern' }] },
      'hub.publish[0].matchType',
    ],
    [
      'J-550 a type in another case',
      { publish: [{ match: 'a', matchType: 'urlPattern' }] },
      'hub.publish[0].matchType',
    ],
    [
      'J-550 a malformed pattern',
      { publish: [{ match: '{', matchType: 'URLPattern' }] },
      'hub.publish[0]',
    ],
    ['a list that is none', { publish: {} }, 'hub.publish'],
    ['a claim that is not an object', [], 'hub'],
  ] as const satisfies readonly (readonly [string, JsonValue, string])[]) {
    it(`${name} refuses the token`, () => rejects(claim, check));
  }
  it('J-568 accepts 1000 entries in each list', () => {
    const list = Array.from({ length: 1000 }, () => ({ match: 'a' }));
    assert.equal(read({ publish: list, subscribe: list }).publish.length, 1000);
    rejects({ publish: [...list, { match: 'a' }] }, 'hub.publish');
  });
  it('J-555 J-557 grants nothing for a missing list', () => {
    const grants = read({});
    assert.ok(!mayPublish(grants, [topic('a')]));
    assert.ok(!mayReceive(grants, [topic('a')]));
  });
  it('J-558 J-559 L-29 uses the payload of the first entry that applies, otherwise the common one', () => {
    const grants = read({
      subscribe: [
        { match: 'a', payload: 1 },
        { match: '/x/(.*)y', matchType: 'URLPattern', payload: 2 },
        { match: 'silent' },
        { match: 'r.', matchType: 'Regexp', payload: 3 },
      ],
      payload: 'common',
    });
    const payload = (match: string, matchType: 'exact' | 'urlpattern' = 'exact'): JsonValue =>
      resultOf(payloadFor(grants, { match, matchType }, options.base, unlimitedBudget()));
    assert.deepEqual(
      [
        payload('a'),
        payload('/x/(.*)y', 'urlpattern'),
        payload('silent'),
        payload('rx'),
        payload('z'),
      ],
      [1, 2, null, 3, 'common'],
    );
  });
});

describe('a hub that accepts 0.x tokens (J)', async () => {
  const everything = { publish: [{ match: '*' }] };
  const old = (
    payload: Record<string, unknown>,
    header: Record<string, unknown> = { typ: 'JWT' },
  ): Promise<string> => sign(payload, { header });
  const base = { compatible: true, named: false, topic: 'urn:a' };
  const expected: readonly (readonly [string, LegacyCase, Partial<LegacyOutcome>])[] = [
    [
      'J-547 J-564 J-565 J-570 accepts a bare 0.x token, for ever',
      { ...base, token: await old({ hub: everything }) },
      { refusedBy: null, mayPublish: true, expiresAtMs: null },
    ],
    [
      'J-564 accepts it without typ',
      { ...base, token: await old({ hub: everything }, { typ: undefined }) },
      { refusedBy: null, mayPublish: true },
    ],
    [
      'J-564 L44 accepts it with any typ',
      { ...base, token: await old({ hub: everything }, { typ: 'id_token+jwt' }) },
      { refusedBy: null, mayPublish: true },
    ],
    [
      'J-564 L44 accepts it for another audience',
      { ...base, token: await old({ hub: everything, aud: 'https://x.example' }) },
      { refusedBy: null, mayPublish: true },
    ],
    [
      'J-564 refuses an audience that is none',
      { ...base, token: await old({ hub: everything, aud: 5 }) },
      { refusedBy: 'aud' },
    ],
    [
      'J-564 needs an issuer where there are several',
      { ...base, named: true, token: await old({ hub: everything }) },
      { refusedBy: 'iss' },
    ],
    [
      'J-566 refuses it after exp',
      { ...base, token: await old({ hub: everything, exp: NOW }) },
      { refusedBy: 'exp' },
    ],
    [
      'J-565 honours exp',
      { ...base, token: await old({ hub: everything, exp: NOW + 5 }) },
      { refusedBy: null, expiresAtMs: NOW_MS + 5000 },
    ],
    [
      'J-567 keeps to the algorithm',
      { ...base, token: await old({ hub: everything }, { alg: 'HS512', typ: 'JWT' }) },
      { refusedBy: 'alg' },
    ],
    [
      'J-551 J-569 refuses bare strings',
      { ...base, token: await old({ hub: { publish: ['*'] } }) },
      { refusedBy: 'hub.publish[0]' },
    ],
    [
      'J-555 grants nothing for an empty list',
      { ...base, token: await old({ hub: { publish: [] } }) },
      { refusedBy: null, mayPublish: false },
    ],
    [
      'J-548 lets authorization_details win',
      {
        ...base,
        named: true,
        token: await sign(
          claims({
            hub: everything,
            authorization_details: [detail('publish', { match: 'urn:b' })],
          }),
        ),
      },
      { refusedBy: null, mayPublish: false },
    ],
    [
      'L44 relaxes for a modern token as well',
      { ...base, named: true, token: await sign(claims(), { header: { typ: 'JWT' } }) },
      { refusedBy: null },
    ],
    [
      'J-565 a modern token needs exp as ever',
      { ...base, named: true, token: await sign(claims({ exp: undefined })) },
      { refusedBy: 'exp' },
    ],
    [
      'J-546 refuses it without compatibility',
      {
        ...base,
        compatible: false,
        named: true,
        token: await old(claims({ hub: everything, authorization_details: undefined })),
      },
      { refusedBy: 'typ' },
    ],
    [
      'another key refuses it',
      {
        ...base,
        token: await sign({ hub: everything }, { key: Buffer.from(`${PUBLISHER_SECRET}!`) }),
      },
      { refusedBy: 'signature' },
    ],
  ];
  const outcomes = runWithCondition(expected.map(([, question]) => question));
  expected.forEach(([name, , outcome], index) => {
    it(name, () => {
      const found = outcomes[index];
      assert.ok(found !== undefined);
      assert.deepEqual({ ...found, ...outcome }, found);
    });
  });
});

function runWithCondition(cases: readonly LegacyCase[]): readonly LegacyOutcome[] {
  const program = fileURLToPath(new URL('./legacy-hub.ts', import.meta.url));
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...SOURCE, '--conditions=deprecated_claim', program],
    {
      input: JSON.stringify(cases),
      encoding: 'utf8',
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    },
  );
  assert.equal(status, 0, stderr);
  // The program writes exactly this.
  return JSON.parse(stdout) as readonly LegacyOutcome[];
}
