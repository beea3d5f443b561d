import { UrlPattern } from '../../../src/hub/pattern/url-pattern.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  compileMatcher,
  MatcherCache,
  matches,
  type MatchType,
  type SubscriptionMatcher,
} from '../../../src/hub/matcher.ts';
import { hubBase, parseTopic } from '../../../src/hub/topic.ts';
import { unlimitedBudget } from '../../../src/kernel/scheduler.ts';

const PATH = '/.well-known/hub';
const PINNED = hubBase('https://hub.example/.well-known/hub', PATH);
const UNPINNED = hubBase(null, PATH);

function compile(match: string, matchType: MatchType, base = PINNED): SubscriptionMatcher {
  return compileMatcher({ match, matchType }, base, null);
}

const covers = (matcher: SubscriptionMatcher, topic: string, base = PINNED): boolean =>
  matches(matcher, parseTopic(topic, base));

describe('matchers (G.1, D)', () => {
  it('B-113 D-323 D-324 G-441 "*" matches everything, whatever its type', () => {
    for (const type of ['exact', 'urlpattern'] as const) {
      const matcher = compile('*', type);
      for (const topic of ['urn:x', 'plain string', 'http://[::1', 'https://example.com/']) {
        assert.ok(covers(matcher, topic));
      }
    }
  });
  it('G-425 D-326 D-327 exact compares byte for byte, without special characters', () => {
    assert.ok(covers(compile('/a', 'exact'), '/a'));
    assert.ok(!covers(compile('/a', 'exact'), 'https://hub.example/a'));
    assert.ok(!covers(compile('%C3%A9', 'exact'), 'é'));
    assert.ok(!covers(compile('é', 'exact'), 'e\u0301'));
    assert.ok(!covers(compile('https://example.com/', 'exact'), 'https://example.com'));
    assert.ok(!covers(compile('/:id', 'exact'), '/1'));
    assert.ok(covers(compile('/:id', 'exact'), '/:id'));
    assert.ok(covers(compile('http://[::1', 'exact'), 'http://[::1'));
  });
  it('D-325 L-23 a pattern that matches everything is not "*"', () => {
    for (const pattern of ['*://*/*', 'https://*']) {
      const matcher = compile(pattern, 'urlpattern');
      for (const topic of ['urn:uuid:1', 'http://[::1', 'mailto:a@example.com']) {
        assert.ok(!covers(matcher, topic), `${pattern} ${topic}`);
      }
      assert.ok(covers(matcher, 'plain string'));
    }
  });
  it('B-121 an empty matcher matches no topic that can be published', () => {
    assert.ok(!covers(compile('', 'exact'), 'a'));
    assert.ok(!covers(compile('', 'urlpattern'), 'https://hub.example/a'));
  });
  it('B-122 C-287 refuses control and format characters in any matcher', () => {
    for (const match of ['\0', 'a\n', '\u007f', '\u0085', '\u200b', '\ud800']) {
      for (const type of ['exact', 'urlpattern'] as const) {
        assert.throws(() => compile(match, type), { code: 'invalid-matcher-characters' });
      }
    }
  });
  it('B-124 accepts up to 4096 bytes for either type', () => {
    for (const type of ['exact', 'urlpattern'] as const) {
      compile(`/${'a'.repeat(4095)}`, type);
      assert.throws(() => compile(`/${'a'.repeat(4096)}`, type), { code: 'pattern-too-long' });
      assert.throws(() => compile(`/${'é'.repeat(2048)}`, type), { code: 'pattern-too-long' });
    }
  });
  it('B-123 refuses a malformed pattern', () => {
    assert.throws(() => compile('{unclosed', 'urlpattern'), { code: 'invalid-pattern' });
  });
  it('G-442 G-443 G-444 relative and absolute topics match each other only if the base is pinned', () => {
    const relative = compile('/books/:id', 'urlpattern');
    const absolute = compile('https://hub.example/books/:id', 'urlpattern');
    for (const topic of ['/books/1', 'https://hub.example/books/1']) {
      assert.ok(covers(relative, topic) && covers(absolute, topic));
    }
    assert.ok(!covers(relative, 'https://other.example/books/1'));
    const loose = compile('/books/:id', 'urlpattern', UNPINNED);
    assert.ok(covers(loose, '/books/1', UNPINNED));
    assert.ok(!covers(loose, 'https://hub.example/books/1', UNPINNED));
    assert.ok(
      !covers(
        compile('https://hub.example/books/:id', 'urlpattern', UNPINNED),
        '/books/1',
        UNPINNED,
      ),
    );
  });
});

describe('the cache of patterns', () => {
  it('shares equal patterns with the same base', () => {
    const cache = new MatcherCache(10);
    const first = cache.pattern('/a/:b', PINNED, unlimitedBudget());
    assert.equal(cache.pattern('/a/:b', PINNED, unlimitedBudget()), first);
    assert.notEqual(cache.pattern('/a/:b', UNPINNED, unlimitedBudget()), first);
  });
  it('drops the least recently used pattern, and counts large ones more', () => {
    // Short ones count as two entries.
    const cache = new MatcherCache(6);
    const compiled = (text: string) => cache.pattern(text, PINNED, unlimitedBudget());
    const [kept, lost] = [compiled('/kept'), compiled('/lost')];
    compiled('/third');
    assert.equal(compiled('/kept'), kept);
    compiled('/fourth');
    assert.equal(compiled('/kept'), kept);
    assert.notEqual(compiled('/lost'), lost);
    for (const large of [
      '/(a{500})',
      `/${'a'.repeat(4000)}`,
      `/([^a]${'[^b-c]|[d-e]'.repeat(9)})`,
    ]) {
      const before = compiled('/kept');
      compiled(large);
      assert.notEqual(compiled('/kept'), before, large);
    }
    const again = ['/1', '/2', '/3'].map(compiled);
    assert.deepEqual(['/1', '/2', '/3'].map(compiled), again, 'it holds as many as before');
  });
  it('takes no more than 64 MB at its default size, whatever the patterns', () => {
    // What V8 says of 1,000 patterns of each kind.
    const measured = {
      '/books/1': 861,
      'https://example.com/b1/:id': 2217,
      [`/1/${'你'.repeat(1350)}`]: 15_804,
      [`/#1${'🙂'.repeat(1000)}`]: 16_934,
      [`/:id/1${'a'.repeat(2000)}`]: 24_002,
      '/1([a-c]{1,1000})': 20_049,
      [`/1/(${Array.from({ length: 60 }, (_, nr) => `[${String.fromCharCode(97 + (nr % 26))}${String.fromCharCode(65 + Math.floor(nr / 26))}]`).join('')})`]: 22_158,
    };
    for (const [text, bytes] of Object.entries(measured)) {
      const estimate = new UrlPattern(text, PINNED).bytes;
      assert.ok(estimate >= bytes, `${estimate} ${text}`);
    }
  });
  it('H-471 stores nothing if its size is 0 or less', () => {
    for (const size of [0, -1]) {
      const cache = new MatcherCache(size);
      assert.notEqual(
        cache.pattern('/a', PINNED, unlimitedBudget()),
        cache.pattern('/a', PINNED, unlimitedBudget()),
      );
    }
  });
});
