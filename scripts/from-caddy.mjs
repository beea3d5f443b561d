// The tables of docs/from-caddy.md: each word of a Caddyfile, and whether hubgate has it. "The same" is
// only what a case of test/caddy compares. What is
// refused is told with the hint that the reader gives; a word without one fails, and so does a note
// of what there is not. Used by directive-tables.mjs.
import { directiveTable } from '../src/directives/registry.ts';
import { read } from '../src/hubfile/load.ts';
import { CADDY_NAMES } from '../test/unit/directives/caddy-names.ts';
import { caddyNotes, caddyPlaceholderNotes } from '../src/hubfile/caddy-notes.ts';
import { differences, nameOf, provenPlaceholders, provenWords } from './caddy-proofs.mjs';

const REFUSED = /^(?:unsupported|unknown)-/;

/** The page with its tables. */
export function fromCaddy(text) {
  const parts = { placeholders: placeholders(), words: `${shown()}\n\n${tables()}` };
  return Object.entries(parts).reduce((sofar, [part, content]) => {
    const [begin, end] = [`<!-- ${part}: generated -->`, `<!-- end of ${part} -->`];
    const [from, to] = [sofar.indexOf(begin), sofar.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`docs/from-caddy.md lacks ${begin} … ${end}`);
    return `${sofar.slice(0, from)}${begin}\n\n${content}\n\n${sofar.slice(to)}`;
  }, text);
}

/** Placeholders that have another value here. */
function placeholders() {
  const rows = caddyPlaceholderNotes.map(({ names, text }) => `| ${names} | ${text} |`);
  return ['| Caddy | hubgate |', '|---|---|', ...rows].join('\n');
}

/** What the comparison shows, beside the words. */
function shown() {
  const reasons = new Map();
  for (const { about, why } of differences()) {
    reasons.set(why, [...(reasons.get(why) ?? []), about]);
  }
  const rows = [...reasons].map(([why, cases]) => `| ${cell(cases.join('; '))} | ${cell(why)} |`);
  const placeholders = provenPlaceholders().map((name) => `\`{${name}}\``);
  return [
    '### Differences that a comparison shows',
    '',
    '| case | hubgate |',
    '|---|---|',
    ...rows,
    '',
    '### Placeholders with the same value',
    '',
    placeholders.join(' '),
  ].join('\n');
}

const proven = provenWords();

function tables() {
  const places = CADDY_NAMES.map(([template, names]) => [titleOf(template), template, names]);
  const titles = new Map(places.map(([title, , names]) => [title, names.split(/\s+/)]));
  for (const [title, own] of Object.entries(caddyNotes)) {
    const stray = Object.keys(own).find((name) => titles.get(title)?.includes(name) !== true);
    if (stray !== undefined) throw new Error(`caddy-notes.ts: no ${stray} in ${title}`);
  }
  return places
    .map(([title, template, names]) => {
      const rows = names
        .split(/\s+/)
        .sort()
        .map((name) => row(title, template, name));
      return [`### ${title}`, '', '| Caddy | hubgate |', '|---|---|', ...rows].join('\n');
    })
    .join('\n\n');
}

/** Where the word of a template stands: the directives or options around it. */
function titleOf(template) {
  const [first, ...rest] = template.slice(0, template.indexOf('$')).split('\n');
  const isOptions = first === '{';
  const heads = rest.filter((line) => line.endsWith('{')).map((line) => nameOf(line));
  if (heads.length > 0) return `${isOptions ? 'Global option ' : ''}${heads.join(', ')}`;
  if (isOptions) return 'Global options';
  return template.includes('@name') ? 'Matchers' : 'Directives';
}

function row(title, template, name) {
  const note = caddyNotes[title]?.[name]?.text;
  const { refusal, ignored } = verdictOn(template, name);
  if (ignored !== undefined) return `| \`${name}\` | ignored with a warning: ${cell(ignored)} |`;
  if (refusal === null) {
    const isProven = proven.has(`${title} ${name}`);
    return `| \`${name}\` | ${cell(sayingOf(note ?? 'the same', isProven))} |`;
  }
  const instead = note ?? refusal;
  if (instead === undefined) throw new Error(`${title}: nothing is said to who writes ${name}`);
  return `| \`${name}\` | no: ${cell(instead)} |`;
}

/** Says "the same" only of what a case compares. */
function sayingOf(note, isProven) {
  if (isProven) return note;
  return note.replace(/^the same/, 'supported; not compared');
}

function cell(text) {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

/**
 * What hubgate says to a word: why it ignores it, or the hint if it refuses it. The hint is null for a word that
 * hubgate has, and undefined for one that it does not know.
 */
function verdictOn(template, name) {
  const io = { read: () => Buffer.from(template.replace('$', name)), glob: () => [], env: {} };
  const { problems } = read('Hubfile', io, directiveTable, 'hubfile');
  // A block that is not read must not make the page say that its options are there.
  const unread = problems.find(({ code }) => code === 'unexpected-block');
  if (unread !== undefined) throw new Error(`${name}: ${unread.message}`);
  const found = problems.find(
    ({ code, message }) =>
      REFUSED.test(code) && code !== 'unknown-matcher' && message.includes(name),
  );
  const ignored = problems.find(({ code }) => code === 'no-effect')?.hint;
  if (found === undefined) return { refusal: null, ignored };
  return { refusal: found.code.startsWith('unsupported-') ? found.hint : undefined };
}
