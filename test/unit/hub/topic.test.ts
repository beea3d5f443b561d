import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  hasForbiddenCharacters,
  hubBase,
  isReservedTopic,
  parseTopic,
} from '../../../src/hub/topic.ts';

const PATH = '/.well-known/hub';
const UNPINNED = hubBase(null, PATH);

const isReserved = (text: string, base = UNPINNED): boolean =>
  isReservedTopic(parseTopic(text, base), PATH);

describe('the reserved namespace (A.4)', () => {
  const reserved: readonly (readonly [number, string])[] = [
    [38, '/.well-known/hub'],
    [39, '/.well-known/hub/subscriptions/foo'],
    [40, 'https://example.com/.well-known/hub/subscriptions/x'],
    [41, 'http://other.example/.well-known/hub/x'],
    [42, 'hub/subscriptions/foo'],
    [43, 'https://example.com/.well-known/%68ub/subscriptions/x'],
    [44, '/.well-known/hu%62/x'],
    [45, '/%2e%77ell-known/hub'],
    [45, '/%2E%77ell%2Dknown/hub'],
    [46, 'hub'],
    [46, './hub'],
    [47, '/.well-known/hub?x'],
    [47, '/.well-known/hub#x'],
    [47, '/.well-known/hub//'],
    [48, 'foo://bar/.well-known/hub'],
    [48, 'custom:/.well-known/hub/x'],
    [49, '/.well-known/hub/../hub/x'],
    [49, '/.well-known/./hub'],
    [49, '/x/%2e%2e/.well-known/hub'],
    [50, String.raw`https://example.com\.well-known\hub\subscriptions\x`],
    [51, '//anyhost/.well-known/hub'],
    [52, '?q'],
    [52, '#f'],
    [30, ''],
    [53, 'https:hub/subscriptions/exact/x/y'],
    [53, 'https:'],
    [54, ' /.well-known/hub'],
    [54, '/.well-known/hub '],
  ];
  for (const [number, text] of reserved) {
    it(`A-${number} reserves ${JSON.stringify(text)}, whatever the base`, () => {
      assert.ok(isReserved(text));
      assert.ok(isReserved(text, hubBase('https://hub.example/.well-known/hub', PATH)));
    });
  }
  const free = [
    '/.well-known/hubXXX',
    '/.well-known/hub-dashboard',
    'https://example.com/foo/.well-known/hub/bar',
    'subscriptions/foo',
    'bar',
    '../hub/x',
    'urn:example:hub',
    '/.WELL-KNOWN/HUB',
    '/.well-known%2Fhub',
    '/.well-known/hub%2Fx',
    '/.well-known//hub',
    '/.well-known/hub;x',
    '/.well-known/%2568ub',
  ];
  for (const text of free) {
    it(`A-55 allows ${text}`, () => assert.ok(!isReserved(text)));
  }
  it('A-53 resolves against the scheme of the hub, so that http: needs its slashes with another scheme', () => {
    const base = hubBase('http://hub.example/', PATH);
    assert.ok(!isReserved('https:hub/subscriptions/exact/x/y', base));
    assert.ok(isReserved('http:hub/subscriptions/exact/x/y', base));
  });
  it('A-56 allows text that is not a URL', () => {
    assert.ok(!isReserved('http://[::1'));
    assert.equal(parseTopic('http://[::1', UNPINNED).url, null);
  });
  it('A-43 still reserves hosts beyond ASCII after 10,000 topics', () => {
    for (let i = 0; i < 10_000; i += 1) {
      assert.ok(isReserved('https://é.example.com/.well-known/hub/x'));
    }
  });
  it('depends on the configured path of the hub', () => {
    const topic = parseTopic('https://x.example/%65vents/sub', hubBase(null, '/events'));
    assert.ok(isReservedTopic(topic, '/events'));
    assert.ok(!isReservedTopic(topic, '/event'));
  });
});

describe('the base of relative topics (L22)', () => {
  it('L-22 is the hub URL on the host of its identity, or on a host that cannot exist', () => {
    assert.equal(
      hubBase('https://hub.example/elsewhere', PATH),
      'https://hub.example/.well-known/hub',
    );
    assert.equal(new URL(UNPINNED).pathname, PATH);
    assert.match(new URL(UNPINNED).hostname, /\.invalid$/);
  });
});

describe('forbidden characters (A.3)', () => {
  for (const code of [0, 9, 10, 13, 0x1f, 0x7f, 0x80, 0x9f]) {
    it(`A-32 forbids U+${code.toString(16)}`, () => {
      assert.ok(hasForbiddenCharacters(`a${String.fromCodePoint(code)}b`));
    });
  }
  for (const code of [0xad, 0x200b, 0x200e, 0x202e, 0x2066, 0xfeff, 0xe0001]) {
    it(`A-33 forbids the format character U+${code.toString(16)}`, () => {
      assert.ok(hasForbiddenCharacters(`a${String.fromCodePoint(code)}b`));
    });
  }
  it('A-34 forbids half of a surrogate pair, which is not UTF-8', () => {
    assert.ok(hasForbiddenCharacters('a\ud800b'));
  });
  for (const text of ['', 'chat room', 'é', '😀', 'שלום', 'مرحبا', '\ufffd', '\u00a0']) {
    it(`A-29 A-35 allows ${JSON.stringify(text)}`, () => assert.ok(!hasForbiddenCharacters(text)));
  }
});
