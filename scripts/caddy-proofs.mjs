// What the cases of test/caddy prove: which words and placeholders of a Caddyfile stand in a case whose
// answers are the same in both programs, and which differences cases show. Used by from-caddy.mjs, so
// that docs/from-caddy.md says "the same" of nothing that no case compares.
import { isPlaceholder } from '../src/site/placeholder-names.ts';
import { readCases } from '../test/caddy/cases.ts';

/** Directives whose blocks hold directives. */
const HOLDERS = new Set([
  'handle',
  'handle_path',
  'handle_errors',
  'handle_response',
  'intercept',
  'route',
]);

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
  const words = [];
  const heads = [];
  let isOptions = false;
  for (const line of text.split('\n').map((each) => each.trim())) {
    if (line === '}') {
      heads.pop();
      if (heads.length === 0) isOptions = false;
      continue;
    }
    if (line === '' || line.startsWith('#')) continue;
    const opens = line.endsWith('{');
    const isHead = isWhole && heads.length === 0;
    if (isHead) {
      isOptions = line === '{';
      if (opens) heads.push({ kind: 'site' });
      continue;
    }
    const [first = '', ...rest] = line.split(/\s+/);
    const outer = heads.at(-1);
    if (first.startsWith('@') && outer?.kind !== 'options') {
      for (const name of matcherNames(rest)) words.push(`Matchers ${name}`);
      if (opens) heads.push({ kind: 'matcher' });
      continue;
    }
    if (outer?.kind === 'matcher') {
      for (const name of matcherNames([first, ...rest])) words.push(`Matchers ${name}`);
      if (opens) heads.push({ kind: 'matcher' });
      continue;
    }
    const names = heads.flatMap(({ name }) => (name === undefined ? [] : [name]));
    if (outer?.kind === 'options')
      words.push(`${isOptions ? 'Global option ' : ''}${names.join(', ')} ${first}`);
    else words.push(`${isOptions ? 'Global options' : 'Directives'} ${first}`);
    if (!opens) continue;
    heads.push(HOLDERS.has(first) ? { kind: 'site' } : { kind: 'options', name: nameOf(line) });
  }
  return words;
}

/** `not path` names two. */
function matcherNames([first = '', ...rest]) {
  if (/^[`"]/.test(first)) return ['expression'];
  if (first === '' || first === '{') return [];
  return first === 'not' ? ['not', ...matcherNames(rest)] : [first];
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
