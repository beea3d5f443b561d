import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('handle_errors', () => {
  it('runs the first block for the status, and the general one last', async (test) => {
    const root = await temporaryDirectory(test);
    await writeFile(join(root, 'missing.html'), 'is missing');
    await mkdir(join(root, 'x'));
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(
      test,
      `${origin} {
	root * ${root}
	error /denied "no: {path}" 403
	error /teapot 418
	error /late 410
	error /broken "inside" 500
	error /bad 502
	file_server
	handle_errors 404 410 {
		rewrite * /missing.html
		file_server
	}
	handle_errors {
		respond "all {err.status_code}"
	}
	handle_errors 4xx {
		@denied error_status 403
		respond @denied "denied {err.message}|{http.error.message}"
		respond "4xx {http.error.status_code} {err.message}"
	}
	handle_errors 403 {
		respond "never"
	}
	handle_errors 502 {
		respond "bad {http.error.id}" 503
	}
}
`,
    );
    for (const [path, status, body] of [
      ['/none', 404, /^is missing$/],
      ['/late', 410, /^is missing$/],
      ['/denied', 403, /^denied no: \/denied\|no: \/denied$/],
      ['/teapot', 418, /^4xx 418 $/],
      ['/broken', 500, /^all 500$/],
      ['/bad', 503, /^bad [\w-]+$/],
    ] as const) {
      const answer = await send(`${origin}${path}`);
      assert.equal(answer.status, status, path);
      assert.match(answer.body, body);
    }
  });

  it('gives the same responses as Caddy for all errors', async (test) => {
    const directives = `
	error /denied "no" 403
	error /bad 502
	respond /ok ok
	error 404
	handle_errors {
		respond "{http.error.status_code} {http.error.status_text} {err.status_code}" 
	}
`;
    const origin = `http://127.0.0.1:${await freePort()}`;
    await startGateway(test, `${origin} {${directives}}\n`);
    const caddy = await startCaddy(test, directives);
    if (caddy === null) return;
    for (const path of ['/denied', '/bad', '/none', '/ok']) {
      const own = await send(`${origin}${path}`);
      const theirs = await send(`${caddy}${path}`);
      assert.equal(own.body, theirs.body, path);
    }
  });
});
