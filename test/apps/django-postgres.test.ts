import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Page } from 'playwright-core';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { documentedBlocks } from '../support/documented-blocks.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { cli, root } from '../support/process.ts';
import { isMissed, programPath } from '../support/program.ts';

const DJANGO_PYTHON = process.env['DJANGO_PYTHON'] ?? '/usr/bin/python3';
/** A table of Django, and the pages of its admin for that. */
const LIST = '/admin/auth/group/';
const ROW = `${LIST}{id}/change/`;

/** The command of docs/database.md that begins so, for the table of this app. */
function documented(start: string): string {
  const blocks = documentedBlocks('docs/database.md').map(({ text }) => text);
  const block = blocks.find((text) => text.startsWith(start)) ?? assert.fail(start);
  return block
    .replace(
      '--table books --topic /books/{id} --also /books',
      `--table auth_group --topic ${ROW} --also ${LIST}`,
    )
    .replace("UPDATE books SET title = 'Dune' WHERE id = 7", "UPDATE auth_group SET name = 'Dune'");
}

describe('an unmodified app on PostgreSQL, with one trigger', () => {
  it('shows an UPDATE in psql in two browsers on two nodes', async (test) => {
    if (spawnSync(DJANGO_PYTHON, ['-c', 'import django, psycopg2']).status !== 0) {
      return isMissed(test, 'install python3-django and python3-psycopg2');
    }
    const executable = chromiumPath(test);
    const psql = programPath(test, 'psql', 'postgresql-client');
    const server = await startPostgres(test, test);
    if (executable === null || psql === null || server === null) return;
    const place = applicationDirectory(test);
    const port = await freePort();
    await serveApplication(test, DJANGO_PYTHON, [join(root, 'test/e2e/apps/django_admin.py')], {
      env: { DATABASE: server.url, PORT: String(port), PYTHONUNBUFFERED: '1' },
      port,
      cwd: place,
    });
    await server.query(`INSERT INTO auth_group (name) VALUES ('Editors')`);

    const bin = join(place, 'bin');
    mkdirSync(bin);
    writeFileSync(join(bin, 'hubgate'), `#!/bin/sh\nexec '${process.execPath}' '${cli}' "$@"\n`);
    chmodSync(join(bin, 'hubgate'), 0o755);
    const env = {
      ...process.env,
      PATH: `${bin}:${process.env['PATH'] ?? ''}`,
      DATABASE_URL: server.url,
    };
    const run = (script: string): void => {
      execFileSync('bash', ['-eo', 'pipefail', '-c', script], { env, stdio: 'pipe' });
    };
    run(documented('hubgate outbox sql | psql'));

    const origins = [await freePort(), await freePort()].map((one) => `http://localhost:${one}`);
    for (const origin of origins) {
      await startGateway(
        test,
        `${origin} {
	hub {
		anonymous
		cookie_name hub_token
		transport postgres {
			url ${server.url}
			stream books
		}
		outbox ${server.url} {
			topics ${LIST} ${LIST}*
			origins ${origins.join(' ')}
		}
	}
	discovery {
		live
	}
	reverse_proxy 127.0.0.1:${port}
}
`,
      );
    }
    const browser = await launchChromium(test, executable, null);
    const pages: Page[] = [];
    for (const [index, origin] of origins.entries()) {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(`${origin}/admin/`);
      await page.fill('#id_username', ['alice', 'bob'][index] ?? '');
      await page.fill('#id_password', 'password');
      await page.click('input[type=submit]');
      await page.waitForURL('**/admin/');
      const stream = page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'));
      await page.goto(origin + LIST);
      await stream;
      await page.getByRole('link', { name: 'Editors', exact: true }).waitFor();
      pages.push(page);
    }
    run(documented('psql "$DATABASE_URL"'));
    for (const page of pages) {
      await page.getByRole('link', { name: 'Dune', exact: true }).waitFor();
      assert.equal(await page.getByRole('link', { name: 'Editors', exact: true }).count(), 0);
    }
  });
});
