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
  it('include those of a directive, of a placeholder, and those between fields of different sites', () => {
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

  it('exclude those that may only follow from a part that could not be read', () => {
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

  it('include those of one site, although another has a mistake', () => {
    const text = `http://a.example {
	respnd "oops"
}
http://b.example {
	hub {
		issuer https://b.example {
			publisher {
				jwt short RS256
			}
		}
	}
	@p path_regexp (
	respond @p ok
}
https://c.example {
	tls /absent.crt /absent.key
	log {
		output file /etc
	}
	discovery {
		hub d.example
	}
}
`;
    assert.deepEqual(problemsOf(text), [
      '2 unknown-directive',
      '5 no-subscriber-key',
      '8 invalid-key',
      '12 invalid-pattern',
      '16 unreadable-file',
      '16 unreadable-file',
      '18 unusable-log-file',
    ]);
  });

  it('include those before a mistake that stops the reading', () => {
    const text = `http://a.example {
	respnd "oops"
}
http://b.example {
	discovery
}
http://c.example {
	discovery
	redirect /x
	respond "never closed
}
`;
    assert.deepEqual(problemsOf(text), [
      '2 unknown-directive',
      '5 discovery-without-hub',
      '9 unknown-directive',
      '10 unclosed-quote',
    ]);
  });

  it('include those of the other sites if one site has the wrong shape in YAML or JSON', () => {
    const site = (host: string, more: string) =>
      `{"addresses": [{"scheme": "http", "host": "${host}"}], ${more}}`;
    const data = `{"sites": [
      ${site('a.example', '"routs": []')},
      ${site('b.example', '"discovery": {}')},
      ${site('c.example', '"discovery": {}, "bind": 7')}
    ]}`;
    assert.deepEqual(problemsOf(data, '/etc/hub.json'), [
      '2 unknown-member',
      '3 discovery-without-hub',
      '4 bad-value',
    ]);
  });

  it('include a part that an alias uses from elsewhere, wherever it is used', () => {
    const yaml = `sites:
  - addresses: [{ host: a.example, scheme: http }]
    bind: &wrong 7
  - addresses: [{ host: b.example, scheme: http }]
    bind: *wrong
    discovery: {}
`;
    assert.deepEqual(problemsOf(yaml, '/etc/hub.yaml'), ['3 bad-value', '5 bad-value']);
  });
});
