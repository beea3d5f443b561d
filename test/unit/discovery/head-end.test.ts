import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { HeadEnd, MAX_MARKUP } from '../../../src/discovery/head-end.ts';

/** The document with `|` where the head ends, read in pieces of a size; as it is for a fragment. */
function marked(text: string, size: number): string {
  const bytes = Buffer.from(text, 'utf8');
  const head = new HeadEnd();
  let held = Buffer.alloc(0);
  let offset = 0;
  for (let at = 0; at <= bytes.length; at += size) {
    const isLast = at + size >= bytes.length;
    const piece = Buffer.concat([held, bytes.subarray(at, at + size)]);
    const found = head.scan(piece, isLast);
    if (found.kind === 'fragment') return text;
    if (found.kind === 'end') {
      const end = offset + found.at;
      return `${bytes.toString('utf8', 0, end)}|${bytes.toString('utf8', end)}`;
    }
    held = Buffer.from(piece.subarray(found.from));
    offset += found.from;
    if (isLast) break;
  }
  return text;
}

const DOCUMENTS = [
  '<!doctype html><html><head><title>x</title>|</head><body>y</body></html>',
  '<!DOCTYPE html>\n<HTML><HEAD>|</HEAD>',
  '\ufeff<html><head>|</head>',
  '<html>|<body>no head',
  '<!doctype html><title>x</title>|<p>no head tags',
  '<!doctype html><title>x</title>\n |text',
  '<head><title></head></title>|</head>',
  '<head><title>a < b </titles> </title>|</head>',
  '<head><!-- </head> -->|</head>',
  '<head><!-->|</head>-->',
  '<head><!--->|</head>',
  '<head><!-- --!>|</head>',
  '<head><!-- --!!> </head> -->|</head>',
  '<head><!-- --!-> </head> -->|</head>',
  '<head><!-- --!-->|</head>',
  '<head><!--!> </head> -->|</head>',
  '<head><!---!> </head> -->|</head>',
  '<head><!----!>|</head>',
  '<head><!-- - -- > -- -->|</head>',
  '<head><script>"</head>"; a </ b</script>|</head>',
  '<head><script><!-- <script> </script> </head> --></script>|</head>',
  '<head><script><!-- </script>|</head> -->',
  '<head><script><!-- <script> </script> </script>|</head>',
  '<head><style></head></style>|</head>',
  '<head><noscript></head></noscript>|</head>',
  '<head><meta content="</head>"><meta content=\'</head>\'>|</head>',
  '<head><meta content = "a>b" x=">">|</head>',
  '<head><link href=a"b rel="x">|</head>',
  '<head><meta ="a>|b</head>',
  '<head><template><p></head></p><textarea></template></textarea></template>|</head>',
  '<head><template><template></template></head></template>|</head>',
  '<head></unknown><link>|</head>',
  '<!doctype html><title>x</title>|',
  '<html>|',
  '<html><head>|<div>',
  '<html></>|a',
  '<?xml version="1.0"?><!DOCTYPE html><html><head>|</head>',
  '<html><head>|< /head>',
];

const FRAGMENTS = [
  '',
  'text',
  '<p>one</p><html><head></head>',
  '<div><head></head></div>',
  '<title>x</title><p>a fragment of a page</p>',
  '<li>one</li>',
  '<!-- only --><tr></tr>',
  '<script>a</script>',
  '<html><head><script>never closed</head>',
  '<html><head><!-- never closed </head>',
  '{"html": "<html><head></head>"}',
];

describe('the end of a document head', () => {
  it('is searched for in a limited number of tags, then the page is left unchanged', () => {
    const tags = (count: number): string => `<head>${'<meta>'.repeat(count)}</head>`;
    assert.match(marked(tags(MAX_MARKUP - 2), 65_536), /\|<\/head>$/);
    assert.doesNotMatch(marked(tags(MAX_MARKUP), 65_536), /\|/);
    // In a script only what may end it counts.
    const script = (text: string): string => `<head><script>${text}</script></head>`;
    assert.match(marked(script('a < b <c '.repeat(MAX_MARKUP)), 65_536), /\|<\/head>$/);
    assert.doesNotMatch(marked(script('</'.repeat(MAX_MARKUP)), 65_536), /\|/);
  });

  for (const text of [...DOCUMENTS, ...FRAGMENTS]) {
    it(`is found in ${JSON.stringify(text)}, however it is split`, () => {
      const plain = text.replaceAll('|', '');
      for (const size of [1, 2, 3, 7, 13, 1000]) assert.equal(marked(plain, size), text, `${size}`);
    });
  }

  it('is the same however a document is split', () => {
    const piece = fc.constantFrom(
      ...'<head>|</head>|<html>|<!doctype html>|<title>|</title>|<!--|-->|<script>|</script>|"|\'|=|>|<|/|a| |é|<meta a="|<p>|<template>|</template>'.split(
        '|',
      ),
    );
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 30 }),
        fc.integer({ min: 1, max: 20 }),
        (parts, size) => {
          const text = `<html>${parts.join('')}`;
          assert.equal(marked(text, size), marked(text, 10_000));
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
