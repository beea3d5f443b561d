import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { directives } from '../../../src/directives/registry.ts';

const extension = join(dirname(fileURLToPath(import.meta.url)), '../../../editors/vscode');

interface Rule {
  readonly name?: string;
  readonly match?: string;
  readonly begin?: string;
  readonly end?: string;
  readonly include?: string;
  readonly patterns?: readonly Rule[];
  readonly captures?: Readonly<Record<string, Rule>>;
}

interface Manifest {
  readonly contributes: {
    readonly languages: readonly { readonly configuration: string }[];
    readonly grammars: readonly { readonly path: string; readonly scopeName: string }[];
  };
}

interface Grammar {
  readonly scopeName: string;
  readonly patterns: readonly Rule[];
  readonly repository: Readonly<Record<string, Rule>>;
}

function readJson(file: string): unknown {
  return JSON.parse(readFileSync(join(extension, file), 'utf8'));
}

// What the grammar lacks of this shape fails below.
const grammar = readJson('syntaxes/hubfile.tmLanguage.json') as Grammar;

function rules(all: readonly Rule[]): Rule[] {
  return all.flatMap((rule) => [rule, ...rules(rule.patterns ?? [])]);
}

const everyRule = rules([...grammar.patterns, ...Object.values(grammar.repository)]);

/** The scopes that the grammar's single-line rules give to a word of a line. */
function scopes(line: string, word: string): string[] {
  return everyRule.flatMap((rule) => {
    if (rule.match === undefined) return [];
    return [...line.matchAll(new RegExp(rule.match, 'gdu'))].flatMap((match) => [
      ...(match[0] === word && rule.name !== undefined ? [rule.name] : []),
      ...Object.entries(rule.captures ?? {}).flatMap(([group, { name }]) =>
        match[Number(group)] === word && name !== undefined ? [name] : [],
      ),
    ]);
  });
}

describe('the editor extension', () => {
  it('is complete: every file that it names exists', () => {
    const { contributes } = readJson('package.json') as Manifest;
    const files = [
      ...contributes.languages.map(({ configuration }) => configuration),
      ...contributes.grammars.map(({ path }) => path),
    ];
    for (const file of files) assert.ok(existsSync(join(extension, file)), file);
    assert.equal(contributes.grammars[0]?.scopeName, grammar.scopeName);
    assert.ok(readdirSync(extension).includes('language-configuration.json'));
  });

  it('has expressions that compile and includes that exist', () => {
    for (const { match, begin, end, include } of everyRule) {
      for (const pattern of [match, begin]) {
        if (pattern !== undefined) assert.doesNotThrow(() => new RegExp(pattern, 'u'), pattern);
      }
      // A back reference of `end` is to a group of `begin`.
      if (end !== undefined) assert.doesNotThrow(() => new RegExp(end), end);
      if (include !== undefined) assert.ok(include.slice(1) in grammar.repository, include);
    }
  });

  it('colours every directive and all parts of a line', () => {
    for (const name of Object.keys(directives)) {
      assert.ok(
        scopes(`\t${name} x`, name).includes('keyword.control.directive.hubfile'),
        `${name} is not a directive to the grammar`,
      );
    }
    for (const [line, word, scope] of [
      ['# a comment', '# a comment', 'comment.line.number-sign.hubfile'],
      ['example.com {', 'example.com', 'entity.name.section.site.hubfile'],
      ['\trespond @api x', '@api', 'variable.other.matcher.hubfile'],
      ['\t@api path /api/*', 'path', 'keyword.other.condition.hubfile'],
      ['\tjwt {env.KEY}', '{env.KEY}', 'variable.other.placeholder.hubfile'],
      ['\trespond {$X:y}', '{$X:y}', 'variable.other.environment.hubfile'],
      ['\theartbeat 40s', '40s', 'constant.numeric.hubfile'],
      ['\theartbeat 40s', 'heartbeat', 'support.type.property-name.hubfile'],
      ['(snippet) {', '(snippet)', 'entity.name.function.snippet.hubfile'],
      ['\timport snippet a', 'import', 'keyword.control.import.hubfile'],
    ] as const) {
      assert.ok(scopes(line, word).includes(scope), `${line}: ${scopes(line, word).join()}`);
    }
    assert.deepEqual(scopes('\trespond a#b', '#b'), [], 'no comment inside a word');
  });
});
