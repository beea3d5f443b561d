// docs/protocol.md maps every number of the behaviour catalogue to the tests that hold it, by the
// numbers in their titles (`A-17`). `--check` fails when the page is not up to date, or when a
// number has neither a test nor a sentence in docs/protocol-notes.json that says why.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './install.mjs';

const SECTIONS = [
  ['A', 'Publish', 1, 107],
  ['B', 'Subscribe', 108, 217],
  ['C', 'Tokens', 218, 316],
  ['D', 'Authorization', 317, 347],
  ['E', 'Subscription events and API', 348, 396],
  ['F', 'Metadata and challenges', 397, 424],
  ['G', 'Matching', 425, 455],
  ['H', 'Configuration', 456, 515],
  ['I', 'Token-minting command', 516, 544],
  ['J', 'Legacy 0.x compatibility', 545, 577],
  ['K', 'Storage, operations, UI', 578, 608],
];
const page = join(root, 'docs', 'protocol.md');
const notes = JSON.parse(readFileSync(join(root, 'docs', 'protocol-notes.json'), 'utf8'));
const tests = testsByNumber();
const missing = [];
const text = render();

if (process.argv.includes('--check')) {
  for (const number of missing) console.error(`no test and no note for catalogue item ${number}`);
  const stale = readFileSync(page, 'utf8') !== text;
  if (stale) console.error('docs/protocol.md is out of date: node scripts/protocol-map.mjs');
  process.exit(missing.length > 0 || stale ? 1 : 0);
}
writeFileSync(page, text);
console.error(`${tests.size} numbers have a test, ${missing.length} have neither test nor note`);

/** What stands before the first section is written by hand. */
function render() {
  const [written] = readFileSync(page, 'utf8').split(`\n## ${SECTIONS[0][0]}. `);
  const lines = [written.trimEnd()];
  for (const [letter, title, first, last] of SECTIONS) {
    lines.push('', `## ${letter}. ${title}`, '', '| item | tests |', '|---|---|');
    for (let number = first; number <= last; number += 1) {
      const item = `${letter}-${number}`;
      const files = [...(tests.get(number) ?? [])].map((file) => `\`${file}\``);
      const note = notes[item];
      if (files.length === 0 && note === undefined) missing.push(item);
      lines.push(`| ${item} | ${[...files, ...(note === undefined ? [] : [note])].join('; ')} |`);
    }
  }
  return `${lines.join('\n')}\n`;
}

/** Number → files with a test title that names it. `A-38–57` and `A-38–A-57` name all between. */
function testsByNumber() {
  const found = new Map();
  const note = (number, file) => {
    if (!found.has(number)) found.set(number, new Set());
    found.get(number).add(file);
  };
  const names = readdirSync(join(root, 'test'), { recursive: true }).map(String);
  for (const name of names.sort((a, b) => (a < b ? -1 : 1))) {
    if (!name.endsWith('.test.ts')) continue;
    const source = readFileSync(join(root, 'test', name), 'utf8');
    for (const [, first, last] of source.matchAll(
      /(?<![A-Za-z0-9])[A-K]-(\d{1,3})(?:\s?[–…]\s?(?:[A-K]-)?(\d{1,3}))?(?!\d)/g,
    )) {
      for (let n = Number(first); n <= Number(last ?? first); n += 1) note(n, `test/${name}`);
    }
  }
  return found;
}
