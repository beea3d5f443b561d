import { directiveTable, registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Config } from '../../../src/config/config.ts';
import { encodeConfig } from '../../../src/config/serialize.ts';
import { ConfigError } from '../../../src/config/problem.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { load } from '../../../src/hubfile/load.ts';

const read = (file: string, text: string): Config =>
  load(file, { ...diskIo({}), read: () => Buffer.from(text) }, directiveTable).config;

function refused(file: string, text: string): string {
  try {
    read(file, text);
  } catch (thrown) {
    assert.ok(thrown instanceof ConfigError, String(thrown));
    return thrown.message;
  }
  return assert.fail(`${file} was read: ${text.slice(0, 80)}`);
}

describe('a configuration written as YAML or JSON', () => {
  it('uses defaults for omitted fields, and accepts durations and sizes as text', () => {
    const { options, sites } = read(
      'a.yaml',
      'sites:\n  - addresses: [{host: a.example}]\n    hub: {heartbeatMs: 15s, maxSubscriberBuffer: 2MiB}\n',
    );
    assert.deepEqual(options.admin, { host: 'localhost', port: 2029, origins: [] });
    const [site] = sites;
    assert.deepEqual(site?.addresses, [{ scheme: 'https', host: 'a.example', port: null }]);
    assert.equal(site?.hub?.heartbeatMs, 15_000);
    assert.equal(site?.hub?.maxSubscriberBuffer, 2 * 1024 * 1024);
    assert.equal(site?.hub?.writeTimeoutMs, 600_000);
  });

  it('announces a hub unless discovery is null', () => {
    const site = (more: string): unknown =>
      read('a.json', `{"sites":[{"addresses":[{"host":"a"}],"hub":{}${more}}]}`).sites[0]
        ?.discovery;
    assert.notEqual(site(''), null);
    assert.equal(site(',"discovery":null'), null);
  });

  it('reports every mistake, at its place, with the nearest name', () => {
    const text = [
      'options:',
      '  http_port: 8080',
      '  httpsPort: "x"',
      'sites:',
      '  - addresses:',
      '      - host: Localhost',
      '    routs: []',
      '    routes:',
      '      - handler: {kind: respnd}',
      '      - handler: {kind: redir, status: 200}',
      '',
    ].join('\n');
    assert.equal(
      refused('a.yaml', text),
      [
        'a.yaml:2:3: error: unknown member "http_port"',
        '    http_port: 8080',
        '    ^^^^^^^^^',
        '  did you mean "httpPort"?',
        'a.yaml:3:14: error: expected a number from 1 to 65535, not "x"',
        '    httpsPort: "x"',
        '               ^^^',
        'a.yaml:6:15: error: expected a host in lower case; empty for any, not "Localhost"',
        '    - host: Localhost',
        '            ^^^^^^^^^',
        'a.yaml:7:5: error: unknown member "routs"',
        '    routs: []',
        '    ^^^^^',
        '  did you mean "routes"?',
        `a.yaml:9:25: error: expected one of ${Object.entries(registry.directives)
          .flatMap(([name, { data }]) => (data ? [name] : []))
          .join(', ')}, not "respnd"`,
        '    - handler: {kind: respnd}',
        '                      ^^^^^^',
        '  did you mean "respond"?',
        'a.yaml:10:18: error: "to" is missing here',
        '    - handler: {kind: redir, status: 200}',
        '               ^',
        'a.yaml:10:40: error: expected a number from 300 to 399, not 200',
        '    - handler: {kind: redir, status: 200}',
        '                                     ^^^',
      ].join('\n'),
    );
  });

  it('reports syntax errors at their place', () => {
    for (const [file, text, message] of [
      ['a.json', '{"sites": [],}', 'a.json:1:14: error: expected a "name"'],
      [
        'a.json',
        '{\n\t"sites": [],\n\t"sites": []\n}',
        'a.json:3:2: error: this name is given twice',
      ],
      ['a.json', '{"options": tru}', 'a.json:1:13: error: expected a value'],
      ['a.json', '{"options": 01}', 'a.json:1:13: error: expected a value'],
      ['a.json', '{} {}', 'a.json:1:4: error: unexpected text after the value'],
      ['a.json', '{"a": "x\ny"}', 'a.json:1:7: error: this text contains a line break'],
      ['a.json', '{"a": "x', 'a.json:1:7: error: this text is not closed'],
      ['a.json', '', 'a.json:1:1: error: expected a value'],
      ['a.json', '[1]', 'a.json:1:1: error: expected an object with members, not a list'],
      ['a.yaml', 'a: [', 'a.yaml:1:5: error: '],
      ['a.yaml', 'options:\n\tadmin: off\n', 'a.yaml:2:1: error: Tabs are not allowed'],
      ['a.yaml', 'sites: []\nsites: []\n', 'a.yaml:2:1: error: this name is given twice'],
      [
        'a.yaml',
        'options: {}\n---\nsites: []\n',
        'a.yaml:2:1: error: a configuration is a single document',
      ],
      ['a.yaml', 'options: !!js/function "x"\n', 'a.yaml:1:10: error: Unresolved tag'],
      ['a.yaml', 'options: *nope\n', 'a.yaml:1:10: error: this alias refers to nothing'],
      ['a.yaml', '1: x\n', 'a.yaml:1:1: error: expected a name'],
    ] as const) {
      const found = refused(file, text);
      assert.equal(found.slice(0, message.length), message);
    }
  });

  it('refuses alias bombs, circular aliases, merge keys and deep nesting, before they are expanded', () => {
    const level = (name: string, below: string): string =>
      `${name}: &${name} [${Array.from({ length: 9 }, () => `*${below}`).join(',')}]\n`;
    const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${['ba', 'cb', 'dc', 'ed', 'fe', 'gf', 'hg', 'ih'].map((two) => level(two[0] ?? '', two[1] ?? '')).join('')}`;
    assert.match(refused('a.yaml', bomb), /more than 100000 values/);
    assert.match(refused('a.yaml', 'a: &a [*a]'), /refers to nothing before/);
    assert.match(
      refused('a.yaml', 'sites: [{addresses: [{<<: {host: x}}]}]'),
      /unknown member "<<"/,
    );
    for (const deep of ['['.repeat(100_000), '- '.repeat(50_000), '{a: '.repeat(50_000)]) {
      assert.match(refused('a.yaml', deep), /nested too deeply/);
    }
    assert.match(refused('a.json', '['.repeat(100_000)), /nested too deeply/);
  });

  it('reads what the deepest Hubfile becomes', () => {
    const nested = (routes: string, depth: number): string =>
      depth === 0
        ? routes
        : nested(`[{"handler":{"kind":"handle","group":${depth},"routes":${routes}}}]`, depth - 1);
    const routes = nested('[{"handler":{"kind":"abort"}}]', 62);
    const text = `{"sites":[{"addresses":[{"scheme":"http","host":"a"}],"routes":${routes}}]}`;
    for (const name of ['a.json', 'a.yaml']) assert.equal(read(name, text).sites.length, 1);
  });

  it('resolves aliases', () => {
    const { sites } = read(
      'a.yaml',
      'sites:\n  - addresses: [&a {host: a.example}]\n  - addresses: [*a]\n',
    );
    assert.deepEqual(sites[0]?.addresses, sites[1]?.addresses);
  });

  it('never shows a secret in a problem', () => {
    for (const [file, text] of [
      ['a.yaml', 'sites:\n- hub: {issuers: [{publisher: {kind: jwt, key: topsecret, x: 1}}]}\n'],
      ['a.yaml', 'sites:\n- hub: {issuers: [{publisher: {kind: jwt, key: [topsecret]}}]}\n'],
      ['a.yaml', 'key: topsecret\n'],
      ['a.yaml', 'key: "topsecret\n'],
      ['a.yaml', 'clientSecret: topsecret: x\n'],
      ['a.json', '{"key":"topsecret","x":1}'],
      ['a.json', '{"key":"topsecret'],
      ['a.json', '{"options":{"acme":{"externalAccount":{"macKey":"topsecret","y":1}}}}'],
    ] as const) {
      assert.equal(refused(file, text).includes('topsecret'), false, text);
    }
  });

  it('refuses the placeholder for an omitted secret', () => {
    const text =
      '{"sites":[{"addresses":[{"host":"a"}],"hub":{"issuers":[{"id":"i","publisher":{"kind":"jwt","key":"[redacted]"}}]}}]}';
    assert.match(refused('a.json', text), /marks a secret that was left out[^]*--show-secrets/);
  });

  it('hides credentials other than keys: header values, user info', () => {
    const config = read(
      'a.yaml',
      [
        'sites:',
        '- addresses: [{host: a}]',
        '  routes:',
        '  - handler:',
        '      kind: reverse_proxy',
        '      upstreams: ["http://a:1"]',
        '      headerUp:',
        '      - {kind: set, name: Authorization, value: Basic topsecret}',
        '      - {kind: set, name: X-Api-Key, value: "{env.API_KEY}"}',
        '  - handler: {kind: redir, to: "https://user:topsecret@b/"}',
        '',
      ].join('\n'),
    );
    const printed = JSON.stringify(
      encodeConfig(config, registry, { showSecrets: false, brief: true }),
    );
    assert.equal(printed.includes('topsecret'), false);
    assert.ok(printed.includes('{env.API_KEY}'), 'a placeholder tells nothing');
    assert.ok(
      JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: true })).includes(
        'topsecret',
      ),
    );
  });
});
