import { registry } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, it } from 'node:test';
import { signingKey, staticKeySet } from '../../../src/auth/key.ts';
import { decodeEncoded, encodeConfig } from '../../../src/config/serialize.ts';
import { ConfigError } from '../../../src/config/problem.ts';
import { loadConfig, loadUnchecked, type ReadyConfig } from '../../../src/load-config.ts';

const KEY = Buffer.concat([Buffer.from([0xff, 0x80]), randomBytes(29), Buffer.from('\n')]);

function load(text: string, env: Record<string, string> = {}): ReadyConfig {
  return loadConfig('Hubfile', {
    read: (path) => (path.endsWith('.bin') ? KEY : Buffer.from(text)),
    glob: () => [],
    env,
  });
}

function shown(text: string, env: Record<string, string> = {}): string {
  const { written, fromEnvironment } = load(text, env);
  const how = { showSecrets: false, brief: true, fromEnvironment };
  return JSON.stringify(encodeConfig(written, registry, how));
}

describe('a configuration that is printed', () => {
  for (const line of [
    '@k header X-Api-Key s3cret\nrespond @k 200',
    '@k header_regexp X-Auth s3cret\nrespond @k 200',
    '@q query token=s3cret\nrespond @q 200',
    '@q query access_token=s3cret\nrespond @q 200',
    'header X-Auth-Token s3cret',
    'redir https://a.example/?api_key=s3cret&b=1',
    'reverse_proxy localhost:3000 {\nheader_up X-Auth s3cret\n}',
    'map {header.X-Api-Key} {tenant} {\ns3cret shop\n~^s3cret2$ blog\n}',
    'map {path} {password} {\n/a s3cret\ndefault s3cret\n}',
    '@v vars {query.token} s3cret\nrespond @v ok',
    '@v vars_regexp {cookie.session} ^s3cret$\nrespond @v ok',
    '@e expression `{header.X-Api-Key} in ["s3cret"]`\nrespond @e ok',
    "@e expression `header({'X-Api-Key': 's3cret'})`\nrespond @e ok",
  ]) {
    it(`hides the value in: ${line.split('\n', 1)[0]}`, () => {
      const printed = shown(`http://:8080 {\n${line}\n}`);
      assert.ok(!printed.includes('s3cret'), printed);
      assert.ok(printed.includes('[redacted]'), printed);
    });
  }

  it('hides values that came from a variable, wherever they are, but not a default', () => {
    const text = 'http://{$NAME} {\nheader X-Custom "a {$TOK} b"\nrespond {$TEXT:default}\n}';
    const printed = shown(text, { TOK: 'q7Rw-9', NAME: 'site.example' });
    assert.ok(!printed.includes('q7Rw-9'), printed);
    assert.ok(printed.includes('a [redacted] b'), printed);
    assert.ok(printed.includes('default'), printed);
    assert.ok(printed.includes('site.example'), 'host names are public');
  });

  it('shows values that are not secret', () => {
    const printed = shown('http://:8080 {\n@a header X-Requested-With fetch\nrespond @a ok\n}');
    assert.ok(printed.includes('fetch'), printed);
    const roles = 'map {http.auth.user.id} {role} {\nada admin\n}';
    assert.ok(shown(`http://:8080 {\n${roles}\n}`).includes('admin'));
    const path = '@a expression `{path} == "/a"`\nrespond @a ok';
    assert.ok(shown(`http://:8080 {\n${path}\n}`).includes('/a'));
  });
});

describe('a mistake in a Hubfile or a data file', () => {
  const inHub = (line: string): string => `http://:8080 {\nhub {\nanonymous\n${line}\n}\n}`;
  for (const [format, text] of [
    ['Hubfile', 'http://:8080 {\nbasicauth bob s3cret\n}'],
    ['Hubfile', 'http://:8080 {\nbasic_auth bob s3cret x y\n}'],
    ['Hubfile', 'http://:8080 {\nbasic_auth {\nbob s3cret x y\n}\n}'],
    ['Hubfile', 'http://:8080 {\nbasic_auth {\na:b s3cret\n}\n}'],
    ['Hubfile', '{\nacme_eab a s3cret\n}\nhttp://:8080 {\n}'],
    ['Hubfile', inHub('issuer https://i.example s3cret HS256')],
    ['Hubfile', inHub('issuer https://i.example {\npublisher s3cret HS256\n}')],
    ['Hubfile', inHub('issuer https://i.example {\nsubscriber s3cret HS256\n}')],
    ['Hubfile', inHub('transport redis {\nurl s3cret@host:6379/0\n}')],
    ['Hubfile', 'http://:8080 {\ntoken mint s3cret\n}'],
    ['Hubfile', 'http://:8080 {\ntoken exchange https://h.example id s3cret\n}'],
    ['yaml', 'sites:\n  - hub:\n      jwt: s3cret\n'],
    ['yaml', 'sites:\n  - hub:\n      token: s3cret\n'],
    ['yaml', 'sites:\n  - hub:\n      password: s3cret\n'],
  ] as const) {
    it(`does not show a secret: ${JSON.stringify(text)}`, () => {
      const io = { read: () => Buffer.from(text), glob: () => [], env: {} };
      const name = format === 'yaml' ? 'Hubfile.yaml' : format;
      assert.throws(
        () => loadConfig(name, io),
        (error) => {
          assert.ok(error instanceof ConfigError);
          const said = JSON.stringify(error.problems) + error.message;
          assert.ok(!said.includes('s3cret'), said);
          return true;
        },
      );
    });
  }
});

describe('a variable in the wrong place', () => {
  const VALUE = 's3cr3t-value-of-the-environment';
  const site = (line: string): string => `http://:8080 {
	hub {
		anonymous
		issuer https://i.example {
			publisher {
				jwt {env.KEY}
			}
		}
		${line}
	}
	respond ok
}`;
  for (const written of ['{env.KEY}', '{file.key}', '{$KEY}']) {
    for (const text of [
      site(`cors_origins ${written}`),
      site(`publish_origins ${written}`),
      site(`public_urls ${written}`),
      site(`issuer ${written} {\n publisher {\n jwt ${written}\n}\n}`),
      `http://:8080 {\nbasic_auth {\n${written} ${written}\n}\n}`,
      `http://:8080 {\n@a path /\nhub_x ${written}\n}`,
    ]) {
      it(`is not shown: ${text
        .split('\n')
        .find((line) => line.includes(written))
        ?.trim()}`, () => {
        const problems = ((): readonly { message: string; hint?: string }[] => {
          try {
            return loadConfig('Hubfile', {
              read: (path) => Buffer.from(path.endsWith('key') ? VALUE : text),
              glob: () => [],
              env: { KEY: VALUE },
            }).warnings;
          } catch (error) {
            assert.ok(error instanceof ConfigError);
            return error.problems;
          }
        })();
        assert.ok(problems.length > 0);
        assert.ok(!JSON.stringify(problems).includes(VALUE), JSON.stringify(problems));
      });
    }
  }

  it('is shown if it is a path, a port or a host name, which the operator has to find', () => {
    const text = 'https://{$HOST} {\ntls {$DIR}/cert.pem {$DIR}/key.pem\n}';
    const io = {
      read: (path: string): Buffer => {
        if (path.endsWith('.pem')) throw new Error('ENOENT');
        return Buffer.from(text);
      },
      glob: () => [],
      env: { HOST: 'shop.example', DIR: '/etc/certificates' },
    };
    assert.throws(() => loadConfig('Hubfile', io), /\/etc\/certificates\/cert\.pem/);
  });
});

describe('a key from a file', () => {
  const hub = (key: string): string =>
    `http://:8080 {
    hub {
      issuer https://a.example {
        publisher { jwt ${key} }
        subscriber { jwt ${key} }
      }
    }
  }`.replaceAll(/\{ (jwt .*) \}/g, '{\n$1\n}');

  it('is not shown where the algorithm belongs', () => {
    const printed = (words: string): string => {
      const io = { read: () => Buffer.from(hub(words)), glob: () => [], env: {} };
      const config = loadUnchecked('Hubfile', io);
      return JSON.stringify(encodeConfig(config, registry, { showSecrets: false, brief: true }));
    };
    assert.doesNotMatch(printed('HS256 an-important-key-of-32-characters'), /important/);
    assert.match(printed('an-important-key-of-32-characters HS384'), /HS384/);
    assert.match(
      shown(hub('{env.KEY} {env.ALG}'), { KEY: 'k'.repeat(64), ALG: 'HS384' }),
      /env\.ALG/,
    );
    assert.doesNotMatch(printed('an-important-key-of-32-characters'), /"algorithm"/);
  });

  it('contains exactly the bytes of the file', () => {
    const { config } = load(hub('{file.key.bin}'));
    const source = config.sites[0]?.hub?.issuers[0]?.subscriber;
    assert.ok(source?.kind === 'jwt');
    const found = staticKeySet(source)?.find({ alg: 'HS256', kid: null });
    assert.deepEqual(found, [KEY]);
    assert.deepEqual(signingKey(source.key, null).material, KEY);
  });

  it('reaches a worker as the same bytes', () => {
    const { config } = load(hub('{file.key.bin}'));
    const text = JSON.stringify(
      encodeConfig(config, registry, { showSecrets: true, brief: false }),
    );
    const source = decodeEncoded(JSON.parse(text), registry).sites[0]?.hub?.issuers[0]?.subscriber;
    assert.ok(source?.kind === 'jwt');
    assert.deepEqual(source.key.bytes(), KEY);
  });

  it('that is not UTF-8 is refused if text is expected, or if text precedes or follows it', () => {
    const refuses = (text: string): void =>
      assert.throws(
        () => load(text),
        (error) =>
          error instanceof ConfigError && error.problems.some(({ code }) => code === 'not-utf8'),
      );
    refuses('http://:8080 {\nheader X-Custom {file.key.bin}\n}');
    refuses(hub('a{file.key.bin}'));
  });
});
