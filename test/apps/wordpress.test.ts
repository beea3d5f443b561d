import assert from 'node:assert/strict';
import { cpSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { BrowserContext, Page } from 'playwright-core';
import {
  applicationDirectory,
  nextMorph,
  recipeOf,
  runProgram,
  serveApplication,
  type Visitors,
  visitApplication,
} from '../support/application.ts';
import { startPhpFpm } from '../support/php-fpm.ts';
import { isMissed, programPath } from '../support/program.ts';

/*
 * WordPress of Debian (wordpress, wordpress-theme-twentytwentythree, php-fpm, php-mysql, mariadb-server),
 * unchanged, over FastCGI. WORDPRESS_ROOT names another.
 */
const WORDPRESS_ROOT = process.env['WORDPRESS_ROOT'] ?? '/usr/share/wordpress';
const PASSWORD = 'a password of tests';

const { discovery: DISCOVERY, matchers: MATCHERS } = recipeOf('WordPress');

/** A database of its own, which listens at a socket alone; null where there is none. */
async function startMariadb(test: TestContext, place: string): Promise<string | null> {
  const server = programPath(test, 'mariadbd', 'mariadb-server');
  const install = server && programPath(test, 'mariadb-install-db', 'mariadb-server');
  if (server === null || install === null) return null;
  const [data, socket] = [join(place, 'database'), join(place, 'db.sock')];
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  const options = ['--no-defaults', `--datadir=${data}`, ...user];
  runProgram(install, [...options, '--auth-root-authentication-method=normal', '--skip-test-db']);
  const args = [...options, `--socket=${socket}`, '--skip-networking'];
  await serveApplication(test, server, args, { port: socket, cwd: place });
  runProgram('mariadb', [
    '--no-defaults',
    '-S',
    socket,
    '-u',
    'root',
    '-e',
    'create database wordpress',
  ]);
  return socket;
}

const CONFIGURATION = (socket: string): string => `<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:${socket}');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
  define("{$name}_KEY", "key of tests $name");
  define("{$name}_SALT", "salt of tests $name");
}
$origin = 'http://' . ($_SERVER['HTTP_HOST'] ?? 'localhost');
define('WP_HOME', $origin);
define('WP_SITEURL', $origin);
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
`;

const INSTALLATION = (www: string): string => `<?php
define('WP_INSTALLING', true);
require '${www}/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Site', 'admin', 'admin@example.com', true, '', '${PASSWORD}');
update_option('permalink_structure', '/%postname%/');
update_option('comment_previously_approved', 0);
$wp_rewrite->init();
$wp_rewrite->flush_rules();
$user = new WP_User(wp_create_user('editor', '${PASSWORD}', 'editor@example.com'));
$user->set_role('editor');
foreach (get_users() as $user) {
  // Gutenberg greets whoever opens it first.
  update_user_meta($user->ID, 'wp_persisted_preferences', ['core/edit-post' => ['welcomeGuide' => false], '_modified' => '2030-01-01T00:00:00.000Z']);
}
`;

async function blog(test: TestContext, discovery: string | null): Promise<Visitors | null> {
  if (!existsSync(join(WORDPRESS_ROOT, 'wp-settings.php'))) {
    const packages = 'wordpress wordpress-theme-twentytwentythree php-fpm php-mysql mariadb-server';
    isMissed(test, `WordPress is not installed (apt-get install ${packages})`);
    return null;
  }
  const fpm = await startPhpFpm(test);
  if (fpm === null) return null;
  const place = applicationDirectory(test);
  const socket = await startMariadb(test, place);
  if (socket === null) return null;
  const www = join(place, 'www');
  cpSync(WORDPRESS_ROOT, www, { recursive: true, dereference: true });
  rmSync(join(www, 'wp-config.php'), { force: true });
  writeFileSync(join(www, 'wp-config.php'), CONFIGURATION(socket));
  writeFileSync(join(place, 'install.php'), INSTALLATION(www));
  runProgram('php', [join(place, 'install.php')]);
  const routes = `${MATCHERS}\n\troot * ${www}\n\tphp_fastcgi ${fpm.upstream}\n\tfile_server`;
  return visitApplication(test, { discovery, routes });
}

async function logIn(context: BrowserContext, origin: string, name: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${origin}/wp-login.php`);
  // A script of the page moves the focus there after a while, and text that is typed meanwhile with it.
  await page.locator('#user_login:focus').waitFor();
  await page.fill('#user_login', name);
  await page.fill('#user_pass', PASSWORD);
  await page.click('#wp-submit');
  await page.waitForURL('**/wp-admin/**');
  return page;
}

/** Saves a post as the block editor does, by the REST API. */
async function save(page: Page, id: number | null, data: Record<string, string>): Promise<void> {
  const request = { path: `/wp/v2/posts${id === null ? '' : `/${id}`}`, method: 'POST', data };
  await page.waitForFunction('window.wp && window.wp.apiFetch');
  await page.evaluate(`wp.apiFetch(${JSON.stringify(request)}).then(() => null)`);
}

const PARAGRAPH = (text: string): string =>
  `<!-- wp:paragraph --><p>${text}</p><!-- /wp:paragraph -->`;

describe('WordPress', () => {
  it('keeps the block editor open while another user saves the same post', async (test) => {
    const their = await blog(test, DISCOVERY);
    if (their === null) return;
    const { origin, reader, writer } = their;
    await logIn(reader, origin, 'admin');
    const other = await logIn(writer, origin, 'editor');
    await other.goto(`${origin}/wp-admin/post-new.php`);
    const editor = await their.follow(reader, '/wp-admin/post.php?post=1&action=edit');
    const nodes = editor.locator('#editor *');
    await editor.locator('.editor-post-title').first().waitFor();
    await editor.locator('.block-editor-block-list__block').first().waitFor();
    const title = editor.locator('.editor-post-title__input, .editor-post-title').first();
    await title.click();
    await title.press('End');
    await editor.keyboard.type(' and more');
    const built = await nodes.count();
    assert.ok(built > 100, `${built} elements`);
    const morph = await nextMorph(editor);
    await save(other, 1, { title: 'Saved by the other', content: PARAGRAPH('of the other') });
    await morph.shown();
    assert.ok((await nodes.count()) >= built - 20, `${await nodes.count()} of ${built}`);
    assert.match(await title.innerText(), /and more/);
    await editor.keyboard.type(' than that');
    assert.match(await title.innerText(), /and more than that/);
  });

  it('shows a change saved in the editor on the page and the front page', async (test) => {
    const their = await blog(test, DISCOVERY);
    if (their === null) return;
    const { origin, reader, writer } = their;
    const other = await logIn(writer, origin, 'editor');
    await other.goto(`${origin}/wp-admin/post-new.php`);
    const post = await their.follow(reader, '/hello-world/');
    const front = await their.follow(reader, '/');
    const said = errorsOf([post, front]);
    await save(other, 1, { title: 'Saved by the other', content: PARAGRAPH('of the other') });
    await post.getByText('of the other').waitFor();
    await front.getByText('Saved by the other').first().waitFor();
    assert.deepEqual(said, []);
  });

  it('shows a new comment to a reader who is writing one', async (test) => {
    const their = await blog(test, DISCOVERY);
    if (their === null) return;
    const { origin, reader, writer } = their;
    const post = await their.follow(reader, '/hello-world/');
    await post.fill('#comment', 'half a com');
    const other = await writer.newPage();
    await other.goto(`${origin}/hello-world/`);
    await other.fill('#comment', 'Written by the other.');
    await other.fill('#author', 'Other');
    await other.fill('#email', 'other@example.com');
    await other.click('#submit');
    await other.waitForURL('**/hello-world/**');
    await post.getByText('Written by the other.').waitFor();
    assert.equal(await post.inputValue('#comment'), 'half a com');
  });

  for (const discovery of [DISCOVERY, null]) {
    const title = `keeps Screen Options open ${discovery === null ? 'without' : 'with'} live pages`;
    it(title, async (test) => {
      const their = await blog(test, discovery);
      if (their === null) return;
      const { origin, reader, writer } = their;
      await logIn(reader, origin, 'admin');
      const other = await logIn(writer, origin, 'editor');
      await other.goto(`${origin}/wp-admin/post-new.php`);
      const list = await their.follow(reader, '/wp-admin/edit.php');
      await list.click('#show-settings-link');
      const options = list.locator('#screen-options-wrap');
      await options.waitFor({ state: 'visible' });
      await list
        .locator('#screen-options-wrap[style*="display: block"]')
        .or(options)
        .first()
        .waitFor();
      await save(other, null, { title: 'A new post', status: 'publish' });
      if (discovery !== null)
        await list.locator('#the-list').getByText('A new post').first().waitFor();
      assert.ok(await options.isVisible());
    });
  }
});

/** Errors of scripts, and what the script of live pages writes to the console. */
function errorsOf(pages: readonly Page[]): string[] {
  const said: string[] = [];
  for (const page of pages) {
    page.on('console', (message) => {
      if (message.location().url.includes('live.js')) said.push(message.text());
    });
    page.on('pageerror', (error) => said.push(error.message));
  }
  return said;
}
