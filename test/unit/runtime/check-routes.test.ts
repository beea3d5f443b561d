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
    [
      'reverse_proxy localhost:1 {\n\tmethod GET\n\trewrite /verify\n\t@good status 2xx\n\thandle_response @good {\n\t\trequest_header Remote-User {rp.header.Remote-User}\n\t}\n}\nreverse_proxy localhost:2',
      [],
    ],
    [
      'route {\n\treverse_proxy localhost:1 {\n\t\thandle_response {\n\t\t\trespond /a one\n\t\t}\n\t}\n\trespond two\n}',
      [],
    ],
    [
      'reverse_proxy localhost:1 {\n\thandle_response {\n\t\tcopy_response\n\t}\n\t@bad status 5xx\n\treplace_status @bad 404\n}\nreverse_proxy localhost:2',
      ['unreachable-route'],
    ],
    [
      'php_fastcgi localhost:1 {\n\thandle_response {\n\t\theader X-A b\n\t}\n}\nreverse_proxy localhost:2',
      [],
    ],
    [
      'forward_auth localhost:1 {\n\turi /a\n\thandle_response {\n\t\theader X-A b\n\t}\n}\nreverse_proxy localhost:2',
      ['refusal-continues'],
    ],
    [
      'forward_auth localhost:1 {\n\turi /a\n\thandle_response {\n\t\trespond 403\n\t}\n}\nreverse_proxy localhost:2',
      [],
    ],
    ['handle /a/* {\n\trespond one\n}\nhandle {\n\trespond two\n}', []],
    ['request_header -Host', ['host-stays']],
    ['request_header -Ho*', ['host-stays']],
    ['request_header -Hos\nrequest_header Host a.example', []],
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
