import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError } from '../../../src/config/problem.ts';
import type { HubfileIo } from '../../../src/hubfile/expand.ts';
import { loadConfig } from '../../../src/load-config.ts';

/** Line and code of every problem that a configuration is refused with. */
function problemsOf(text: string, file = '/etc/Hubfile'): string[] {
  const read = (path: string): Uint8Array => {
    if (path === file) return new TextEncoder().encode(text);
    throw Object.assign(new Error('no such file'), { code: 'ENOENT' });
  };
  const io: HubfileIo = { env: {}, glob: () => [], read };
  try {
    loadConfig(file, io);
    return [];
  } catch (thrown) {
    assert.ok(thrown instanceof ConfigError);
    return thrown.problems
      .filter(({ severity }) => severity === 'error')
      .map(({ place, code }) => `${place?.line ?? 0} ${code}`);
  }
}

describe('all problems of a file at once (hubfile.md §1)', () => {
  it('those of a directive, of a placeholder, and those across fields of other sites', () => {
    const text = `http://a.example {
	respnd "oops"
}
http://b.example {
	respond {file.absent}
}
http://c.example, http://b.example {
	discovery
	reverse_proxy localhost:1
}
`;
    assert.deepEqual(problemsOf(text), [
      '2 unknown-directive',
      '5 unreadable-file',
      '7 duplicate-address',
      '8 discovery-without-hub',
    ]);
  });

  it('but nothing that may only follow from what could not be read', () => {
    // Without its wrong line the hub would have an issuer, and discovery a hub.
    const inSite = 'http://a.example {\n\thub {\n\t\tisuer x\n\t}\n\tdiscovery\n}\n';
    assert.deepEqual(problemsOf(inSite), ['3 unknown-option']);
    // With the right port the two sites would not meet.
    const inOptions = '{\n\thttp_port none\n}\nhttp://a.example {\n}\nhttp://a.example:80 {\n}\n';
    assert.deepEqual(problemsOf(inOptions), ['2 bad-value']);
    const site = '{"addresses": [{"scheme": "http", "host": "a.example"}]}';
    const data = `{"options": {"httpPort": "none"}, "sites": [${site}, ${site}]}`;
    assert.equal(problemsOf(data, '/etc/hub.json').length, 1);
  });
});
