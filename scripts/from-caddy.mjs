// The tables of docs/from-caddy.md: each word of a Caddyfile, and whether hubgate has it. What is
// refused is told with the hint that the reader gives; a word without one fails. Used by directive-tables.mjs.
import { read } from '../src/hubfile/load.ts';
import { places, words } from './caddy-words.mjs';

const REFUSED = /^(?:unsupported|unknown)-/;

/** The page with its tables. */
export function fromCaddy(text) {
  const [begin, end] = ['<!-- words: generated -->', '<!-- end of words -->'];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from === -1 || to < from) throw new Error(`docs/from-caddy.md lacks ${begin} … ${end}`);
  return `${text.slice(0, from)}${begin}\n\n${tables()}\n\n${text.slice(to)}`;
}

function tables() {
  return Object.entries(words)
    .map(([place, list]) => {
      const rows = list
        .trim()
        .split('\n')
        .map((line) => row(place, line));
      return [`### ${place}`, '', '| Caddy | hubgate |', '|---|---|', ...rows].join('\n');
    })
    .join('\n\n');
}

function row(place, line) {
  const [word, ...rest] = line.split(': ');
  const note = rest.join(': ');
  const refusal = refusalOf(place, word);
  if (refusal === null) return `| \`${word}\` | ${note === '' ? 'the same' : cell(note)} |`;
  const instead = note === '' ? refusal : note;
  if (instead === undefined) {
    throw new Error(`${place}: nothing is said to who writes ${word}`);
  }
  return `| \`${word}\` | no: ${cell(instead)} |`;
}

function cell(text) {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

/** The hint for a word that hubgate has not; null for one that it has. */
function refusalOf(place, word) {
  // A snippet is what any import needs.
  if (word === 'import') return null;
  const text = places[place](word);
  const io = { read: () => Buffer.from(text), glob: () => [], env: {} };
  const { problems } = read('Hubfile', io, 'hubfile');
  const found = problems.find(
    ({ code, message }) =>
      REFUSED.test(code) && message.includes(word) && code !== 'unknown-matcher',
  );
  if (found === undefined) return null;
  return found.code.startsWith('unsupported-') ? found.hint : undefined;
}
