import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UrlPattern } from '../../../src/hub/pattern/url-pattern.ts';
import { parseTopic } from '../../../src/hub/topic.ts';

const BASE = 'https://hub.example/.well-known/hub';

function test(pattern: string, topic: string): boolean {
  const { url } = parseTopic(topic, BASE);
  return url !== null && new UrlPattern(pattern, BASE).test(url);
}

const E = 'https://example.com';

/** Number in the catalogue, pattern, topics that match, topics that do not. */
const CASES: readonly (readonly [string, string, readonly string[], readonly string[]])[] = [
  [
    'G-427',
    `${E}/books/:id`,
    [`${E}/books/1`],
    [`${E}/authors/1`, `${E}/books/1/x`, `${E}/books/`, `${E}/books`],
  ],
  ['G-428', `${E}/books/:id`, [`${E}/books/1?x=1`, `${E}/books/1#f`], []],
  ['G-429', `${E}/*`, [`${E}/a/b/c`, `${E}/`], []],
  ['G-430', E, [E, `${E}/a`, `${E}/?x#y`], ['https://example.org/']],
  ['G-431', `${E}/books/:id`, ['https://EXAMPLE.com/books/1'], [`${E}/BOOKS/1`]],
  ['G-432', `${E}/books/:id`, [], ['http://example.com/books/1']],
  ['G-433', `${E}/*`, ['https://example.com:443/x'], ['https://example.com:8443/x']],
  ['G-434', `${E}/*`, ['https://me:pw@example.com/x'], []],
  [
    'G-435',
    `${E}/users/42/*`,
    [`${E}/users/42/..%2f43`],
    [`${E}/users/42/../43/x`, `${E}/users/42/%2e%2e/43/x`],
  ],
  [
    'G-436',
    `${E}/feed/:type(news|alerts)`,
    [`${E}/feed/news`, `${E}/feed/alerts`],
    [`${E}/feed/newsalerts`, `${E}/feed/new`],
  ],
  [
    'G-437',
    `${E}/items{/:tail}?`,
    [`${E}/items`, `${E}/items/x`],
    [`${E}/items/`, `${E}/items/x/y`],
  ],
  ['G-438', `${E}/:rest*`, [`${E}/a`, `${E}/a/b`], [`${E}/`]],
  ['G-438', `${E}/:rest+`, [`${E}/a`, `${E}/a/b`], [`${E}/`]],
  [
    'G-438',
    'https://*.example.com/x',
    ['https://a.example.com/x', 'https://a.b.example.com/x'],
    [`${E}/x`],
  ],
  [
    'G-438',
    'https://:sub.example.com/*',
    ['https://a.example.com/x'],
    ['https://a.b.example.com/x', `${E}/x`],
  ],
  ['G-439', `${E}/%3a`, [`${E}/%3a`], [`${E}/%3A`, `${E}/:`]],
  [
    'G-440',
    '*://example.com/books/:id',
    [`${E}/books/1`, 'http://example.com/books/1'],
    ['https://x.example/books/1'],
  ],
  ['G-443', '/books/:id', ['/books/1', 'https://hub.example/books/1'], [`${E}/books/1`]],
  ['G-445', '/:x', ['/foo'], ['foo']],
  ['G-445', '/.well-known/:x', ['foo'], ['/foo']],
  ['G-446', '*:*', ['urn:uuid:1'], []],
  ['G-446', ':p:*', ['urn:uuid:1'], []],
  ['G-446', 'urn:uuid:*', [], ['urn:uuid:1']],
  ['G-446', '*://*/*', [], ['urn:uuid:1']],
  ['G-447', '*://*', [`${E}/x`], ['http://[::1', 'https://']],
  ['G-448', '/.well-known/a%20b', ['a b'], ['ab']],
  [
    'G-449',
    '/.well-known/hub/subscriptions/:match_type/:match/:subscriber',
    ['/.well-known/hub/subscriptions/exact/https%3A%2F%2Fa/urn%3Auuid%3A1'],
    ['/.well-known/hub/subscriptions/exact/a'],
  ],
  [
    'G-449',
    '/.well-known/hub/subscriptions/exact/:m/:s',
    ['/.well-known/hub/subscriptions/exact/a/b'],
    ['/.well-known/hub/subscriptions/urlpattern/a/b'],
  ],
  ['G-451', '/:id?b=1', [], ['/x?b=1']],
  ['G-451', '/:id\\?b=1', ['/x?b=1'], ['/x', '/x?b=2']],
  ['G-451', '/a?b=:c', ['/a?b=7'], ['/a', '/a?c=7']],
  ['G-454', '', [], [BASE, 'https://hub.example/', '/a', '']],
  ['G-455', `${E}/é`, [`${E}/é`, `${E}/%C3%A9`], [`${E}/%c3%a9`, `${E}/e`]],
  ['L-43', `${E}/users/:id/*`, [`${E}/users/42/x`], [`${E}//other/users/42/x`]],
  [
    'L-43 (default port)',
    'wss://example.com:443/x',
    ['wss://example.com/x'],
    ['wss://example.com:8443/x'],
  ],
  [
    'L-43 (leading zeros)',
    'https://example.com:08080/x',
    ['https://example.com:8080/x'],
    ['https://example.com/x'],
  ],
  ['L-43 (classes of the flag v)', '/([[a-z]--[b]])', ['/a'], ['/b']],
  ['L-43 (a "?" that begins a query)', '/a?\\?b', ['/a??b'], ['/a?b']],
  ['L-43 (a "#" in a fragment)', '/a#:x\\#b', ['/a#1#b'], ['/a#1b']],
  ['§2.2 (assertions)', '/(^a|b$|\\bc)', ['/b', '/c'], ['/a', '/bb']],
  [
    '§2.2 (counts)',
    '/(a{2,3}b{2}c{1,})',
    ['/aabbc', '/aaabbccc'],
    ['/abbc', '/aaaabbc', '/aabc', '/aabb'],
  ],
  [
    '§2.2 (groups and escapes)',
    '/((?:ab|c)+?\\d\\x41\\.)',
    ['/abc7A.', '/c0A.'],
    ['/7A.', '/abc7Ax'],
  ],
];

describe('URL Patterns (G.2)', () => {
  for (const [number, pattern, yes, no] of CASES) {
    it(`${number} ${pattern === '' ? 'the empty pattern' : pattern}`, () => {
      for (const topic of yes) assert.ok(test(pattern, topic), `should match ${topic}`);
      for (const topic of no) assert.ok(!test(pattern, topic), `should not match ${topic}`);
    });
  }
  const malformed: readonly (readonly [string, string])[] = [
    ['G-450', '{unclosed'],
    ['G-450', '/(unclosed'],
    ['G-450', '[('],
    ['G-450', '/:'],
    ['G-450', '/:a/:a'],
    ['G-450', '/((a))'],
    ['G-450', 'https://a b/'],
    ['G-450', 'https://[::zz]/'],
    ['G-450', '1x://a/'],
    ['G-450', '/()'],
    ['G-450', '/(é)'],
    ['G-450', '/a\\'],
    ['G-450', 'https://1.2.3.999/*'],
    ['G-450', 'https://a^b/'],
    ['G-450', 'https://a:99999/'],
    ['G-450 L-42 (look-ahead)', '/((?=x)x)'],
    ['G-450 L-42 (look-ahead)', '/((?!x)y)'],
    ['G-450 L-42 (look-behind)', '/((?<=x)y)'],
    ['G-450 L-42 (look-behind)', '/((?<!x)y)'],
    ['G-450 L-42 (back-reference)', '/((?<n>a)\\k<n>)'],
    ['G-450 L-42 (back-reference)', '/:a(x)\\1(\\1)'],
    ['G-450 (inline modifier)', '/((?i:x))'],
    ['C-293 (201 groups)', '/*'.repeat(201)],
    ['B-126 (repeat)', '/(a{1001})'],
    ['B-126 (nested repeats)', '/((?:a{1000}){1000})'],
    ['B-126 (nested repeats of nothing)', '/((?:(?:){1000}){1000})'],
    [
      'B-126 (classes)',
      `/(${Array.from({ length: 80 }, (_, i) => `[a\\x${(i + 16).toString(16)}]`).join('')})`,
    ],
  ];
  for (const [number, pattern] of malformed) {
    it(`${number} refuses ${pattern.slice(0, 40)}`, () => {
      assert.throws(() => new UrlPattern(pattern, BASE), { code: 'invalid-pattern' });
    });
  }
});

describe('what an index can use from a pattern', () => {
  for (const [pattern, origin, prefix] of [
    [`${E}/users/42/*`, 'https://example.com:', '/users/42/'],
    ['https://example.com:8443/a/:b', 'https://example.com:8443', '/a/'],
    ['/books/:id', 'https://hub.example:', '/books/'],
    ['https://*.example.com/x', null, '/x'],
    ['http{s}?://example.com/x', null, '/x'],
    [E, 'https://example.com:', ''],
  ] as const) {
    it(`${pattern} has a fixed origin and path prefix`, () => {
      const compiled = new UrlPattern(pattern, BASE);
      assert.deepEqual([compiled.origin, compiled.pathPrefix], [origin, prefix]);
    });
  }
});

describe('the parser for unusual hosts and paths', () => {
  const BASE = 'https://example.com/.well-known/hub';
  const verdict = (pattern: string, topic: string, base = BASE): boolean => {
    const url = parseTopic(topic, base).url ?? assert.fail(`${topic} is not a URL`);
    return new UrlPattern(pattern, base).test(url);
  };

  it('resolves dot segments after a segment that begins with a dot', () => {
    assert.ok(verdict('https://h/x/.y/../z/*', 'https://h/x/z/1'));
    assert.ok(!verdict('https://h/users/42/*', 'https://h/users/42/.x/../../43/secret'));
    assert.ok(verdict('https://h/:id/%2E%2e/x', 'https://h/1/x'));
    assert.ok(verdict('https://h/:id/x/..', 'https://h/1/'));
    for (const up of ['https://h/:id/..', 'https://h/:id/x/../..', 'foo:/a{/a}*/%2e%2e']) {
      assert.throws(() => verdict(up, 'https://h/1'), { code: 'invalid-pattern' }, up);
    }
  });

  it('keeps everything after // in the path of a scheme that is not special', () => {
    assert.ok(!verdict('foo://h//admin/*', 'foo://h/x'));
    assert.ok(verdict('foo://h//admin/*', 'foo://h//admin/x'));
    assert.ok(!verdict('foo://h/{}//:x/y', 'foo://h/y'));
    assert.ok(verdict('foo://h/{/a}', 'foo://h//a'));
    assert.ok(
      verdict('foo://h/x{//a}?', 'foo://h/x') && verdict('foo://h/x{//a}?', 'foo://h/x//a'),
    );
    assert.ok(verdict('foo:/a?b//c#d//*', 'foo:/a?b//c#d//e'), 'elsewhere it is itself');
  });

  it('treats a group, a modifier or a query after // according to its meaning', () => {
    for (const slashes of ['//', '///', '/{}/']) {
      const plain = slashes.replace('{}', '');
      assert.ok(verdict(`foo:/a${slashes}*`, `foo:/a${plain}b`), slashes);
      assert.ok(!verdict(`foo:/a${slashes}*`, 'foo:/a/'), slashes);
      assert.ok(verdict(`foo:/a${slashes}?q`, `foo:/a${plain}?q`), slashes);
      assert.throws(() => verdict(`foo:/a${slashes}+`, 'foo:/a'), { code: 'invalid-pattern' });
    }
  });

  it('reads each # of a fragment and each ? of a query, however many there are', () => {
    assert.ok(verdict(`/a#${'#'.repeat(4000)}`, `https://example.com/a#${'#'.repeat(3999)}`));
    assert.ok(!verdict(`/a#${'#'.repeat(4000)}`, `https://example.com/a#${'#'.repeat(4000)}`));
    assert.ok(verdict('/a?x\\?\\?*', 'https://example.com/a?x??y'));
    // What stands for them is what the pattern does not have.
    for (const taken of ['~', '~!', '~!,', '~!,;', '~!,;~0~', '~!,;\\~0~']) {
      const text = taken.replace('\\', '');
      assert.ok(verdict(`/a#${taken}#*`, `https://example.com/a#${text}#b`), taken);
      assert.ok(!verdict(`/a#${taken}#*`, `https://example.com/a#${text}b`), taken);
    }
  });

  it('never confuses a host in a pattern with the fallback host of the library', () => {
    assert.ok(verdict('/books/*', 'https://example.com/books/1'), 'a base on that very host');
    for (const refused of ['https://256.1.1.1/example.com/*', 'https://a b/example.com']) {
      assert.throws(() => verdict(refused, 'https://example.com/x'), { code: 'invalid-pattern' });
    }
    assert.ok(verdict('https://example.com/*', 'https://example.com/x', 'https://hub.invalid/'));
  });

  it('accepts every way of writing a host that the standard accepts', () => {
    assert.ok(verdict('https://exa%6dple.com/*', 'https://example.com/x'));
    assert.ok(verdict('https://EXAMPLE.com/*', 'https://example.com/x'));
    assert.ok(verdict('https://example.com{/bar}', 'https://example.com/x'));
    assert.ok(verdict('https://h\\\\x/y', 'https://h/y'));
    assert.ok(verdict('https://{sub.}?example.com/*', 'https://sub.example.com/x'));
  });

  it('allows at most 100 groups, and 64 character classes in total', () => {
    assert.ok(verdict('/*'.repeat(100), `https://example.com${'/a'.repeat(100)}`));
    assert.throws(() => verdict('/*'.repeat(101), 'https://example.com/'), /more than 100 groups/);
    const classes = (count: number): string =>
      Array.from({ length: count }, (_, i) => `([a\\x${(0x20 + i).toString(16)}])`).join('');
    assert.ok(verdict(`/${classes(64)}`, `https://example.com/${'a'.repeat(64)}`));
    assert.throws(() => verdict(`/${classes(65)}`, 'https://example.com/'), /more than 64 classes/);
  });

  it('reads the path as written if the scheme is not special, like Chromium', () => {
    for (const [pattern, url] of [
      ['foo://a.b/a/./b', 'foo://a.b/a/b'],
      ['foo://a.b/a/./b', 'foo://a.b/a/./b'],
      ['foo://a.b/a/../b', 'foo://a.b/b'],
      ['foo://a.b/a/%2E%2e/b', 'foo://a.b/b'],
      ['foo://a.b/a/./*', 'foo://a.b/a/x'],
      ['foo://a.b/a/..', 'foo://a.b/'],
      ['foo://a.b/.', 'foo://a.b/'],
      ['foo://a.b:80/x/{./y}', 'foo://a.b:80/x/y'],
      ['foo:/a/./b', 'foo:/a/b'],
      ['foo://a.b/a b', 'foo://a.b/a%20b'],
      ['foo://a.b/a"b', 'foo://a.b/a"b'],
      ['foo{s}?://a.b/a/./b', 'foos://a.b/a/b'],
      ['foo://h/x//../y', 'foo://h/x/y'],
    ] as const) {
      assert.equal(test(pattern, url), false, pattern);
    }
    for (const [pattern, url] of [
      ['foo://a.b/a/b', 'foo://a.b/a/./b'],
      ['foo://a.b/é', 'foo://a.b/é'],
      ['foo://a.b/a/.b/*', 'foo://a.b/a/.b/c'],
      ['(foo|https)://a.b/a/./b', 'foo://a.b/a/b'],
      ['http{s}?://a.b/a/./b', 'https://a.b/a/b'],
    ] as const) {
      assert.equal(test(pattern, url), true, pattern);
    }
  });
});
