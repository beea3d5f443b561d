import { directiveTable, registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import type { Config } from '../../../src/config/config.ts';
import { encodeConfig } from '../../../src/config/serialize.ts';
import { ConfigError } from '../../../src/config/problem.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { load } from '../../../src/hubfile/load.ts';
import { Secret } from '../../../src/kernel/secret.ts';

const goldens = join(dirname(fileURLToPath(import.meta.url)), '../../hubfile');
const env: Record<string, string> = JSON.parse(readFileSync(join(goldens, 'env.json'), 'utf8'));
const disk = diskIo(env);

const configs = readdirSync(goldens, { withFileTypes: true })
  .filter((topic) => topic.isDirectory() && topic.name !== 'format')
  .flatMap(({ name }) =>
    readdirSync(join(goldens, name))
      .filter((file) => file.endsWith('.hubfile'))
      .flatMap((file) => readable(join(goldens, name, file))),
  );

function readable(path: string): { readonly path: string; readonly config: Config }[] {
  try {
    return [{ path, config: load(path, disk, directiveTable).config }];
  } catch (thrown) {
    if (thrown instanceof ConfigError) return [];
    throw thrown;
  }
}

function reread(text: string, file: string): Config {
  return load(file, { ...disk, read: () => Buffer.from(text) }, directiveTable).config;
}

/** Plain data in which a difference between two secrets shows, as deepEqual sees it. */
function plain(value: unknown): unknown {
  if (value instanceof Secret) return { secret: value.reveal() };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
}

describe('a configuration as JSON and YAML (hubfile.md §1)', () => {
  it('has the golden files to compare', () => assert.ok(configs.length > 150));

  for (const brief of [true, false]) {
    it(`means the same when it is read back, ${brief ? 'without' : 'with'} its defaults`, () => {
      for (const { path, config } of configs) {
        const data = encodeConfig(config, registry, { showSecrets: true, brief });
        const json = reread(JSON.stringify(data, null, 2), 'x.json');
        assert.deepEqual(plain(json), plain(config), path);
        const yaml = reread(stringify(data), 'x.yaml');
        assert.deepEqual(plain(yaml), plain(config), path);
        assert.deepEqual(encodeConfig(json, registry, { showSecrets: true, brief }), data, path);
      }
    });
  }

  it('never contains a secret unless requested', () => {
    let secrets = 0;
    for (const { path, config } of configs) {
      const printed = JSON.stringify(
        encodeConfig(config, registry, { showSecrets: false, brief: false }),
      );
      for (const secret of secretsOf(config)) {
        if (secret.toString() === secret.reveal()) continue;
        secrets += 1;
        assert.equal(printed.includes(JSON.stringify(secret.reveal()).slice(1, -1)), false, path);
      }
    }
    assert.ok(secrets > 0, 'there are secrets in the golden files');
  });
});

function secretsOf(value: unknown): Secret[] {
  if (value instanceof Secret) return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(secretsOf);
}
