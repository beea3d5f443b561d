// What the directives and matchers say of themselves, where it is needed outside of the program: the
// tables and sections of docs/hubfile.md, the differences in docs/from-caddy.md, and the editor's grammar, completion and hover. `--check` fails
// when one of them is not up to date. Run with: node --conditions=hubgate-source --import ./scripts/typescript.mjs
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { configSchema } from '../src/config/serialize.ts';
import { directives as registered, directiveTable, registry } from '../src/directives/registry.ts';
import { globalUsage } from '../src/hubfile/global-usage.ts';
import { editorTables } from './editor-tables.mjs';
import { fromCaddy } from './from-caddy.mjs';
import { root } from './install.mjs';

const syntaxesOf = (entries) =>
  Object.fromEntries(Object.entries(entries).map(([name, { syntax }]) => [name, syntax]));
const directives = syntaxesOf(registered);
const conditions = syntaxesOf(registry.matchers);
const names = Object.keys(directives).sort();
const written = {
  'docs/hubfile.md': page,
  'docs/from-caddy.md': fromCaddy,
  'editors/vscode/syntaxes/hubfile.tmLanguage.json': grammar,
  'editors/vscode/snippets/hubfile.json': snippets,
  // After the page, of which it has the tables.
  'editors/vscode/tables.json': tables,
  // Of the package, and of the extension, which holds what it names.
  'schema/config.schema.json': schema,
  'editors/vscode/schemas/config.schema.json': schema,
};
let stale = 0;
for (const [file, render] of Object.entries(written)) {
  const path = join(root, file);
  const before = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const after = render(before);
  if (after === before) continue;
  stale += 1;
  if (process.argv.includes('--check')) {
    console.error(`${file} is out of date: npm run directive-tables`);
  } else {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, after);
    console.error(`wrote ${file}`);
  }
}
process.exitCode = process.argv.includes('--check') && stale > 0 ? 1 : 0;

function page(text) {
  const parts = {
    matchers: matchers(),
    order: order(),
    directives: [table(text), ...sections()].join('\n\n'),
  };
  return Object.entries(parts).reduce((sofar, [part, content]) => {
    const [begin, end] = [`<!-- ${part}: generated -->`, `<!-- end of ${part} -->`];
    const [from, to] = [sofar.indexOf(begin), sofar.indexOf(end)];
    if (from === -1 || to < from) throw new Error(`docs/hubfile.md lacks ${begin} … ${end}`);
    return `${sofar.slice(0, from)}${begin}\n${content}\n${sofar.slice(to)}`;
  }, text);
}

function order() {
  const steps = directiveTable.places.map((place) =>
    place.map((name) => `\`${name}\``).join(' or '),
  );
  return wrapped(`${steps.join(', ')}.`);
}

/** Lines of at most 100 characters; no word is broken. */
function wrapped(text) {
  return text.replaceAll(/(?=.{101})(.{1,100})(?: |$)/g, '$1\n').trimEnd();
}

function table(text) {
  const rows = names.map((name) => {
    const { summary } = directives[name];
    const hasSection = docsOf(name) !== null || new RegExp(`^##+ ${name}$`, 'im').test(text);
    return `| ${hasSection ? `[\`${name}\`](#${name})` : `\`${name}\``} | ${summary} |`;
  });
  return ['', '| directive | |', '|---|---|', ...rows].join('\n');
}

function matchers() {
  const rows = Object.values(conditions).map(({ usage, summary }) => {
    const forms = usage.split('\n').map((form) => `\`${form.replaceAll('|', '\\|')}\``);
    return `| ${forms.join(', ')} | ${summary} |`;
  });
  return ['', '| condition | holds for |', '|---|---|', ...rows, ''].join('\n');
}

function sections() {
  return names.flatMap((name) => {
    const docs = docsOf(name);
    return docs === null ? [] : [`### ${name}\n\n${docs.trim()}`];
  });
}

/** A directive's section is beside it, or in its folder, unless a part of the page is about it. */
function docsOf(name) {
  const place = join(root, 'src/directives', name.replaceAll('_', '-'));
  const path = [`${place}.md`, join(place, 'docs.md')].find((one) => existsSync(one));
  return path === undefined ? null : readFileSync(path, 'utf8');
}

function grammar(text) {
  const data = JSON.parse(text);
  const [directive] = data.repository.directive.patterns;
  directive.match = `^\\s*(${names.join('|')})(?=\\s|$)`;
  // `status` is a condition of what an upstream answers.
  const known = [...Object.keys(conditions), 'status'].join('|');
  data.repository['matcher-definition'].match = `^\\s*(@[^\\s{}]+)(?:\\s+(${known})\\b)?`;
  return `${JSON.stringify(data, null, 2)}\n`;
}

function tables() {
  const data = editorTables(readFileSync(join(root, 'docs/hubfile.md'), 'utf8'), {
    ...{ globalUsage, directives, conditions },
    order: directiveTable.places.flat(),
  });
  return `${JSON.stringify(data, null, 1)}\n`;
}

function schema() {
  return `${JSON.stringify(configSchema(registry), null, 2)}\n`;
}

function snippets() {
  const entries = names.map((name) => [
    name,
    {
      prefix: name,
      body: `${name} $0`,
      description: `${directives[name].summary}\n\n${directives[name].usage.trim()}`,
    },
  ]);
  const matchers = Object.entries(conditions).map(([name, { usage, summary }]) => [
    `@${name}`,
    {
      prefix: `@${name}`,
      body: `@\${1:name} ${name} $0`,
      description: `a matcher that holds for ${summary}\n\n${usage}`,
    },
  ]);
  return `${JSON.stringify(Object.fromEntries([...entries, ...matchers]), null, 2)}\n`;
}
