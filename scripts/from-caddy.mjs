// The tables of docs/from-caddy.md: each word of a Caddyfile, and whether hubgate has it. What is
// refused is told with the hint that the reader gives; a word without one fails, and so does a note
// of what there is not. Used by directive-tables.mjs.
import { directiveTable } from '../src/directives/registry.ts';
import { read } from '../src/hubfile/load.ts';
import { CADDY_NAMES } from '../test/unit/directives/caddy-names.ts';
import { notes } from './caddy-notes.mjs';

const REFUSED = /^(?:unsupported|unknown)-/;

/** The page with its tables. */
export function fromCaddy(text) {
  const [begin, end] = ['<!-- words: generated -->', '<!-- end of words -->'];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from === -1 || to < from) throw new Error(`docs/from-caddy.md lacks ${begin} … ${end}`);
  return `${text.slice(0, from)}${begin}\n\n${tables()}\n\n${text.slice(to)}`;
}

function tables() {
  const places = CADDY_NAMES.map(([template, names]) => [titleOf(template), template, names]);
  const titles = new Map(places.map(([title, , names]) => [title, names.split(/\s+/)]));
  for (const [title, own] of Object.entries(notes)) {
    const stray = Object.keys(own).find((name) => titles.get(title)?.includes(name) !== true);
    if (stray !== undefined) throw new Error(`caddy-notes.mjs: no ${stray} in ${title}`);
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

/** A directive or option, with the word that says of which kind it is. */
function nameOf(line) {
  return /^(?:(?:transport|dynamic|issuer|output) \w+|\w+)/.exec(line)?.[0] ?? line;
}

function row(title, template, name) {
  const note = notes[title]?.[name];
  const refusal = refusalOf(template, name);
  if (refusal === null) return `| \`${name}\` | ${cell(note ?? 'the same')} |`;
  const instead = note ?? refusal;
  if (instead === undefined) throw new Error(`${title}: nothing is said to who writes ${name}`);
  return `| \`${name}\` | no: ${cell(instead)} |`;
}

function cell(text) {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

/** The hint for a word that hubgate has not; null for one that it has. */
function refusalOf(template, name) {
  const io = { read: () => Buffer.from(template.replace('$', name)), glob: () => [], env: {} };
  const { problems } = read('Hubfile', io, directiveTable, 'hubfile');
  const found = problems.find(
    ({ code, message }) =>
      REFUSED.test(code) && code !== 'unknown-matcher' && message.includes(name),
  );
  if (found === undefined) return null;
  return found.code.startsWith('unsupported-') ? found.hint : undefined;
}
