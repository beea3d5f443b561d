import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadConfig } from '../../../src/load-config.ts';

/** The codes of the warnings about a site on a machine that has one directory and, perhaps, zstd. */
function warningsOf(site: string, hasZstd = true): readonly string[] {
  const text = `{\n\tadmin off\n}\nhttp://a.example {\n${site}\n}\n`;
  const machine = { exists: (path: string) => path === '/srv/there', hasZstd };
  const { warnings } = loadConfig('Hubfile', {
    read: () => Buffer.from(text),
    glob: () => [],
    env: {},
    machine,
  });
  return warnings.map(({ code }) => code);
}

describe('routes that do not do what they appear to do', () => {
  for (const [site, codes, hasZstd] of [
    ['reverse_proxy localhost:1\nreverse_proxy localhost:2', ['unreachable-route']],
    ['reverse_proxy /a localhost:1\nreverse_proxy localhost:2', []],
    ['route {\n\trespond /a one\n\trespond two\n\tfile_server\n}', ['unreachable-route']],
    ['route {\n\tfile_server {\n\t\tpass_thru\n\t}\n\treverse_proxy localhost:1\n}', []],
    ['handle /a/* {\n\trespond one\n}\nhandle {\n\trespond two\n}', []],
    ['root /nope\nfile_server', ['missing-root']],
    ['root /srv/there\nfile_server', []],
    ['root /srv/{host}\nfile_server', []],
    ['encode zstd gzip\nrespond a', ['no-zstd'], false],
    ['encode zstd gzip\nrespond a', []],
    ['handle_path /api {\n\trespond a\n}', ['handle-path-without-star']],
    ['handle_path /api/* {\n\trespond a\n}', []],
    ['respond "hello {hots}"', ['unknown-placeholder']],
    ['respond "{hello} {color}"', []],
    ['header X-A {header.X', ['unclosed-placeholder']],
    ['respond "body { color: {host} }"', []],
  ] as const) {
    it(`${JSON.stringify(site)}: ${codes.join(' ') || 'no warning'}`, () => {
      assert.deepEqual(warningsOf(site, hasZstd ?? true), codes);
    });
  }
});
