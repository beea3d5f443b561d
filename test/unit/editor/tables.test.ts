import { directiveTable } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Entry, type Table, tables } from '../../../editors/vscode/src/tables.ts';
import { isPlaceholder } from '../../../src/site/placeholder-names.ts';
import { Cursor, type OptionTable } from '../../../src/hubfile/cursor.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { read } from '../../../src/hubfile/load.ts';

const golden = join(dirname(fileURLToPath(import.meta.url)), '../../hubfile');

/** Spellings that only a Caddyfile needs. */
const OLD_SPELLINGS = new Set(['tls_trusted_ca_certs', 'trusted_ca_cert_file', 'pem_file']);

/** Options that are read before the table of the block is asked, and providers that no case has. */
const READ_APART = new Set(['forward_auth', 'php_fastcgi', 'acme_dns']);

/** The options that the program has read blocks with, by the word that the block belongs to. */
function optionsOfTheProgram(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const { options } = Cursor.prototype;
  Cursor.prototype.options = function <Settings extends object>(
    this: Cursor,
    start: Settings,
    table: OptionTable<NoInfer<Settings>>,
    rules?: Parameters<typeof options>[2],
  ): Settings {
    const names = found.get(this.name) ?? new Set();
    for (const [name, setter] of Object.entries(table)) {
      if (setter !== undefined) names.add(name);
    }
    found.set(this.name, names);
    return Reflect.apply(options, this, [start, table, rules]);
  };
  try {
    for (const file of readdirSync(golden, { recursive: true, encoding: 'utf8' })) {
      if (file.endsWith('.hubfile')) read(join(golden, file), diskIo({}), directiveTable);
    }
  } finally {
    Cursor.prototype.options = options;
  }
  return found;
}

/** The options that the tables have below each word. */
function optionsOfTheTables(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const add = (name: string, table: Table): void => {
    const names = found.get(name) ?? new Set();
    found.set(name, names);
    for (const [option, entry] of Object.entries(table)) {
      names.add(option);
      visit(option, entry);
    }
  };
  const visit = (name: string, { options, variants = {} }: Entry): void => {
    for (const table of [options ?? {}, ...Object.values(variants)]) add(name, table);
  };
  for (const [name, entry] of Object.entries(tables.directives)) visit(name, entry);
  for (const [name, entry] of Object.entries(tables.conditions)) visit(name, entry);
  add('the global options', tables.globals);
  return found;
}

describe('the tables of the language in the editor', () => {
  const program = optionsOfTheProgram();
  const editor = optionsOfTheTables();

  it('include every option that the program reads', () => {
    assert.ok(program.size > 25, `blocks of ${[...program.keys()].join()}`);
    const missing = [...program].flatMap(([name, options]) =>
      [...options]
        .filter((option) => editor.get(name)?.has(option) !== true && !OLD_SPELLINGS.has(option))
        .map((option) => `${name} ${option}`),
    );
    assert.deepEqual(
      // Matchers, and fields of a log, have names of their own.
      missing.filter((each) => !/^@|^\S+>/.test(each)),
      [],
    );
  });

  it('include no option that the program would refuse', () => {
    const unknown = [...editor].flatMap(([name, options]) => {
      const known = program.get(name);
      if (known === undefined || READ_APART.has(name)) return [];
      return [...options].filter((option) => !known.has(option)).map((each) => `${name} ${each}`);
    });
    assert.deepEqual(unknown, []);
  });

  it('include only existing placeholders', () => {
    for (const { text } of tables.placeholders) {
      if (text.startsWith('{$')) continue;
      const name = text.slice(1, -1).replace(/(?<=^(?:path|labels)\.|\.)N$/, '1');
      assert.ok(isPlaceholder(name), text);
    }
  });

  it('link to headings of docs/hubfile.md', () => {
    const page = readFileSync(join(golden, '../../docs/hubfile.md'), 'utf8').toLowerCase();
    const all = [tables.directives, tables.globals, tables.conditions];
    for (const { section } of all.flatMap((table) => Object.values(table))) {
      assert.match(page, new RegExp(`^##+ ${section}$`, 'm'), section);
    }
  });
});
