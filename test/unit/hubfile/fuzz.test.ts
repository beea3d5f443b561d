import { directiveTable, registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { stringify } from 'yaml';
import type { Config } from '../../../src/config/config.ts';
import { encodeConfig } from '../../../src/config/serialize.ts';
import { ConfigError } from '../../../src/config/problem.ts';
import type { HubfileIo } from '../../../src/hubfile/expand.ts';
import { formatHubfile } from '../../../src/hubfile/format.ts';
import { load } from '../../../src/hubfile/load.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { cpuMs } from '../../support/cpu-time.ts';
import { rounds } from '../../support/rounds.ts';

const RUNS = rounds(4_000, 12_000);
const SEED = Number(process.env['FUZZ_SEED'] ?? 20_26);
const goldens = join(dirname(fileURLToPath(import.meta.url)), '../../hubfile');
const env = { HOST: 'env.example', TWO: 'two words', LINES: 'respond /a\nrespond /b', EMPTY: '' };

const seeds = readdirSync(goldens, { withFileTypes: true })
  .filter((topic) => topic.isDirectory())
  .flatMap(({ name }) =>
    readdirSync(join(goldens, name))
      .filter((file) => file.endsWith('.hubfile'))
      .map((file) => readFileSync(join(goldens, name, file), 'utf8')),
  )
  .filter((text) => text.length < 4000);

const FRAGMENTS = [
  '{',
  '}',
  '\n',
  ' ',
  '\t',
  '"',
  '`',
  '\\',
  '\\\n',
  '#',
  '<<END',
  '\nEND',
  'END',
  '{$HOST}',
  '{$LINES}',
  '{$TWO}',
  '{$X:a b}',
  '{$',
  '{args[0]}',
  '{block}',
  'import other',
  'import *.x',
  '(s) {',
  'import s a b',
  '@m',
  '/x',
  '*',
  ',',
  ':80',
  'hub',
  'respond',
  '{env.X}',
  '\u00a0',
  'é',
];

const DATA_FRAGMENTS = [
  ...['{', '}', '[', ']', ',', ':', '"', "'", '\\', '\n', '  ', '\t', '- ', '? ', '#', '|', '>'],
  ...['&a ', '*a', '!!binary ', '!!set', '<<: ', '---\n', '...', '%YAML 1.1\n', '~', 'null'],
  ...['true', '1e999', '-0', '0x1f', '.nan', '1_000', '2026-11-21', '{env.X}', '\\u0000', '\ufeff'],
  ...['"sites"', '"__proto__"', '"addresses"', '"kind": "files"', '"10s"', '\u00a0', 'é', '\ud800'],
];

/** A text of the seeds with a few pieces put in, taken out or swapped. */
function mutations(texts: readonly string[], fragments: readonly string[]): fc.Arbitrary<string> {
  const edit = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    remove: fc.nat(8),
    insert: fc.oneof(fc.constantFrom(...fragments), fc.string({ maxLength: 3 })),
  });
  return fc
    .tuple(fc.constantFrom(...texts), fc.array(edit, { maxLength: 6 }))
    .map(([seed, edits]) =>
      edits.reduce((text, { at, remove, insert }) => {
        const start = Math.floor(at * text.length);
        return text.slice(0, start) + insert + text.slice(start + remove);
      }, seed),
    );
}

const mutated = mutations(seeds, FRAGMENTS);

/** The configurations of the seeds, as `adapt` prints them. */
const data = seeds.flatMap((text) => {
  const config = read(text);
  if (config instanceof ConfigError) return [];
  return [encodeConfig(config, registry, { showSecrets: true, brief: true })];
});

/** Reads a text as one file; the other files are small and fixed. */
function read(text: string, file = '/etc/Hubfile'): Config | ConfigError {
  const io: HubfileIo = {
    env,
    glob: () => [],
    read: (path) => {
      if (path === file) return new TextEncoder().encode(text);
      if (path === '/etc/other') return new TextEncoder().encode('respond other\n');
      throw Object.assign(new Error('no such file'), { code: 'ENOENT' });
    },
  };
  try {
    return load(file, io, directiveTable).config;
  } catch (thrown) {
    if (thrown instanceof ConfigError) return thrown;
    throw thrown;
  }
}

/** A configuration as text, secrets in clear, so that a change in one of them shows. */
function print(config: Config): string {
  return JSON.stringify(config, function (this: Record<string, unknown>, name, value: unknown) {
    const own = this[name];
    return own instanceof Secret ? `secret ${own.reveal()}` : value;
  });
}

describe('a mutated Hubfile', () => {
  it('is loaded, or refused with problems that have a place', () => {
    fc.assert(
      fc.property(mutated, (text) => {
        const result = read(text);
        if (!(result instanceof ConfigError)) return;
        assert.ok(result.problems.length > 0);
        for (const { place, message } of result.problems) {
          assert.ok(place !== undefined && place.line >= 1 && place.column >= 1, message);
        }
      }),
      { numRuns: RUNS, seed: SEED },
    );
  });

  for (const [notation, texts] of [
    ['JSON', data.map((config) => JSON.stringify(config, null, 1))],
    ['YAML', data.map((config) => stringify(config))],
  ] as const) {
    it(`is loaded, or refused with problems that have a place, in ${notation} too`, () => {
      const file = `/etc/hub.${notation.toLowerCase()}`;
      let [accepted, refused] = [0, 0];
      fc.assert(
        fc.property(mutations(texts, DATA_FRAGMENTS), (text) => {
          const result = read(text, file);
          if (!(result instanceof ConfigError)) {
            accepted++;
            return;
          }
          refused++;
          assert.ok(result.problems.length > 0);
          for (const { place, message } of result.problems) {
            assert.ok(place !== undefined && place.line >= 1 && place.column >= 1, message);
          }
        }),
        { numRuns: RUNS, seed: SEED },
      );
      assert.ok(
        Math.min(accepted, refused) > RUNS / 20,
        `${accepted} accepted, ${refused} refused`,
      );
    });
  }

  it('keeps a backslash at the end of a line when formatted', () => {
    for (const [text, expected] of [
      ['\\\\\n\n\trespond x\n', '\\ \\\n\nrespond x\n'],
      ['x {\n\ta\\\\\n\n}\n', 'x {\n\ta\\ \\\n\n}\n'],
      ['a\\\\', 'a\\ \\\n\n'],
    ] as const) {
      assert.equal(formatHubfile(text), expected);
      assert.equal(formatHubfile(expected), expected);
    }
  });

  it('keeps its meaning when formatted, and formatting again changes nothing', () => {
    let compared = 0;
    fc.assert(
      fc.property(mutated, (text) => {
        const before = read(text);
        let formatted: string;
        try {
          formatted = formatHubfile(text);
        } catch (thrown) {
          assert.ok(thrown instanceof ConfigError);
          return;
        }
        assert.equal(formatHubfile(formatted), formatted);
        if (before instanceof ConfigError) return;
        const after = read(formatted);
        assert.ok(!(after instanceof ConfigError), formatted);
        assert.equal(print(after), print(before));
        compared++;
      }),
      { numRuns: RUNS, seed: SEED },
    );
    assert.ok(compared > RUNS / 20, `only ${compared} of ${RUNS} texts could be compared`);
  });

  it('never takes long to load, even if it is large', () => {
    const large = [
      '{$'.repeat(200_000),
      '"'.repeat(200_001),
      '{\n'.repeat(100_000),
      'a,\n'.repeat(100_000),
      `:80 {\n${'\trespond "x" 200\n'.repeat(20_000)}}\n`,
      `:80 {\n${'\t@m'.repeat(100_000)}\n}\n`,
      '<<A\n'.repeat(50_000),
      `x${' \\\n'.repeat(100_000)}`,
    ];
    for (const text of large) {
      assert.ok(cpuMs(() => read(text)) < 30_000, JSON.stringify(text.slice(0, 20)));
    }
  });
});
