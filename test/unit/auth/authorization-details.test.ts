import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readAuthorizationDetails } from '../../../src/auth/authorization-details.ts';
import { InvalidTokenError } from '../../../src/auth/verify.ts';
import type { Grants, JsonValue } from '../../../src/hub/grants.ts';
import { accepted, claims, DETAIL_TYPE, fixture, refused, sign } from './hub-fixture.ts';

const { options } = fixture();

const read = (claim: JsonValue | undefined): Grants => readAuthorizationDetails(claim, options);

function entry(changes: Record<string, JsonValue | undefined> = {}): JsonValue {
  const whole = { type: DETAIL_TYPE, actions: ['publish'], topics: [{ match: 'a' }], ...changes };
  // Goes through JSON, as the claim does: undefined members vanish.
  return JSON.parse(JSON.stringify(whole)) as JsonValue;
}

const withTopic = (topic: JsonValue): JsonValue => entry({ topics: [topic] });

function rejects(claim: JsonValue, check: string): void {
  assert.throws(
    () => read(claim),
    (error) => error instanceof InvalidTokenError && error.diagnosis.check === check,
  );
}

describe('authorization_details that are accepted (C.6)', () => {
  it('C-272 grants nothing when absent, null or empty', () => {
    for (const claim of [undefined, null, []]) {
      assert.deepEqual(read(claim), { publish: [], subscribe: [] });
    }
  });
  it('C-274 C-275 C-276 ignores entries of other types, whatever their shape', () => {
    const foreign: readonly JsonValue[] = [
      entry({ type: 'urn:other', topics: 'x', actions: {} }),
      entry({ type: DETAIL_TYPE.toUpperCase() }),
      entry({ type: `${DETAIL_TYPE}/` }),
      entry({ type: undefined }),
    ];
    assert.deepEqual(read(foreign), { publish: [], subscribe: [] });
  });
  it('C-280 C-281 L-3 ignores unknown actions, which are case-sensitive', () => {
    assert.equal(read([entry({ actions: ['publish', 'other'] })]).publish.length, 1);
    assert.deepEqual(read([entry({ actions: ['other', 'Publish'] })]), {
      publish: [],
      subscribe: [],
    });
  });
  it('C-290 L-35 takes an absent, null or empty match_type as exact', () => {
    for (const type of [undefined, null, '']) {
      const [matcher] = read([
        entry({ topics: [type === undefined ? { match: 'a' } : { match: 'a', match_type: type }] }),
      ]).publish;
      assert.equal(matcher?.kind, 'exact');
    }
  });
  it('C-299 ignores unknown members', () => {
    assert.equal(read([entry({ x: 1, topics: [{ match: 'a', y: 2 }] })]).publish.length, 1);
  });
  it('C-300 D-346 takes a payload of any type', () => {
    for (const payload of [false, 0, '', [], {}, null, { a: [1] }]) {
      const [grant] = read([entry({ actions: ['subscribe'], payload })]).subscribe;
      assert.deepEqual(grant?.payload, payload);
    }
  });
  it('C-301 grants both actions of one entry', () => {
    const grants = read([entry({ actions: ['publish', 'subscribe'] })]);
    assert.deepEqual([grants.publish.length, grants.subscribe.length], [1, 1]);
  });
  it('C-296 C-297 C-298 accepts 100 entries and 100 topics, not counting entries of other types', () => {
    const foreign = Array.from({ length: 200 }, () => entry({ type: 'urn:other' }));
    const own = Array.from({ length: 100 }, () => entry());
    assert.equal(read([...foreign, ...own]).publish.length, 100);
    rejects([...own, entry()], 'authorization_details');
    const topics = Array.from({ length: 51 }, () => ({ match: 'a' }));
    rejects([entry({ topics }), entry({ topics })], 'authorization_details');
  });
  it('D-324 reads "*" as everything, whatever its type', () => {
    const [matcher] = read([withTopic({ match: '*', match_type: 'urlpattern' })]).publish;
    assert.equal(matcher?.kind, 'any');
  });
});

describe('authorization_details that make a hub refuse the token (C.6)', () => {
  const first = 'authorization_details[0]';
  const cases: readonly (readonly [string, JsonValue, string])[] = [
    ['C-273 an object', {}, 'authorization_details'],
    ['C-273 a string', 'x', 'authorization_details'],
    ['C-277 an entry that is a number', [1], first],
    ['C-277 an entry that is a string', ['x'], first],
    ['C-277 an entry that is an array', [[]], first],
    ['C-277 an entry that is null', [null], first],
    ['C-278 a type that is not a string', [entry({ type: 7 })], `${first}.type`],
    ['C-279 no actions', [entry({ actions: undefined })], `${first}.actions`],
    ['C-279 null actions', [entry({ actions: null })], `${first}.actions`],
    ['C-279 empty actions', [entry({ actions: [] })], `${first}.actions`],
    ['C-279 actions as a string', [entry({ actions: 'publish' })], `${first}.actions`],
    ['C-279 an action that is a number', [entry({ actions: ['publish', 1] })], `${first}.actions`],
    ['C-282 no topics', [entry({ topics: undefined })], `${first}.topics`],
    ['C-282 null topics', [entry({ topics: null })], `${first}.topics`],
    ['C-282 empty topics', [entry({ topics: [] })], `${first}.topics`],
    ['C-282 topics as an object', [entry({ topics: {} })], `${first}.topics`],
    ['C-283 a bare string as topic', [withTopic('*')], `${first}.topics[0]`],
    ['C-284 null as topic', [withTopic(null)], `${first}.topics[0]`],
    ['C-284 a number as topic', [withTopic(1)], `${first}.topics[0]`],
    ['C-284 an array as topic', [withTopic([])], `${first}.topics[0]`],
    ['C-285 no match', [withTopic({})], `${first}.topics[0].match`],
    ['C-285 null as match', [withTopic({ match: null })], `${first}.topics[0].match`],
    ['C-286 an empty match', [withTopic({ match: '' })], `${first}.topics[0].match`],
    ['C-287 a NUL in match', [withTopic({ match: 'a\0' })], `${first}.topics[0]`],
    ['C-287 DEL in match', [withTopic({ match: 'a\u007f' })], `${first}.topics[0]`],
    ['C-287 C1 in match', [withTopic({ match: 'a\u0085' })], `${first}.topics[0]`],
    ['C-287 Cf in match', [withTopic({ match: 'a\u200b' })], `${first}.topics[0]`],
    ['C-288 a match of 4097 bytes', [withTopic({ match: 'a'.repeat(4097) })], `${first}.topics[0]`],
    [
      'C-289 match_type Exact',
      [withTopic({ match: 'a', match_type: 'Exact' })],
      `${first}.topics[0].match_type`,
    ],
    [
      'C-289 match_type URLPattern',
      [withTopic({ match: 'a', match_type: 'URLPattern' })],
      `${first}.topics[0].match_type`,
    ],
    [
      'C-289 match_type regexp',
      [withTopic({ match: 'a', match_type: 'regexp' })],
      `${first}.topics[0].match_type`,
    ],
    [
      'C-291 match_type 1',
      [withTopic({ match: 'a', match_type: 1 })],
      `${first}.topics[0].match_type`,
    ],
    [
      'C-292 a malformed pattern',
      [withTopic({ match: '{unclosed', match_type: 'urlpattern' })],
      `${first}.topics[0]`,
    ],
    [
      'C-293 a pattern that is too complex',
      [withTopic({ match: '/((?:a{1000}){1000})', match_type: 'urlpattern' })],
      `${first}.topics[0]`,
    ],
    [
      'C-294 a bad entry after a good one',
      [entry(), entry({ actions: [] })],
      'authorization_details[1].actions',
    ],
  ];
  for (const [name, claim, check] of cases) {
    it(name, () => rejects(claim, check));
  }
  it('C-288 accepts a match of up to 4096 bytes, counted as UTF-8', () => {
    assert.equal(read([withTopic({ match: 'é'.repeat(2048) })]).publish.length, 1);
    rejects([withTopic({ match: `${'é'.repeat(2048)}a` })], `${first}.topics[0]`);
  });
  it('C-295 an invalid subscribe entry refuses the token for publishing too', async () => {
    const bad = entry({ actions: ['subscribe'], topics: [] });
    const details = { authorization_details: [entry(), bad] };
    const diagnosis = await refused(fixture(), await sign(claims(details)));
    assert.equal(diagnosis.check, 'authorization_details[1].topics');
    await accepted(fixture(), await sign(claims({ authorization_details: [entry()] })));
  });
});
