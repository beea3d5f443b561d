import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { askPolicies, metaPolicy } from '../../../src/discovery/content-security-policy.ts';
import { piecesOf } from '../../support/counted-pieces.ts';

const question = {
  origin: 'https://example.com',
  script: new URL('https://example.com/.well-known/hub/live.js'),
  hub: new URL('https://example.com/.well-known/hub'),
};

const ALLOWED = [
  [],
  [''],
  ["default-src 'self'"],
  ["default-src 'none'; script-src 'self'; connect-src 'self'"],
  ['script-src https:; connect-src *'],
  ['script-src example.com; connect-src https://example.com'],
  ['script-src https://example.com/.well-known/hub/'],
  ['script-src https://*.com:443'],
  ['script-src https://*; connect-src *:443'],
  ["script-src 'none'; script-src-elem 'self'"],
  ["style-src 'none'; img-src 'none'"],
  ['sandbox allow-scripts allow-same-origin'],
];

const FORBIDDEN = [
  [["default-src 'none'"], "script-src 'self'"],
  [["script-src 'self'; connect-src 'none'"], "connect-src 'self'"],
  [["default-src 'self'", 'script-src cdn.example'], "script-src 'self'"],
  [["default-src 'self', script-src 'none'"], "script-src 'self'"],
  [["script-src 'self' 'strict-dynamic'"], "script-src 'self'"],
  [['script-src http://example.com'], "script-src 'self'"],
  [['script-src https://example.com:8443'], "script-src 'self'"],
  [['script-src https://example.com/app.js'], "script-src 'self'"],
  [['script-src *.example.com'], "script-src 'self'"],
  [['sandbox'], 'sandbox allow-scripts'],
  [['sandbox allow-scripts'], 'sandbox allow-same-origin'],
  [["require-trusted-types-for 'script'; trusted-types app"], 'trusted-types hubgate'],
  [["require-trusted-types-for 'script'", "trusted-types 'none'"], 'trusted-types hubgate'],
] as const;

describe('the check whether a Content-Security-Policy allows a live page (CSP Level 3)', () => {
  it('fails if there are more policies than the limit', () => {
    const pieces = piecesOf(() => void askPolicies(['a,'.repeat(40_000)], question));
    assert.ok(pieces <= 65, `${pieces} pieces`);
    const all = Array.from({ length: 64 }, () => "default-src 'self'");
    assert.equal(askPolicies(all, question).kind, 'allowed');
    for (const more of [
      [...all, ''],
      [all.join(), ''],
    ]) {
      const answer = askPolicies(more, question);
      assert.deepEqual(answer, { kind: 'forbidden', allow: 'no more than 64 policies' });
    }
  });

  for (const policies of ALLOWED) {
    it(`passes: ${JSON.stringify(policies)}`, () => {
      assert.deepEqual(askPolicies(policies, question), {
        kind: 'allowed',
        nonce: null,
        trusted: false,
      });
    });
  }
  for (const [policies, allow] of FORBIDDEN) {
    it(`fails: ${JSON.stringify(policies)}`, () => {
      assert.deepEqual(askPolicies(policies, question), { kind: 'forbidden', allow });
    });
  }

  for (const names of ['', "; trusted-types app hubgate 'allow-duplicates'", '; trusted-types *']) {
    it(`passes if the script may trust its server: require-trusted-types-for${names}`, () => {
      const answer = askPolicies([`require-trusted-types-for 'script'${names}`], question);
      assert.deepEqual(answer, { kind: 'allowed', nonce: null, trusted: true });
    });
  }

  it('takes the nonce of the page into account, if all policies contain it', () => {
    const strict = "script-src 'nonce-abc' 'strict-dynamic'";
    assert.deepEqual(askPolicies([strict], question), {
      kind: 'allowed',
      nonce: 'abc',
      trusted: false,
    });
    assert.equal(askPolicies([strict, "script-src 'nonce-xyz'"], question).kind, 'forbidden');
  });

  it('takes a hub on another origin into account', () => {
    const hub = new URL('https://hub.example.com/.well-known/hub');
    const elsewhere = { ...question, hub, script: new URL('https://hub.example.com/hub/live.js') };
    assert.deepEqual(askPolicies(["default-src 'self'"], elsewhere), {
      kind: 'forbidden',
      allow: 'script-src https://hub.example.com',
    });
    const connect = "script-src https://hub.example.com; connect-src 'self'";
    assert.deepEqual(askPolicies([connect], elsewhere), {
      kind: 'forbidden',
      allow: 'connect-src https://hub.example.com',
    });
  });

  it('takes the policy of a meta element into account', () => {
    const meta = `meta http-equiv="Content-Security-Policy" content="script-src &#39;self&#39;"`;
    assert.equal(metaPolicy(meta), "script-src 'self'");
    assert.equal(metaPolicy('meta charset="utf-8"'), null);
    assert.equal(
      metaPolicy("meta http-equiv=Content-Security-Policy content='default-src x'"),
      'default-src x',
    );
  });
});
