// What the cases of test/caddy prove: which words and placeholders of a Caddyfile stand in a case whose
// answers are the same in both programs, and which differences cases show. Used by from-caddy.mjs, so
// that docs/from-caddy.md says "the same" of nothing that no case compares.
import { directiveTable } from '../src/directives/registry.ts';
import { caddyWords } from '../src/hubfile/caddy-differences.ts';
import { writtenLines } from '../src/hubfile/written-lines.ts';
import { isPlaceholder } from '../src/site/placeholder-names.ts';
import { readCases } from '../test/caddy/cases.ts';

/** A directive or option, with the word that says of which kind it is. */
export function nameOf(line) {
  return /^(?:(?:transport|dynamic|issuer|output) \w+|\w+)/.exec(line)?.[0] ?? line;
}

/** `Directives respond`, `reverse_proxy to`: each word with the title of its table. */
export function provenWords() {
  const proven = new Set();
  for (const one of readCases()) {
    if (one.verdict.kind === 'same') for (const word of wordsOf(one)) proven.add(word);
  }
  return proven;
}

function wordsOf({ text, isWhole }) {
  const whole = isWhole ? text : `:80 {\n${text}}\n`;
  const words = caddyWords(writtenLines(whole, directiveTable));
  return words.map(({ title, name }) => `${title} ${name}`);
}

const PLACEHOLDER = /\{(\$?[A-Za-z_?][\w.$:-]*)\}/g;

/** Names of placeholders, those of one family as `header.*`. */
export function provenPlaceholders() {
  const names = readCases()
    .filter(({ verdict }) => verdict.kind === 'same')
    .flatMap(({ text }) => [...text.matchAll(PLACEHOLDER)].map((match) => match[1]))
    .map((name) => name.replace(/^(\$)\w+/, '$1VAR').replace(/(?<=^\$VAR):.*/, ':default'))
    .map((name) =>
      name.replace(
        /((?:^|\.)(?:header|cookie|vars|re|regexp|labels|query|path|env)\.)[^.]+(?:\.\w+)?$/,
        '$1*',
      ),
    );
  const isKnown = (name) => name.startsWith('$') || isPlaceholder(name.replace('*', '0'));
  return [...new Set(names)].filter(isKnown).sort();
}

/** What a case shows to differ: the text of the case, and why. */
export function differences() {
  return readCases().flatMap(({ file, title, verdict }) =>
    verdict.kind === 'different'
      ? [{ about: `${file.replace('.cases', '')}: ${title}`, why: verdict.why }]
      : [],
  );
}
