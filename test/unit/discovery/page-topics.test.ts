import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createTopicOf, type PageAlias, queryMark } from '../../../src/client/page-topics.ts';
import { requireUrl } from '../../../src/kernel/parse.ts';

const MEDIAWIKI = [{ topic: '/index.php/{page}', forms: ['/index.php?title={page}'] }];
const WORDPRESS = [
  { topic: '/?p={id}', forms: ['/wp-json/wp/v2/posts/{id}', '/?rest_route=/wp/v2/posts/{id}'] },
  { topic: '/wp-admin/post.php?post={id}', forms: [] },
];
const mark = queryMark;
const gateway = (aliases: readonly PageAlias[]) =>
  createTopicOf(aliases, (url) => requireUrl(url).href);
const browser = (aliases: readonly PageAlias[]) =>
  createTopicOf(aliases, (url) => new URL(url).href);

/** What is configured, a URL, its topic, and which query is told by eight bits. */
const CASES: readonly (readonly [readonly PageAlias[], string, string, string])[] = [
  [[], '/a', '/a', ''],
  [[], '/a#part', '/a', ''],
  [[], '/a?', '/a', ''],
  [[], '/wp-admin/post.php?post=7', '/wp-admin/post.php', '?post=7'],
  [[], '/index.php?title=A&action=submit', '/index.php', '?title=A&action=submit'],
  [[], '/cart;jsessionid=1?0', '/cart', '?0'],
  [[], '/a;x=1/b;y=2;z/c', '/a/b;z/c', ''],
  [MEDIAWIKI, '/index.php;jsessionid=1?title=A', '/index.php/A', ''],
  [MEDIAWIKI, '/index.php/Steins;Gate', '/index.php/Steins%3BGate', ''],
  [MEDIAWIKI, '/index.php?title=Steins;Gate', '/index.php/Steins%3BGate', ''],
  [MEDIAWIKI, '/index.php?title=A', '/index.php/A', ''],
  [MEDIAWIKI, '/index.php?action=submit&title=A&token=s3cret', '/index.php/A', ''],
  [MEDIAWIKI, '/index.php/A', '/index.php/A', ''],
  [MEDIAWIKI, '/index.php/A?action=history', '/index.php/A', ''],
  [MEDIAWIKI, '/index.php?title=Talk:A%2FB', '/index.php/Talk:A/B', ''],
  [MEDIAWIKI, '/index.php/Talk%3AA/B', '/index.php/Talk:A/B', ''],
  [MEDIAWIKI, "/index.php/It's", "/index.php/It's", ''],
  [MEDIAWIKI, '/index.php?title=It%27s', "/index.php/It's", ''],
  [MEDIAWIKI, '/index.php?title=C%2B%2B', '/index.php/C%2B%2B', ''],
  [MEDIAWIKI, '/index.php?title=A+B', '/index.php/A%20B', ''],
  [MEDIAWIKI, '/index.php?title=%C3%84', '/index.php/%C3%84', ''],
  [MEDIAWIKI, '/index.php?title=a%3Fb%23c', '/index.php/a%3Fb%23c', ''],
  [MEDIAWIKI, '/index.php?title=', '/index.php', '?title='],
  [MEDIAWIKI, '/index.php', '/index.php', ''],
  [MEDIAWIKI, '/index.php/', '/index.php/', ''],
  [MEDIAWIKI, '/index.php/%FF', '/index.php/%FF', ''],
  [WORDPRESS, '/wp-json/wp/v2/posts/7?_locale=user', '/?p=7', ''],
  [
    WORDPRESS,
    '/index.php?rest_route=%2Fwp%2Fv2%2Fposts%2F7',
    '/index.php',
    '?rest_route=%2Fwp%2Fv2%2Fposts%2F7',
  ],
  [WORDPRESS, '/?rest_route=%2Fwp%2Fv2%2Fposts%2F7', '/?p=7', ''],
  [WORDPRESS, '/?preview=true&p=7', '/?p=7', ''],
  [WORDPRESS, '/wp-admin/post.php?post=7&action=edit&message=1', '/wp-admin/post.php?post=7', ''],
  [WORDPRESS, '/wp-admin/post.php', '/wp-admin/post.php', ''],
  [
    [{ topic: '/{page}', forms: ['/?page={page}'] }],
    '/?page=/evil.example/x',
    '//evil.example/x',
    '',
  ],
  [[{ topic: '/v/{id}', forms: ['/{any}-{id}.html'] }], '/a-b-7.html', '/v/b-7', ''],
  [
    [
      { topic: '/b', forms: ['/a'] },
      { topic: '/c', forms: ['/b'] },
    ],
    '/a',
    '/b',
    '',
  ],
  [[{ topic: '/a{x}a', forms: [] }], '/aa', '/aa', ''],
];

describe('the topic of a page', () => {
  it('is the same for the gateway, which announces it, and for the browser, which subscribes to it', () => {
    for (const [aliases, path, topic, query] of CASES) {
      const expected = { topic: `https://example.com${topic}`, mark: mark(query) };
      const url = new URL(`https://example.com${path}`);
      assert.deepEqual(gateway(aliases)(url), expected, `gateway: ${path}`);
      assert.deepEqual(browser(aliases)(url), expected, `browser: ${path}`);
    }
  });

  it('is not changed by computing it again', () => {
    for (const [aliases, path] of CASES) {
      if (aliases.length > 1 && path === '/a') continue;
      const topicOf = gateway(aliases);
      const { topic } = topicOf(new URL(`https://example.com${path}`));
      assert.equal(topicOf(new URL(topic)).topic, topic);
    }
  });

  it('contains eight bits of a query that no alias names', () => {
    assert.match(mark('?title=A'), /^[0-9a-f]{2}$/);
    assert.equal(queryMark('?title=A'), mark('?title=A'));
    const marks = Array.from({ length: 5000 }, (_, index) => mark(`?title=${index}`));
    assert.ok(new Set(marks).size <= 256);
    assert.ok(new Set(marks).size > 200);
  });

  it('is computed in linear time, however often a form repeats itself', () => {
    const aliases = [{ topic: '/x', forms: [`/${'{a}b'.repeat(20)}{z}c`] }];
    const url = new URL(`https://example.com/${'b'.repeat(50_000)}`);
    assert.equal(gateway(aliases)(url).topic, url.href);
  });
});
