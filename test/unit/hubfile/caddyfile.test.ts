import { directiveTable } from '../../../src/directives/registry.ts';
import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { describe, it } from 'node:test';
import { ConfigError, type Problem } from '../../../src/config/problem.ts';
import { adaptCaddyfile, type AdaptedCaddyfile } from '../../../src/hubfile/caddyfile.ts';
import type { HubfileIo } from '../../../src/hubfile/expand.ts';
import { read } from '../../../src/hubfile/load.ts';

type Files = Readonly<Record<string, string>>;

function adapted(text: string, env: Files = {}, files: Files = {}): AdaptedCaddyfile {
  const io = ioOf(text, env, files);
  return adaptCaddyfile(text, 'Caddyfile', io, directiveTable, (changed) =>
    problemsIn(changed, env, files),
  );
}

function problemsIn(text: string, env: Files = {}, files: Files = {}): readonly Problem[] {
  return read('Caddyfile', ioOf(text, env, files), directiveTable, 'hubfile').problems;
}

function ioOf(text: string, env: Files, files: Files): HubfileIo {
  const content = (path: string): string => {
    if (path.endsWith('/Caddyfile')) return text;
    const found = Object.entries(files).find(([name]) => path === resolve(name))?.[1];
    if (found === undefined) throw Object.assign(new Error('ENOENT'), { code: 'ENOENT' });
    return found;
  };
  const glob = (pattern: string): string[] =>
    Object.keys(files)
      .map((name) => resolve(name))
      .filter((path) => path.startsWith(pattern.slice(0, pattern.indexOf('*'))))
      .sort();
  return { read: (path) => Buffer.from(content(path)), glob, env };
}

/** What would run, without comments. */
function lines({ text }: AdaptedCaddyfile): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
}

const CLOSING = ['{', 'order error first', '}'];

describe('adapting a Caddyfile', () => {
  it('keeps what both languages have in common as it is written, including comments', () => {
    const text = '# Ours.\nexample.com {\n\trespond ok # fine\n}\n';
    assert.deepEqual(adapted(text), { text, leftOut: [], notes: [] });
  });

  it('reports the place of what is left out', () => {
    const { leftOut } = adapted('a.example {\n\tpush\n\ttemplates\n}\n');
    assert.deepEqual(
      leftOut.map(({ place }) => `${place?.line}:${place?.column}`),
      ['2:2', '3:2'],
    );
  });

  it('reports places in the Caddyfile, whatever was inserted or removed above them', () => {
    const text =
      '{\n\tdefault_bind 127.0.0.1\n}\na.example {\n\tpush\n\tmercure {\n\t\tpublisher_jwt k\n\t\tnonsense\n\t}\n\troot a\n}\nb.example {\n\ttls {\n\t\tload x\n\t}\n\ttls internal\n\ttls internal\n}\n';
    const { leftOut } = adapted(text);
    const told = leftOut.map(({ place, message }) => `${place?.line}:${place?.column} ${message}`);
    assert.deepEqual(told, [
      '5:2 the directive push is not supported by hubgate',
      '8:3 unknown option "nonsense" in hub',
      ...told.slice(2),
    ]);
    assert.match(
      told.join('\n'),
      /16:2 tls is given twice in this site; the first is at Caddyfile:13:2/,
    );
  });

  describe('access restrictions that cannot be carried over', () => {
    it('cause 503 before all else', () => {
      const result = adapted(
        'a.example {\n\tforward_auth auth:9 {\n\t\turi /\n\t\tnonsense\n\t}\n\trespond in\n}\n',
      );
      assert.deepEqual(lines(result), [...CLOSING, 'a.example {', 'error 503', 'respond in', '}']);
    });

    it('cause 503 only for requests that match their matcher, if it can be carried over', () => {
      const text =
        'a.example {\n\t@in path /in/*\n\tbasic_auth @in {\n\t\tbob\n\t}\n\tbasic_auth /x/* md5 {\n\t}\n\trespond in\n}\n';
      assert.deepEqual(lines(adapted(text)).slice(3), [
        'a.example {',
        '@in path /in/*',
        'error @in 503',
        'error /x/* 503',
        'respond in',
        '}',
      ]);
    });

    it('cause 503 for all requests if their matcher is lost', () => {
      const text = 'a.example {\n\t@no tls early_data\n\tabort @no\n\trespond in\n}\n';
      assert.deepEqual(lines(adapted(text)).slice(3), [
        'a.example {',
        'error 503',
        'respond in',
        '}',
      ]);
    });

    it('do not include a respond 403 inside a part that is left out as a whole', () => {
      const text =
        'a.example {\n\thandle {\n\t\t@no tls early_data\n\t\thandle @no {\n\t\t\trespond 403\n\t\t}\n\t\trespond in\n\t}\n}\n';
      assert.deepEqual(lines(adapted(text)).slice(3), [
        'a.example {',
        'handle {',
        'error 503',
        'respond in',
        '}',
        '}',
      ]);
    });

    it('close a site that asked for client certificates', () => {
      const text =
        'a.example {\n\ttls internal {\n\t\tclient_auth {\n\t\t\tmode require\n\t\t\tnonsense\n\t\t}\n\t}\n\trespond in\n}\n';
      assert.deepEqual(lines(adapted(text)).slice(3), [
        'a.example {',
        'tls internal {',
        '}',
        'error 503',
        'respond in',
        '}',
      ]);
    });

    it('keep the options that are supported', () => {
      const text = '{\n\temail a@b.example\n}\na.example {\n\tauthorize with x\n}\n';
      const [brace, order, email] = lines(adapted(text));
      assert.deepEqual([brace, order, email], ['{', 'order error first', 'email a@b.example']);
    });

    it('close no error page', () => {
      const text =
        'a.example {\n\thandle_errors {\n\t\t@x tls early_data\n\t\trespond @x gone 410\n\t}\n}\n';
      assert.deepEqual(lines(adapted(text)), ['a.example {', 'handle_errors {', '}', '}']);
    });

    it('turn off the admin API if it was on an inherited socket', () => {
      assert.deepEqual(lines(adapted('{\n\tadmin fd/3\n}\n')), ['{', 'admin off', '}']);
    });
  });

  it('leaves out a matcher as a whole: a part of it would match more requests', () => {
    const text =
      'a.example {\n\t@a {\n\t\tpath /a\n\t\texpression `x`\n\t}\n\theader @a X-A 1\n}\n';
    assert.deepEqual(lines(adapted(text)), ['a.example {', '}']);
  });

  it('does not mention what hubgate does by default', () => {
    const { leftOut, notes } = adapted('{\n\tservers {\n\t\tstrict_sni_host\n\t}\n}\n');
    assert.deepEqual([leftOut.length, notes.length], [0, 1]);
  });

  it('refuses text that is not a Caddyfile, with its place', () => {
    assert.throws(
      () => adapted('a.example {\n\trespond "x\n}\n'),
      (error: unknown) => error instanceof ConfigError && error.problems[0]?.place?.line === 2,
    );
  });

  it('requires a variable that a line needs, and leaves nothing out because of it', () => {
    const text = '{$SITE} {\n\treverse_proxy {$APP}\n}\n';
    assert.throws(
      () => adapted(text, { SITE: 'a.example' }),
      (error: unknown) =>
        error instanceof ConfigError &&
        /the environment variable APP is not set/.test(error.message),
    );
    assert.equal(adapted(text, { SITE: 'a.example', APP: 'app:1' }).text, text);
  });

  it('requires the variable that is the address of a site', () => {
    assert.throws(() => adapted('{$SITE} {\n\treverse_proxy app:1\n}\n'), /SITE is not set/);
  });

  it('keeps a variable unchanged that may expand to anything or nothing', () => {
    const text = '{\n\t{$OPTIONS}\n}\n\n{$SITES}\n\na.example {\n\t{$MORE}\n\trespond ok\n}\n';
    assert.deepEqual(adapted(text), { text, leftOut: [], notes: [] });
  });

  it('closes the sites that have lost an access restriction even if the first site is left out', () => {
    const text = 'ftp://a.example {\n\trespond x\n}\nb.example {\n\tauthorize with x\n}\n';
    const result = adapted(text);
    assert.deepEqual(lines(result).slice(0, 3), CLOSING);
  });

  it('writes no value of a variable', () => {
    const { text } = adapted('a.example {\n\tmercure {\n\t\tpublisher_jwt {$KEY}\n\t}\n}\n', {
      KEY: 'a-secret-of-the-environment',
    });
    assert.ok(!text.includes('a-secret'));
    assert.ok(text.includes('publisher_jwt {$KEY}'));
  });

  it('inserts imported text in its place, without what cannot be carried over', () => {
    const files = { 'auth.conf': 'authorize with x\n', 'fine.conf': 'encode gzip\n' };
    const result = adapted(
      'a.example {\n\timport fine.conf\n\timport auth.conf\n\trespond in\n}\n',
      {},
      files,
    );
    const [{ place } = {}] = result.leftOut;
    assert.deepEqual(place, {
      ...{ file: 'auth.conf', line: 1, column: 1 },
      importedFrom: [{ file: 'Caddyfile', line: 3, column: 2 }],
    });
    assert.deepEqual(lines(result).slice(3), [
      'a.example {',
      'encode gzip',
      'error 503',
      'respond in',
      '}',
    ]);
    assert.match(result.text, /\t# from fine\.conf\n\tencode gzip\n/);
  });

  it('reads nested imports, relative to the importing file', () => {
    const result = adapted(
      'import conf/all.caddy\n',
      {},
      {
        'conf/all.caddy': 'import sites/*\nimport gone.caddy\nimport {$MORE:gone.caddy}\n',
        'conf/sites/a': 'a.example {\n\timport ../common\n\tpush\n}',
        'conf/sites/b': 'b.example {\n\timport ../common\n}\n',
        'conf/common': 'respond in \\',
      },
    );
    assert.deepEqual(lines(result), [
      ...['a.example {', 'respond in', '}', 'b.example {', 'respond in', '}'],
      ...['import conf/gone.caddy', 'import {$MORE:gone.caddy}'],
    ]);
    const [push] = result.leftOut;
    assert.deepEqual(push?.place, {
      ...{ file: 'conf/sites/a', line: 3, column: 2 },
      importedFrom: [
        { file: 'conf/all.caddy', line: 1, column: 1 },
        { file: 'Caddyfile', line: 1, column: 1 },
      ],
    });
  });

  it('makes snippets of files that are imported with arguments or a block', () => {
    const result = adapted(
      '{\n\temail a@b.example\n}\na.example {\n\ttemplates\n\timport (a).conf ok 200\n\timport wrap {\n\t\trespond in\n\t}\n}\nb.example {\n\timport (a).conf no 404\n}\n',
      {},
      { '(a).conf': 'push\nrespond /x {args[0]} {args[1]}\n', wrap: 'handle {\n\t{block}\n}\n' },
    );
    assert.deepEqual(lines(result), [
      ...['{', 'email a@b.example', '}', '(_a_.conf) {', 'respond /x {args[0]} {args[1]}', '}'],
      ...['(wrap) {', 'handle {', '{block}', '}', '}', 'a.example {', 'import _a_.conf ok 200'],
      ...['import wrap {', 'respond in', '}', '}', 'b.example {', 'import _a_.conf no 404', '}'],
    ]);
    assert.deepEqual(
      result.leftOut.map(({ place }) => `${place?.file}:${place?.line}:${place?.column}`),
      ['(a).conf:1:1', '(a).conf:1:1', 'Caddyfile:5:2'],
    );
  });

  it('includes the snippets of a file once if it is imported twice, and also in a site without braces', () => {
    const files = { 's.caddy': '(s) {\n\trespond in\n}\n', args: 'header X {args[0]}\n' };
    const twice = adapted(
      'import s.caddy\nimport s.caddy\na.example {\n\timport s\n}\n',
      {},
      files,
    );
    assert.deepEqual(twice.leftOut, []);
    assert.deepEqual(lines(twice), ['(s) {', 'respond in', '}', 'a.example {', 'import s', '}']);
    const braceless = adapted('a.example\nimport args y\nrespond in\n', {}, files);
    assert.deepEqual(lines(braceless), [
      ...['(args) {', 'header X {args[0]}', '}', 'a.example', 'import args y', 'respond in'],
    ]);
  });

  it('refuses imports that are endless, too many, or too large together', () => {
    const code = (text: string, files: Files): string => {
      try {
        adapted(text, {}, files);
        return 'none';
      } catch (thrown) {
        if (thrown instanceof ConfigError)
          return thrown.problems.find(({ severity }) => severity === 'error')?.code ?? '';
        return Reflect.get(Object(thrown), 'code') ?? '';
      }
    };
    assert.equal(code('import a\n', { a: 'import a\n' }), 'import-cycle');
    assert.equal(code('import a\n', { a: 'import b\n', b: '"' }), 'unclosed-quote');
    const much = { a: `# ${'x'.repeat(1_000_000)}\n` };
    assert.equal(code('a.example {\n\timport a\n\timport a\n}\n', much), 'none');
    assert.equal(code(`a.example {\n${'\timport a\n'.repeat(5)}}\n`, much), 'too-large');
    assert.equal(code(`a.example {\n${'\timport a\n'.repeat(10_001)}}\n`, { a: '' }), 'too-large');
  });

  it('converts mercure to a hub, whose keys without an issuer use the 0.x protocol', () => {
    const text = 'a.example {\n\tmercure {\n\t\tpublisher_jwt k\n\t}\n}\n';
    assert.match(
      adapted(text).text,
      /hub \{\n\t\tprofile mercure\n\t\tprotocol_version_compatibility 8/,
    );
    const own = text.replace(
      'publisher_jwt k',
      'publisher_jwt k\n\t\tprotocol_version_compatibility 7',
    );
    assert.equal(adapted(own).text.split('protocol_version_compatibility').length, 2);
    const issuer = 'issuer https://a.example {\n\t\t\tpublisher {\n\t\t\t\tjwt k\n\t\t\t}\n\t\t}';
    const beside = adapted(text.replace('publisher_jwt k', `publisher_jwt k\n\t\t${issuer}`));
    assert.ok(!lines(beside).some((line) => line.startsWith('protocol_version_compatibility')));
  });
});
