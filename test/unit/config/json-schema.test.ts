import { directiveTable, registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import type { Config } from '../../../src/config/config.ts';
import { configSchema, encodeConfig } from '../../../src/config/serialize.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { read } from '../../../src/hubfile/load.ts';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '../../..');
const validate = new Ajv2020({ allErrors: true, allowUnionTypes: true }).compile(
  configSchema(registry),
);
const env: Record<string, string> = JSON.parse(
  readFileSync(join(root, 'test/hubfile/env.json'), 'utf8'),
);

function faults(data: unknown): string[] {
  validate(data);
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** Every Hubfile of the golden cases that is right. */
function configurations(): { readonly name: string; readonly config: Config }[] {
  return ['hubfile', 'caddyfile'].flatMap((folder) =>
    readdirSync(join(root, 'test', folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.hubfile'))
      .flatMap((name) => {
        const { config, problems } = read(
          join(root, 'test', folder, name),
          diskIo(env),
          directiveTable,
        );
        const isRight = !problems.some(({ severity }) => severity === 'error');
        return isRight ? [{ name: `${folder}/${name}`, config }] : [];
      }),
  );
}

describe('the JSON Schema of configurations', () => {
  it('is the one that ships with the package and with the extension', () => {
    for (const file of ['schema', 'editors/vscode/schemas']) {
      const text = readFileSync(join(root, file, 'config.schema.json'), 'utf8');
      assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(configSchema(registry))));
    }
  });

  it('allows every configuration of the golden cases, with and without defaults', () => {
    const all = configurations();
    assert.ok(all.length > 150, `${all.length} configurations`);
    for (const { name, config } of all) {
      for (const brief of [true, false]) {
        const data = JSON.parse(
          JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief })),
        );
        assert.deepEqual(faults(data), [], name);
      }
    }
  });

  it('allows durations and sizes as text, and a reference to the schema itself', () => {
    const data = parse(
      '$schema: file:///x\noptions:\n  gracePeriodMs: 1h30m\n  servers: { maxHeaderSize: 64KiB }\n',
    );
    assert.deepEqual(faults(data), []);
  });

  for (const [what, data, fault] of [
    ['a member that there is not', { option: {} }, / must NOT have additional properties/],
    ['a word for a number', { options: { httpPort: 'eighty' } }, /httpPort must be integer/],
    ['a port beyond the last', { options: { httpPort: 65_536 } }, /httpPort must be <= 65535/],
    ['another word', { options: { autoHttps: 'maybe' } }, /autoHttps must be equal to one of/],
    ['what is not a duration', { options: { gracePeriodMs: '10 s' } }, /gracePeriodMs must match/],
    [
      'a site without an address',
      { sites: [{}] },
      /sites\/0 must have required property 'addresses'/,
    ],
    [
      'no list of addresses',
      { sites: [{ addresses: [] }] },
      /addresses must NOT have fewer than 1/,
    ],
    [
      'a handler that there is not',
      { sites: [{ addresses: [{ host: 'a' }], routes: [{ handler: { kind: 'respnd' } }] }] },
      /handler\/kind must be equal to constant/,
    ],
    [
      'a wrong member deep in nested routes',
      {
        sites: [
          {
            addresses: [{ host: 'a' }],
            routes: [
              { handler: { kind: 'route', routes: [{ handler: { kind: 'abort', now: true } }] } },
            ],
          },
        ],
      },
      /routes\/0\/handler must NOT have additional properties/,
    ],
    [
      'a condition without its members',
      {
        sites: [
          {
            addresses: [{ host: 'a' }],
            routes: [{ matcher: [{ kind: 'path' }], handler: { kind: 'abort' } }],
          },
        ],
      },
      /matcher\/0 must have required property 'paths'/,
    ],
  ] as const) {
    it(`refuses ${what}, as the loader does`, () => {
      assert.match(faults(data).join('\n'), fault);
      const io = { read: () => Buffer.from(JSON.stringify(data)), glob: () => [], env: {} };
      const { problems } = read('config.json', io, directiveTable);
      assert.ok(problems.some(({ severity }) => severity === 'error'));
    });
  }
});
