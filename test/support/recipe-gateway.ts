import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import type { BrowserContext, Page } from 'playwright-core';
import { chromiumPath, launchChromium } from './chromium.ts';
import { freePort } from './free-port.ts';
import { startGateway } from './gateway.ts';
import { root } from './process.ts';
import { isMissed } from './program.ts';

/*
 * The installed program with a configuration of docs/apps.md, over TLS, in front of an application that
 * `.ci/install-applications` has installed.
 */

/** Path of what `.ci/install-applications` installs; without it the test is skipped aloud, and in CI fails. */
export function installedApplication(test: TestContext, path: string): string | null {
  const directory = process.env['HUBGATE_APPLICATIONS'];
  const found = directory === undefined ? null : join(directory, path);
  if (found !== null && existsSync(found)) return found;
  const how = '.ci/install-applications DIRECTORY, then HUBGATE_APPLICATIONS=DIRECTORY';
  isMissed(test, `${path} is not installed (${how})`);
  return null;
}

export interface RecipeGateway {
  /** `https://localhost:PORT`. */
  readonly origin: string;
  readonly port: number;
  readonly storage: string;
  /** The file of the authority that clients have to trust. */
  readonly authority: string;
}

/** Starts the program with the section's configuration, in front of a port of 127.0.0.1. */
export async function startRecipeGateway(
  test: TestContext,
  section: string,
  appPort: number,
  { live = true, also = '' } = {},
): Promise<RecipeGateway> {
  const port = await freePort();
  const text = recipeText(section)
    .replace(/^\S+ \{$/m, `localhost:${port} {\n\ttls internal`)
    .replace(/localhost:\d+$/m, `127.0.0.1:${appPort}`);
  assert.ok(text.includes(`127.0.0.1:${appPort}`), text);
  const changes = also === '' ? 'changes public' : `changes public {\n\t\t\talso ${also}\n\t\t}`;
  const site = live
    ? text.replace('changes public', changes)
    : text.replaceAll(/^\t(?:hub|discovery) \{\n[^]*?^\t\}\n/gm, '');
  assert.equal(/^\t\tlive$/m.test(site), live && text.includes('live'), site);
  const { storage, rootFile } = await startGateway(test, site);
  return { origin: `https://localhost:${port}`, port, storage, authority: rootFile };
}

function recipeText(section: string): string {
  const document = readFileSync(join(root, 'docs/apps.md'), 'utf8');
  const [, text] = document.split(new RegExp(`^## ${section}$`, 'm'));
  const [, block] = /^```hubfile\n([^]*?)^```$/m.exec(text ?? '') ?? [];
  assert.ok(block, `docs/apps.md has a recipe for ${section}`);
  return block;
}

/** Runs a client to its good end beside everything else; gives what it prints. */
export async function runClient(
  program: string,
  args: readonly string[],
  { cwd, env = {} }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 64 * 1024 * 1024 };
  const { stdout, stderr } = await promisify(execFile)(program, args, options);
  return stdout + stderr;
}

export interface RecipeVisitor {
  readonly gateway: RecipeGateway;
  readonly context: BrowserContext;
  /** Errors of pages, and whatever the script of live pages writes to the console. */
  readonly said: readonly string[];
}

/**
 * A visitor in Chromium; null where there is none. With `live`, each change of the application asks again for
 * the pages of `also` as well, which the recipe does not: the hardest that live pages can do to them.
 */
export async function visitRecipe(
  test: TestContext,
  section: string,
  appPort: number,
  { live, also }: { readonly live: boolean; readonly also: string },
): Promise<RecipeVisitor | null> {
  const executable = chromiumPath(test);
  if (executable === null) return null;
  const gateway = await startRecipeGateway(test, section, appPort, { live, also });
  const browser = await launchChromium(test, executable, gateway.storage);
  const context = await browser.newContext();
  const said: string[] = [];
  context.on('console', (message) => {
    if (message.location().url.includes('live.js')) said.push(message.text());
  });
  context.on('weberror', (error) => {
    said.push(error.error().stack ?? error.error().message);
  });
  return { gateway, context, said };
}

/** Opens a page; with `live`, waits until it follows the hub. */
export async function openPage(
  { gateway, context }: RecipeVisitor,
  path: string,
  live: boolean,
): Promise<Page> {
  const page = await context.newPage();
  const stream = live
    ? page.waitForResponse((answer) => answer.url().includes('/.well-known/hub?'))
    : null;
  await page.goto(gateway.origin + path);
  await stream;
  return page;
}

/** Resolves when the script of live pages has asked for the page again and had the time to show it. */
export async function askedAnew(page: Page): Promise<void> {
  const answer = await page.waitForResponse((one) => 'hub-live' in one.request().headers());
  await answer.finished();
  await page.evaluate(
    'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))',
  );
}
