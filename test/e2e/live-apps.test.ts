import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import {
  applicationDirectory,
  recipeOf,
  serveApplication,
  type Visitors,
  visitApplication,
} from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import { isMissed } from '../support/program.ts';
import { root } from '../support/process.ts';

/*
 * Applications that nobody here wrote, unchanged. Each is skipped aloud where it is not installed, and
 * missed in CI: DokuWiki and Django are Debian's packages (dokuwiki with php-cli, python3-django), jingo
 * is npm's. DOKUWIKI_ROOT, DJANGO_PYTHON and JINGO name others.
 */
const DOKUWIKI_ROOT = process.env['DOKUWIKI_ROOT'] ?? '/';
const JINGO = process.env['JINGO'];
const DJANGO_PYTHON = process.env['DJANGO_PYTHON'] ?? '/usr/bin/python3';

const visitors = (test: TestContext, port: number, application: string): Promise<Visitors | null> =>
  visitApplication(test, { ...recipeOf(application), routes: `reverse_proxy 127.0.0.1:${port}` });

describe('real applications behind hubgate, unchanged and live', () => {
  it('DokuWiki (PHP): an edit appears on the page that another visitor reads', async (test) => {
    const share = join(DOKUWIKI_ROOT, 'usr/share/dokuwiki');
    if (!existsSync(share)) {
      return isMissed(test, 'DokuWiki is not installed (apt-get install dokuwiki php-cli php-xml)');
    }
    const place = applicationDirectory(test);
    const [www, conf, data] = ['www', 'conf', 'data'].map((name) => join(place, name));
    assert.ok(www !== undefined && conf !== undefined && data !== undefined);
    cpSync(share, www, { recursive: true, filter: (path) => !path.endsWith('.htaccess') });
    for (const name of ['plugins', 'tpl']) {
      rmSync(join(www, 'lib', name), { force: true });
      cpSync(join(DOKUWIKI_ROOT, 'var/lib/dokuwiki/lib', name), join(www, 'lib', name), {
        recursive: true,
      });
    }
    cpSync(join(DOKUWIKI_ROOT, 'etc/dokuwiki'), conf, { recursive: true });
    cpSync(join(DOKUWIKI_ROOT, 'var/lib/dokuwiki/data'), data, { recursive: true });
    for (const name of [
      'pages',
      'attic',
      'media',
      'media_attic',
      'media_meta',
      'meta',
      'cache',
      'index',
      'locks',
      'tmp',
      'log',
    ]) {
      mkdirSync(join(data, name), { recursive: true });
    }
    writeFileSync(
      join(conf, 'local.php'),
      `<?php $conf['savedir'] = '${data}'; $conf['useacl'] = 0; $conf['updatecheck'] = 0;`,
    );
    const port = await freePort();
    const prepend = join(root, 'test/e2e/apps/dokuwiki.php');
    await serveApplication(
      test,
      'php',
      ['-d', `auto_prepend_file=${prepend}`, '-S', `127.0.0.1:${port}`, '-t', www],
      {
        env: { WIKI_CONF: conf, PHP_CLI_SERVER_WORKERS: '4' },
        port,
        cwd: www,
      },
    );
    const their = await visitors(test, port, 'DokuWiki');
    if (their === null) return;
    const reader = await their.follow(their.reader, '/doku.php?id=start');
    // Typing into the search while the other edits.
    await reader.locator('input[name=q]').first().pressSequentially('half a qu');
    const writer = await their.writer.newPage();
    await writer.goto(`${their.origin}/doku.php?id=start&do=edit`);
    await writer.locator('textarea[name=wikitext]').fill('Written by the other.');
    await writer.locator('button[name="do[save]"]').click();
    await reader.getByText('Written by the other.').waitFor();
    assert.equal(await reader.locator('input[name=q]').first().inputValue(), 'half a qu');
  });

  it('Django admin (Python): a list shows what another admin adds, but only to admins', async (test) => {
    if (spawnSync(DJANGO_PYTHON, ['-c', 'import django']).status !== 0) {
      return isMissed(test, 'Django is not installed (apt-get install python3-django)');
    }
    const place = applicationDirectory(test);
    const port = await freePort();
    await serveApplication(test, DJANGO_PYTHON, [join(root, 'test/e2e/apps/django_admin.py')], {
      env: { DATABASE: join(place, 'db.sqlite3'), PORT: String(port), PYTHONUNBUFFERED: '1' },
      port,
      cwd: place,
    });
    const their = await visitors(test, port, 'Django admin');
    if (their === null) return;
    for (const [context, name] of [
      [their.reader, 'alice'],
      [their.writer, 'bob'],
    ] as const) {
      const page = await context.newPage();
      await page.goto(`${their.origin}/admin/`);
      await page.fill('#id_username', name);
      await page.fill('#id_password', 'password');
      await page.click('input[type=submit]');
      await page.waitForURL('**/admin/');
    }
    const guest = await (await their.reader.browser()?.newContext())?.newPage();
    await guest?.goto(`${their.origin}/admin/auth/group/`);
    const reader = await their.follow(their.reader, '/admin/auth/group/');
    const writer = await their.writer.newPage();
    const other = await their.follow(their.reader, '/admin/auth/group/add/');
    await other.locator('#id_name').pressSequentially('half a na');
    await writer.goto(`${their.origin}/admin/auth/group/add/`);
    await writer.fill('#id_name', 'Editors');
    await writer.click('input[name=_save]');
    await reader.getByText('1 group', { exact: true }).waitFor();
    await reader.getByText('Editors', { exact: true }).waitFor();
    assert.equal(await other.locator('#id_name').inputValue(), 'half a na');
    assert.match(guest?.url() ?? '', /\/admin\/login\//);
    assert.equal(await guest?.getByText('Editors').count(), 0);
  });

  it('jingo (a wiki on Express, from npm): an edit appears on the page that another visitor reads', async (test) => {
    if (JINGO === undefined) {
      return isMissed(test, 'jingo is not installed (npm install jingo, JINGO=…/jingo/jingo)');
    }
    const place = applicationDirectory(test);
    const repository = join(place, 'pages');
    mkdirSync(repository);
    const git = (...args: readonly string[]): void => {
      const { status, stderr } = spawnSync('git', args, { cwd: repository, encoding: 'utf8' });
      assert.equal(status, 0, stderr);
    };
    writeFileSync(join(repository, 'Home.md'), '# Home\n\nWritten first.\n');
    git('init', '-q');
    git('config', 'user.email', 'test@example.com');
    git('config', 'user.name', 'test');
    git('add', '.');
    git('commit', '-qm', 'first');
    const port = await freePort();
    const passwordHash = createHash('sha1').update('password').digest('hex');
    const config = join(place, 'config.yaml');
    // JSON is YAML.
    writeFileSync(
      config,
      JSON.stringify({
        application: {
          title: 'Wiki',
          repository,
          git: 'git',
          secret: 'of a test',
          skipGitCheck: true,
        },
        authentication: {
          local: {
            enabled: true,
            accounts: [{ username: 'bob', passwordHash, email: 'bob@example.com' }],
          },
        },
        server: {
          hostname: 'localhost',
          port,
          localOnly: true,
          baseUrl: `http://localhost:${port}`,
        },
        authorization: { anonRead: true, validMatches: '.+' },
        features: { codemirror: true, gravatar: false },
      }),
    );
    await serveApplication(test, process.execPath, [JINGO, '-c', config], {
      env: {},
      port,
      cwd: place,
    });
    const their = await visitors(test, port, 'jingo');
    if (their === null) return;
    const reader = await their.follow(their.reader, '/wiki/Home');
    const search = reader.locator('input[name=term]').first();
    await search.pressSequentially('half a te');
    const writer = await their.writer.newPage();
    await writer.goto(`${their.origin}/login`);
    await writer.fill('input[name=username]', 'bob');
    await writer.fill('input[name=password]', 'password');
    await writer.locator('input[name=password]').press('Enter');
    await writer.waitForURL((url) => url.pathname !== '/login');
    await writer.goto(`${their.origin}/pages/Home/edit`);
    // Its editor hides the textarea.
    await writer.evaluate(`(() => {
      const area = document.querySelector('textarea[name=content]');
      area.value = 'Written by the other.';
      HTMLFormElement.prototype.submit.call(area.form);
    })()`);
    await reader.getByText('Written by the other.').waitFor();
    assert.equal(await search.inputValue(), 'half a te');
  });

  it('the message board of examples/live: two lines of Hubfile, and no change to the app', async (test) => {
    const port = await freePort();
    const server = join(root, 'examples/live/server.mjs');
    await serveApplication(test, process.execPath, [server], {
      env: { PORT: String(port) },
      port,
      cwd: root,
    });
    const their = await visitApplication(test, {
      discovery: '\n\t\tchanges public\n\t\tlive',
      routes: `reverse_proxy 127.0.0.1:${port}`,
    });
    if (their === null) return;
    const [reader, writer] = [
      await their.follow(their.reader, '/'),
      await their.follow(their.writer, '/'),
    ];
    await reader.fill('input[name=text]', 'half a sen');
    await writer.fill('input[name=from]', 'Ann & Co');
    await writer.fill('input[name=text]', 'from the other');
    await writer.click('button');
    await reader.getByText('from the other').waitFor();
    await writer.getByText('Ann & Co (you)').waitFor();
    assert.equal(await writer.locator('input[name=from]').inputValue(), 'Ann & Co', 'it stays');
    assert.equal(await reader.locator('input[name=from]').inputValue(), '');
    assert.equal(await reader.locator('input[name=text]').inputValue(), 'half a sen');
    assert.equal(await writer.locator('input[name=text]').inputValue(), '');
  });
});
