import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parseSync } from 'oxc-parser';
import { root } from '../../support/process.ts';

/** What pages and messages do not say, and what they say instead: docs/contributing.md, "Words". */
const AVOIDED: readonly (readonly [pattern: RegExp, instead: string])[] = [
  [
    /(?<!\b[Tt]here )\b(?:is|was) no (?!longer\b|such\b|other\b|more\b|need\b|less\b|when\b)\w/,
    'is not a …',
  ],
  [/\banew\b/, 'again'],
  [/\bturned away\b/, 'rejected'],
  [/\b(?:is|are) let go\b/, 'is closed'],
  [/\bmend(?:s|ed|ing)?\b/, 'fix'],
  [/\bthe cure\b/, 'the fix'],
  [/\b(?:is|are) told\b/, 'is notified, is logged, gets'],
  [/\bbroken off\b/, 'aborted'],
  [/\bwhoever\b/, 'anyone who'],
  [/\btaken off\b/, 'removed'],
  [/\btells of\b/, 'reports'],
];

describe('words', () => {
  const pages = [
    'README.md',
    ...within('docs').filter((name) => name.endsWith('.md')),
    ...within('src/directives').filter((name) => name.endsWith('.md')),
  ];
  for (const page of pages) {
    it(`${page} reads as plain English`, () => {
      // The list of words itself.
      const [text = ''] = readFileSync(join(root, page), 'utf8').split('\n## Words\n');
      assert.deepEqual(
        text.split('\n').flatMap((line, index) => found(line, `${page}:${index + 1}`)),
        [],
      );
    });
  }

  it('messages read as plain English', () => {
    const sources = within('src').filter((name) => name.endsWith('.ts'));
    const texts = sources.flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8');
      return textsIn(parseSync(file, text).program).flatMap((each) => found(each, file));
    });
    assert.deepEqual(texts, []);
  });
});

function found(text: string, place: string): string[] {
  return AVOIDED.filter(([pattern]) => pattern.test(text)).map(
    ([, instead]) => `${place}: ${text.trim()} (write: ${instead})`,
  );
}

function within(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
    join(folder, name),
  );
}

/** The texts of a program: of literals, and what stands between the values of templates. */
function textsIn(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return [];
  if (Array.isArray(node)) return node.flatMap(textsIn);
  const { type, value }: { type?: unknown; value?: unknown } = node;
  if (type === 'Literal') return typeof value === 'string' ? [value] : [];
  if (type === 'TemplateElement') {
    const { cooked }: { cooked?: unknown } = Object(value);
    return typeof cooked === 'string' ? [cooked] : [];
  }
  return Object.values(node).flatMap(textsIn);
}
