import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { directiveTable } from '../../../src/directives/registry.ts';
import { differencesFromCaddy, isCaddyfile } from '../../../src/hubfile/caddyfile.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { runCommand } from '../../support/process.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';

function notesOn(text: string): string[] {
  const found = differencesFromCaddy(text, 'Caddyfile', diskIo({}), directiveTable);
  return found.map(({ place, message }) => `${place?.line}: ${message.split(': ')[0]}`);
}

describe('documented differences from Caddy', () => {
  it('include blocks for errors with a status in common, which Caddy runs in another order', () => {
    const text = `a.example.com {
	handle_errors 404 410 {
		respond one
	}
	handle_errors 5xx {
		respond two
	}
	handle_errors {
		respond all
	}
	handle_errors 4xx {
		respond three
	}
	handle_errors 502 {
		respond four
	}
}
b.example.com {
	handle_errors 404 {
		respond one
	}
	handle_errors 403 {
		respond two
	}
}
`;
    const about = 'handle_errors differs from Caddy';
    assert.deepEqual(notesOn(text), [`11: ${about}`]);
    assert.deepEqual(notesOn(text.replace('4xx', '405')), [`14: ${about}`]);
  });

  it('include the message of an error, which is empty if no error directive gave it', () => {
    const about = 'the value of {err.message} differs from Caddy';
    for (const name of ['err.message', 'http.error.message']) {
      const text = `a.example.com {\n\thandle_errors {\n\t\trespond "{${name}}"\n\t}\n}\n`;
      assert.deepEqual(notesOn(text), [`3: ${about.replace('err.message', name)}`]);
    }
  });

  it('are told once each, where the text first touches them', () => {
    const text = `{
	admin localhost:2019
	grace_period 5s
}
(common) {
	header X-Path {path}
}
a.example.com {
	import common
	@static {
		path /static/{vars.kind}/*
		not expression \`{method} == 'GET'\`
	}
	handle @static {
		file_server {
			hide .git
		}
		respond {http.request.uri.path}
	}
	reverse_proxy localhost:3000 {
		flush_interval 100ms
		transport http {
			versions 1.1
		}
	}
}
b.example.com {
	log
	file_server browse
}
`;
    assert.deepEqual(notesOn(text), [
      '2: admin differs from Caddy',
      '6: the value of {path} differs from Caddy',
      '11: path differs from Caddy',
      '12: expression differs from Caddy',
      '15: file_server differs from Caddy',
      '18: the value of {http.request.uri.path} differs from Caddy',
      '21: flush_interval differs from Caddy',
      '28: log differs from Caddy',
    ]);
  });

  it('are not told of a text that touches none', () => {
    const text = `{
	admin off
	order respond first
}
example.com {
	log {
		format filter {
			status delete
		}
	}
	encode gzip
	@api path /api/* /v1/*
	try_files {path} {path}/ /index.html
	reverse_proxy @api localhost:3000 {
		flush_interval -1
	}
	redir /old /new
	respond "\\{path\\}"
}
`;
    assert.deepEqual(notesOn(text), []);
  });

  it('are told by validate of a file that is called Caddyfile, and of no other', async (test) => {
    const directory = await temporaryDirectory(test);
    const text = `{\n\tstorage ${directory}\n}\nhttp://localhost:8080 {\n\tlog\n\trespond ok\n}\n`;
    for (const [name, isTold] of [
      ['Caddyfile', true],
      ['Caddyfile.prod', true],
      ['site.caddy', true],
      ['Hubfile', false],
    ] as const) {
      const file = join(directory, name);
      assert.equal(isCaddyfile(file), isTold);
      await writeFile(file, text);
      const { code, stderr } = await runCommand(['validate', '--config', file]);
      assert.equal(code, 0, stderr);
      assert.equal(stderr.includes(`${name}:5:2: note: log differs from Caddy`), isTold, stderr);
    }
  });
});
