import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { applicationDirectory, serveApplication } from '../support/application.ts';
import { freePort } from '../support/free-port.ts';
import {
  askedAnew,
  installedApplication,
  openPage,
  type RecipeVisitor,
  runClient,
  visitRecipe,
} from '../support/recipe-gateway.ts';

/*
 * Verdaccio (npm: verdaccio), unchanged and without a registry behind it, and npm as its client.
 */
const PACKAGE_BYTES = 5 * 1024 * 1024;

const CONFIGURATION = (place: string): string => `
storage: ${place}/packages
auth:
  htpasswd:
    file: ${place}/htpasswd
packages:
  '**':
    access: $all
    publish: $authenticated
log: { type: stdout, format: json, level: warn }
`;

interface Registry extends RecipeVisitor {
  readonly place: string;
  npm(cwd: string, ...args: readonly string[]): Promise<string>;
}

async function registry(test: TestContext, live: boolean): Promise<Registry | null> {
  const program = installedApplication(test, 'npm/node_modules/verdaccio/bin/verdaccio');
  if (program === null) return null;
  const place = applicationDirectory(test);
  const file = join(place, 'config.yaml');
  writeFileSync(file, CONFIGURATION(place));
  const port = await freePort();
  const args = [program, '--config', file, '--listen', `127.0.0.1:${port}`];
  await serveApplication(test, process.execPath, args, { port, cwd: place });
  const visitor = await visitRecipe(test, 'Verdaccio', port, { live, also: '/' });
  if (visitor === null) return null;
  const { origin, authority } = visitor.gateway;
  const settings = join(place, 'npmrc');
  const lines = [`registry=${origin}/`, `cafile=${authority}`, `cache=${place}/cache`];
  const answer = await visitor.context.request.put(`${origin}/-/user/org.couchdb.user:me`, {
    data: { name: 'me', password: 'a password of tests' },
    ignoreHTTPSErrors: true,
  });
  assert.equal(answer.status(), 201, await answer.text());
  const { token } = (await answer.json()) as { readonly token: string };
  writeFileSync(settings, [...lines, `${origin.slice(6)}/:_authToken=${token}`, ''].join('\n'));
  const env = {
    // Started by npm itself, the tests have its settings in their environment, which come before a file's.
    ...Object.fromEntries(
      Object.keys(process.env).flatMap((name) =>
        /^npm_/i.test(name) ? [[name, undefined] as const] : [],
      ),
    ),
    ...{ npm_config_userconfig: settings, npm_config_globalconfig: join(place, 'none') },
  };
  return {
    ...visitor,
    place,
    npm: (cwd, ...rest) =>
      runClient('npm', ['--no-audit', '--no-fund', '--no-update-notifier', ...rest], { cwd, env }),
  };
}

describe('Verdaccio', () => {
  for (const live of [true, false]) {
    it(`npm publishes and installs, ${live ? 'with' : 'without'} live pages`, async (test) => {
      const their = await registry(test, live);
      if (their === null) return;
      const { place, npm } = their;
      const page = await openPage(their, '/', live);
      await page.getByText('No Package Published Yet').first().waitFor();
      const built = await page.locator('#root *').count();
      const asked = live ? askedAnew(page) : null;

      const mine = join(place, 'mine');
      mkdirSync(mine);
      const described = { name: '@team/large', version: '1.0.0', description: 'Of the tests.' };
      writeFileSync(join(mine, 'package.json'), JSON.stringify(described));
      const content = randomBytes(PACKAGE_BYTES);
      writeFileSync(join(mine, 'content.bin'), content);
      await npm(mine, 'publish', '--access', 'public');
      await asked;
      assert.ok((await page.locator('#root *').count()) >= built, 'the page stays');

      const users = join(place, 'users');
      mkdirSync(users);
      writeFileSync(join(users, 'package.json'), '{ "private": true }');
      await npm(users, 'install', '@team/large');
      const installed = readFileSync(join(users, 'node_modules/@team/large/content.bin'));
      assert.ok(installed.equals(content));
      const locked = readFileSync(join(users, 'package-lock.json'), 'utf8');
      assert.ok(locked.includes(`${their.gateway.origin}/@team/large/-/`), locked);

      await page.reload();
      await page.getByText('@team/large').first().waitFor();
      await page.getByText('@team/large').first().click();
      await page.getByText('Of the tests.').first().waitFor();
      assert.deepEqual(their.said, []);
    });
  }
});
