import assert from 'node:assert/strict';
import { appendFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import {
  applicationDirectory,
  nextMorph,
  recipeOf,
  runProgram,
  serveApplication,
  type Visitors,
  visitApplication,
} from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import { isMissed } from '../support/program.ts';

/*
 * MediaWiki of Debian (mediawiki, php-cli, php-sqlite3), unchanged. MEDIAWIKI_ROOT names another.
 */
const MEDIAWIKI_ROOT = process.env['MEDIAWIKI_ROOT'] ?? '/usr/share/mediawiki';
const PASSWORD = 'a password of tests';

const { discovery: DISCOVERY } = recipeOf('MediaWiki');

async function wiki(test: TestContext, discovery: string | null): Promise<Visitors | null> {
  if (!existsSync(join(MEDIAWIKI_ROOT, 'maintenance/install.php'))) {
    isMissed(test, 'MediaWiki is not installed (apt-get install mediawiki php-cli php-sqlite3)');
    return null;
  }
  const place = applicationDirectory(test);
  runProgram(
    'php',
    [
      join(MEDIAWIKI_ROOT, 'maintenance/install.php'),
      ...['--confpath', place, '--dbtype', 'sqlite', '--dbpath', place, '--dbname', 'wiki'],
      ...['--pass', PASSWORD, '--server', 'http://localhost', '--scriptpath', ''],
      ...['Wiki', 'Admin'],
    ],
    place,
  );
  const settings = join(place, 'LocalSettings.php');
  appendFileSync(settings, "\n$wgServer = 'http://' . ($_SERVER['HTTP_HOST'] ?? 'localhost');\n");
  const port = await freePort();
  await serveApplication(test, 'php', ['-S', `127.0.0.1:${port}`, '-t', MEDIAWIKI_ROOT], {
    env: { MW_CONFIG_FILE: settings, PHP_CLI_SERVER_WORKERS: '6' },
    port,
    cwd: MEDIAWIKI_ROOT,
  });
  return visitApplication(test, { discovery, routes: `reverse_proxy 127.0.0.1:${port}` });
}

/** As an account: MediaWiki sees no conflict between two edits of one address without one. */
async function logIn({ origin, writer }: Visitors): Promise<Page> {
  const page = await writer.newPage();
  await page.goto(`${origin}/index.php/Special:UserLogin`);
  await page.fill('#wpName1', 'Admin');
  await page.fill('#wpPassword1', PASSWORD);
  await page.click('#wpLoginAttempt');
  await page.waitForURL((url) => !url.pathname.includes('UserLogin'));
  return page;
}

async function edit(page: Page, origin: string, title: string, text: string): Promise<void> {
  await page.goto(`${origin}/index.php?title=${title}&action=edit`);
  await page.fill('#wpTextbox1', text);
  await page.click('#wpSave');
  await page.waitForURL((url) => !url.search.includes('action='));
}

describe('MediaWiki', () => {
  for (const discovery of [DISCOVERY, null]) {
    const title = `finds an edit conflict ${discovery === null ? 'without' : 'with'} live pages`;
    it(title, async (test) => {
      const their = await wiki(test, discovery);
      if (their === null) return;
      const { origin, reader } = their;
      const writer = await logIn(their);
      await edit(writer, origin, 'Plan', 'First line.');
      const form = await their.follow(reader, '/index.php?title=Plan&action=edit');
      await form.fill('#wpTextbox1', 'What the reader wants.');
      const revision = await form.inputValue('[name=editRevId]');
      const morph = discovery === null ? null : await nextMorph(form);
      await edit(writer, origin, 'Plan', 'What the writer wants.');
      await morph?.shown();
      assert.equal(await form.inputValue('[name=editRevId]'), revision);
      assert.equal(await form.inputValue('#wpTextbox1'), 'What the reader wants.');
      await form.click('#wpSave');
      await form.waitForLoadState();
      await form.getByText('Edit conflict').first().waitFor();
      await writer.goto(`${origin}/index.php/Plan`);
      await writer.getByText('What the writer wants.').waitFor();
    });
  }

  it('shows an edit under each URL of its page, and fetches no other page', async (test) => {
    const their = await wiki(test, DISCOVERY);
    if (their === null) return;
    const { origin, reader } = their;
    const writer = await logIn(their);
    for (const title of ['Plan', 'Other']) await edit(writer, origin, title, 'First line.');
    const asked: string[] = [];
    const open = async (path: string): Promise<Page> => {
      const page = await their.follow(reader, path);
      page.on('request', (request) => {
        if ('hub-live' in request.headers()) asked.push(path);
      });
      return page;
    };
    const [pretty, plain, other] = [
      await open('/index.php/Plan'),
      await open('/index.php?title=Plan'),
      await open('/index.php?title=Other'),
    ];
    const quiet = consoleOf([pretty, plain, other]);
    await edit(writer, origin, 'Plan', 'Second line.');
    await pretty.getByText('Second line.').waitFor();
    await plain.getByText('Second line.').waitFor();
    await edit(writer, origin, 'Other', 'Third line.');
    await other.getByText('Third line.').waitFor();
    assert.equal(asked.filter((path) => path.endsWith('Other')).length, 1, asked.join());
    assert.deepEqual(quiet, []);
  });

  it('keeps the filters of recent changes, which scripts build', async (test) => {
    const their = await wiki(test, DISCOVERY);
    if (their === null) return;
    const { origin, reader } = their;
    const writer = await logIn(their);
    await edit(writer, origin, 'Plan', 'First line.');
    const changes = await their.follow(reader, '/index.php/Special:RecentChanges');
    const filters = changes.locator('.mw-rcfilters-ui-filterWrapperWidget');
    await filters.waitFor();
    await changes.locator('.mw-rcfilters-ui-ready, .mw-rcfilters-ui-initialized').first().waitFor();
    const built = await filters.locator('*').count();
    assert.ok(built > 20, `${built} elements`);
    const morph = await nextMorph(changes);
    await edit(writer, origin, 'News', 'Second line.');
    await morph.shown();
    assert.equal(await filters.locator('*').count(), built);
    // Its script owns the list: either it is shown, or the visitor is told.
    const news = changes.locator('.mw-changeslist').getByText('News').first();
    await news.or(changes.locator('#hub-stale')).first().waitFor();
    await filters.locator('input').first().click();
    await changes.locator('.mw-rcfilters-ui-menuSelectWidget').first().waitFor();
  });
});

/** What pages write to the console. */
function consoleOf(pages: readonly Page[]): string[] {
  const said: string[] = [];
  for (const page of pages) {
    page.on('console', (message) => {
      if (message.text().includes('live.js')) said.push(message.text());
    });
    page.on('pageerror', (error) => said.push(error.message));
  }
  return said;
}
