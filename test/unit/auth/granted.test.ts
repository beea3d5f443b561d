import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeGranted, type GrantNames } from '../../../src/auth/authorization-details.ts';

const NAMES: GrantNames = {
  detailType: 'urn:hub:authorization-detail',
  legacyClaim: 'mercure',
  compatible: false,
  readsLegacy: false,
};

/** Nothing is verified here, so anything may be the signature. */
function token(claims: unknown): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part({ alg: 'HS256' })}.${part(claims)}.c2lnbmF0dXJl`;
}

describe('token inspect: the grants of a token', () => {
  it('lists each action on each topic, with its payload, and the entries for other services', () => {
    const authorization_details = [
      { type: NAMES.detailType, actions: ['publish'], topics: [{ match: '*' }] },
      {
        type: NAMES.detailType,
        actions: ['subscribe'],
        topics: [
          { match: 'https://a.example/1' },
          { match: 'https://a.example/:id', match_type: 'urlpattern' },
        ],
        payload: { name: 'n' },
      },
      { type: 'payment' },
    ];
    assert.deepEqual(describeGranted(token({ authorization_details }), NAMES), [
      'It grants:',
      '  publish everything',
      '  subscribe the topic "https://a.example/1", with payload {"name":"n"}',
      '  subscribe all URLs that match "https://a.example/:id", with payload {"name":"n"}',
      '  nothing at this hub, by an entry of the type "payment": this hub uses another type',
    ]);
  });

  it('reads a topic whose match_type is null or empty as the hub does', () => {
    const topics = [undefined, null, '', 'exact'].map((match_type) => ({
      match: 'news',
      match_type,
    }));
    const detail = { type: NAMES.detailType, actions: ['subscribe'], topics };
    const [, ...lines] = describeGranted(token({ authorization_details: [detail] }), NAMES);
    assert.deepEqual(new Set(lines), new Set(['  subscribe the topic "news"']));
    const other = { ...detail, topics: [{ match: 'news', match_type: 'regexp' }, 7] };
    assert.deepEqual(describeGranted(token({ authorization_details: [other] }), NAMES).slice(1), [
      '  subscribe what matches "news" as "regexp"',
      '  subscribe something that cannot be read: 7',
    ]);
  });

  it('says if a token grants nothing, and says nothing about text that is not a token', () => {
    assert.match(describeGranted(token({}), NAMES).join(), /grants nothing/);
    assert.deepEqual(describeGranted('nonsense', NAMES), []);
  });

  it('explains a 0.x token and how to write the same in 1.0', () => {
    const mercure = { publish: ['*'], subscribe: ['https://a.example/{id}', 'b'], payload: 1 };
    const lines = describeGranted(token({ mercure }), NAMES);
    assert.match(lines[0] ?? '', /0\.x token.*"mercure"/);
    assert.deepEqual(lines.slice(1, 5), [
      'It would grant:',
      '  publish everything',
      '  subscribe all URLs that match "https://a.example/:id"',
      '  subscribe the topic "b"',
    ]);
    assert.match(lines[5] ?? '', /protocol_version_compatibility 8.*--conditions=deprecated_claim/);
    const details = JSON.parse((lines[7] ?? '').replace(/^ *"authorization_details": /, ''));
    assert.deepEqual(details, [
      { type: NAMES.detailType, actions: ['publish'], topics: [{ match: '*' }] },
      {
        type: NAMES.detailType,
        actions: ['subscribe'],
        topics: [{ match: 'https://a.example/:id', match_type: 'urlpattern' }, { match: 'b' }],
        payload: 1,
      },
    ]);
    const able = { ...NAMES, compatible: true, readsLegacy: true };
    assert.ok(describeGranted(token({ mercure }), able).includes('This hub reads it.'));
  });

  it('limits the list to a screen or two', () => {
    const topics = Array.from({ length: 90 }, (_, n) => ({ match: `t${n}` }));
    const detail = { type: NAMES.detailType, actions: ['publish'], topics };
    const lines = describeGranted(token({ authorization_details: [detail] }), NAMES);
    assert.deepEqual([lines.length, lines.at(-1)], [52, '  and 40 more']);
  });
});
