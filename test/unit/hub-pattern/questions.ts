import fc from 'fast-check';
import type { Question } from './native-oracle.ts';

const join = (texts: readonly string[]): string => texts.join('');

const SCHEMES = [
  'https',
  'http',
  'wss',
  'ws',
  'ftp',
  'file',
  'custom',
  'urn',
  'HTTPS',
  '*',
  'http{s}?',
  ':p',
  '(https?)',
  '([a-z]+)',
  'h*',
  '',
  '{ws}{s}?',
  '1x',
  '(ht|f)tp',
];
const HOSTS = [
  'example.com',
  'EXAMPLE.com',
  '*.example.com',
  ':sub.example.com',
  'a.b',
  'example.com:443',
  'example.com:8080',
  'example.com::port',
  '1.2.3.4',
  '1.2.3.999',
  '999.1',
  'é.example',
  '[::1]',
  '[::1]:80',
  '*',
  'user@example.com',
  'u:p@example.com',
  '{a.}?example.com',
  '(a|b).c',
  'hub.example',
  'example.com:080',
  'example.com:443443',
  '',
  'a_b',
  'a b',
  '{bücher}.example',
  'ex-*.com',
  '*:80*',
];
const PIECES = [
  'a',
  'b',
  '42',
  ':id',
  ':x',
  '*',
  '**',
  '{a}?',
  '{/b}*',
  '{/:c}+',
  '(a|b)',
  '([a-z]+)',
  '(\\d+)',
  '%41',
  'é',
  'a b',
  '{x:y}?',
  ':n?',
  ':m*',
  ':o+',
  '(.*)?',
  'a\\:b',
  'a\\*',
  '{a:q}*z',
  '([^a])',
  '(a{2,3})',
  '(\\w+\\b)',
  '(^a)',
  '(a$)',
  '{}',
  '-:z',
  ':z-:w',
  '(?:a)',
  '([[a-z]--b])',
  '([a&&b])',
  '\\?',
  '\\#',
  '~',
  '(a)',
  'a+',
  '{a}+',
  '"',
  '|',
  '`',
  '([\\]a])',
  '\\p{L}',
  '(\\p{L}+)',
  '(\\x61.)',
  '(\\u{61}|\\cA|\\0)',
  '😀',
  '𝒜',
  ':𝒜',
  '(a|)',
  '\\a',
];
const TOPIC_PIECES = [
  'a',
  'b',
  '42',
  'aa',
  'aaa',
  'x',
  'ab',
  '..',
  '.',
  '%2e%2e',
  '%41',
  'A',
  'é',
  '%C3%A9',
  'a b',
  'a:b',
  'a*',
  'c',
  '',
  '~',
  'a-b',
  'z',
  'q',
  'axqz',
  '?',
  '??b',
  '#f',
  '##',
  '"',
  '|',
  '`',
  ']',
  'L',
  '😀',
  'a/b',
  '/',
  '/a/b',
];
const TOPIC_HOSTS = [
  'example.com',
  'EXAMPLE.com',
  'a.example.com',
  'a.b.example.com',
  'a.b',
  'example.com:443',
  'example.com:8080',
  'example.com:80',
  '1.2.3.4',
  '[::1]',
  'a.c',
  'hub.example',
  'user@example.com',
  'u:p@example.com',
  'é.example',
  'bücher.example',
  'ex-a.com',
  'other',
];
const STRANGE_TOPICS = [
  'urn:a',
  'urn:a:b',
  'custom:/a/b',
  'http://[::1',
  'plain',
  'mailto:a',
  'custom:a b',
  '/.well-known/a',
  'a',
  'foo',
  '',
];

const piece = fc.constantFrom(...PIECES);
const path = fc
  .array(fc.tuple(fc.constantFrom('/', '/', '/', '/', '', '//', './'), piece).map(join), {
    maxLength: 4,
  })
  .map(join);
const query = fc
  .tuple(
    fc.constantFrom('?', '\\?', '??', '?:x?', '?\\?'),
    fc.array(piece, { maxLength: 2 }).map(join),
  )
  .map(join);
const fragment = fc
  .tuple(fc.constantFrom('#', '\\#', '##'), fc.array(piece, { maxLength: 2 }).map(join))
  .map(join);
const tail = fc
  .tuple(
    path,
    fc.oneof({ weight: 4, arbitrary: fc.constant('') }, query),
    fc.oneof({ weight: 6, arbitrary: fc.constant('') }, fragment),
  )
  .map(join);
const anything = fc
  .array(
    fc.constantFrom(
      ...PIECES,
      ...SCHEMES,
      ...HOSTS,
      ':',
      '/',
      '//',
      '@',
      '{',
      '}',
      '(',
      ')',
      '?',
      '#',
      '\\',
      '[',
      ']',
    ),
    { maxLength: 6 },
  )
  .map(join);
const pattern = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(
        fc.constantFrom(...SCHEMES),
        fc.constantFrom('://', '://', '://', ':', ':/'),
        fc.constantFrom(...HOSTS),
        tail,
      )
      .map(join),
  },
  { weight: 3, arbitrary: tail },
  { weight: 1, arbitrary: anything },
);

const topicPath = fc
  .array(
    fc.constantFrom(...TOPIC_PIECES).map((text) => `/${text}`),
    { maxLength: 4 },
  )
  .map(join);
const topic = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(
        fc.constantFrom('https', 'http', 'wss', 'ws', 'ftp', 'file', 'custom', 'HTTPS'),
        fc.constantFrom(...TOPIC_HOSTS),
        topicPath,
      )
      .map(([scheme, host, rest]) => `${scheme}://${host}${rest}`),
  },
  { weight: 3, arbitrary: topicPath },
  { weight: 1, arbitrary: fc.constantFrom(...STRANGE_TOPICS) },
);

/** Topics that the pattern has a chance to match: its groups filled in. */
function near(text: string): readonly string[] {
  return [
    text
      .replace(/\\(.)/g, '$1')
      .replace(/\([^)]*\)/g, 'a')
      .replace(/:[A-Za-z]+/g, 'a')
      .replace(/[*+?{}]/g, ''),
    text
      .replace(/[{}]/g, '')
      .replace(/:[a-z]/g, '42')
      .replace(/\*/g, 'b')
      .replace(/\([^)]*\)/g, 'ab')
      .replace(/[?+\\]/g, ''),
  ];
}

/** The same questions for the same seed. */
export function questions(seed: number, count: number, base: string): readonly Question[] {
  const topics = fc.sample(topic, { seed: seed + 1, numRuns: count * 8 });
  return fc.sample(pattern, { seed, numRuns: count }).map((text, index) => ({
    pattern: text,
    topics: [...topics.slice(index * 8, index * 8 + 8), ...near(text)],
    base,
  }));
}
