import assert from 'node:assert/strict';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { cli, root, runCommand, startProcess, type TestProcess } from '../support/process.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEYS = {
  HUB_PUBLISHER_JWT_KEY: 'publisher-key-of-the-test-0123456789abcdef',
  HUB_SUBSCRIBER_JWT_KEY: 'subscriber-key-of-the-test-0123456789abcdef',
};

interface Installation {
  readonly site: string;
  readonly hub: string;
  readonly hubfile: string;
  readonly storage: string;
  readonly rootFile: string;
  gateway: TestProcess;
  startGateway(): Promise<void>;
  publish(topic: string, data: string, ...flags: string[]): Promise<string>;
}

describe('the main job: a gateway in front of an app, with Hubfile.example', () => {
  it('shows live updates in a browser, across a reload and a crash', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const installation = await install(test);
    const { site } = installation;
    const browser = await launchChromium(test, executable, installation.storage);
    const context = await browser.newContext();
    const page = await context.newPage();
    const loads = countLoads(page);
    // The first answer of /state comes late: a click before it counts, and it undoes nothing after.
    let comes: (() => void) | undefined;
    const late = new Promise<void>((resolve) => (comes = resolve));
    await page.route(`${site}/state`, async (route) => late.then(() => route.continue()), {
      times: 1,
    });
    await page.goto(site);
    await page.getByRole('button', { name: 'alice', exact: true }).click();
    await page.locator('#user', { hasText: 'alice' }).waitFor();
    const first = page.waitForResponse(`${site}/state`);
    comes?.();
    await first;
    await page.locator('#user', { hasText: 'alice' }).waitFor();
    await page.locator('#status[data-state=open]').waitFor();

    await test.test('a public update arrives without a reload', async () => {
      await installation.publish(`${site}/messages/1`, message('m1', 'to everybody'));
      await page.getByText('cli: to everybody').waitFor();
    });

    await test.test('a private update for this user arrives, another user’s does not', async () => {
      await installation.publish(
        `${site}/users/bob/whispers/1`,
        message('w1', 'for bob'),
        '--private',
      );
      await installation.publish(
        `${site}/users/alice/whispers/1`,
        message('w2', 'for alice'),
        '--private',
      );
      await page.getByText('cli: for alice').waitFor();
      assert.equal(await page.getByText('for bob').count(), 0);
    });

    await test.test('the app itself publishes what its users say', async () => {
      await page.locator('#say input').fill('from the form');
      await page.locator('#say button').click();
      await page.getByText('alice: from the form').waitFor();
    });

    await test.test(
      'the cookie is HttpOnly, Secure, Strict, and for the hub’s path only',
      async () => {
        const cookies = await context.cookies(`${site}/.well-known/hub`);
        const cookie = cookies.find(({ name }) => name === '__Secure-hub_access_token');
        assert.ok(cookie);
        assert.equal(cookie.httpOnly, true);
        assert.equal(cookie.secure, true);
        assert.equal(cookie.sameSite, 'Strict');
        assert.equal(cookie.path, '/.well-known/hub');
        assert.equal(
          (await context.cookies(site)).some(({ name }) => name === cookie.name),
          false,
        );
      },
    );

    await test.test('an edit of the Hubfile takes effect with the stream still up', async () => {
      const before = await readFile(installation.hubfile, 'utf8');
      const said = installation.gateway.output.length;
      await writeFile(
        installation.hubfile,
        before.replace(
          'reverse_proxy ',
          'respond /edited "the edited answer" 200\n\treverse_proxy ',
        ),
      );
      await installation.gateway.says('Configuration reloaded', said);
      const answer = await page.evaluate(async () => (await fetch('/edited')).text());
      assert.equal(answer, 'the edited answer');
      await installation.publish(`${site}/messages/2`, message('m2', 'after the edit'));
      await page.getByText('cli: after the edit').waitFor();
      assert.equal(await page.locator('#status').getAttribute('data-state'), 'open');
    });

    await test.test(
      'a broken Hubfile keeps the old configuration and says where it is broken',
      async () => {
        const before = await readFile(installation.hubfile, 'utf8');
        const said = installation.gateway.output.length;
        await writeFile(installation.hubfile, before.replace('anonymous', 'anonymus'));
        await installation.gateway.says('the old one keeps serving', said);
        const line = before.split('\n').findIndex((text) => text.trim() === 'anonymous') + 1;
        await installation.gateway.says(`${installation.hubfile}:${line}:3`, said);
        const answer = await page.evaluate(async () => (await fetch('/edited')).text());
        assert.equal(answer, 'the edited answer');
        await writeFile(installation.hubfile, before);
      },
    );

    await test.test(
      'after kill -9 and a restart the page catches up on what it missed',
      async () => {
        await context.setOffline(true);
        await installation.gateway.end('SIGKILL');
        await installation.startGateway();
        await installation.publish(`${site}/messages/3`, message('m3', 'while the page was away'));
        await context.setOffline(false);
        await page.getByText('cli: while the page was away').waitFor();
        await page.locator('#status[data-state=open]').waitFor();
      },
    );

    await test.test(
      'shows which user this is, the user’s own whisper, and a way inside',
      async () => {
        const pressed = page.locator('[data-user][aria-pressed=true]');
        assert.deepEqual(await pressed.allTextContents(), ['alice']);
        await page.selectOption('#whisper select', 'bob');
        await page.locator('#whisper input').fill('are you there');
        await page.locator('#whisper button').click();
        const own = page.locator('#messages .whisper.mine');
        await own.waitFor();
        assert.equal(await own.textContent(), 'alice to bob: are you there');
        const link = await page.getByRole('link', { name: 'debugger' }).getAttribute('href');
        assert.equal(link, `${site}/.well-known/hub/debug/#token=a.b.c`);
      },
    );

    await test.test('logging out takes the cookie away', async () => {
      await page.getByRole('button', { name: 'sign out' }).click();
      await page.locator('#user', { hasText: 'a guest' }).waitFor();
      const cookies = await context.cookies(`${site}/.well-known/hub`);
      assert.equal(
        cookies.some(({ name }) => name === '__Secure-hub_access_token'),
        false,
      );
    });

    assert.equal(loads(), 1, 'the page was loaded once in all');
  });

  it('stops cleanly on SIGTERM while a stream is open', async (test) => {
    const installation = await install(test);
    const subscriber = startProcess(test, [
      ...[cli, 'subscribe', '--hub', installation.hub, '--cacert', installation.rootFile],
      ...['--match', '*', '--last-event-id', 'earliest'],
    ]);
    await installation.publish('x', 'one');
    await subscriber.says('one');
    assert.equal(await installation.gateway.end('SIGTERM'), 0);
  });
});

/** A copy of Hubfile.example with ports of its own, the gateway, and the example app behind it. */
async function install(test: TestContext): Promise<Installation> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-e2e-'));
  removeWith(test, directory);
  const [https, http, app] = [await freePort(), await freePort(), await freePort()];
  const site = `https://localhost:${https}`;
  const hubfile = join(directory, 'Hubfile');
  const storage = join(directory, 'storage');
  const example = await readFile(join(root, 'Hubfile.example'), 'utf8');
  await writeFile(
    hubfile,
    example
      .replaceAll('8443', String(https))
      .replaceAll('8080', String(http))
      .replace('storage .hubgate', `admin off\n\tstorage ${storage}`),
  );
  const rootFile = join(storage, 'pki', 'local', 'root.crt');
  const environment = { ...KEYS, APP_PORT: String(app) };
  const startGateway = async (): Promise<void> => {
    installation.gateway = startProcess(test, [cli, 'run', '--config', hubfile], environment);
    await installation.gateway.says(`:${https}`);
  };
  const hub = `${site}/.well-known/hub`;
  const token = await mint(site, hub);
  const installation: Installation = {
    site,
    hub,
    hubfile,
    storage,
    rootFile,
    // Set by startGateway, right below.
    gateway: undefined as unknown as TestProcess,
    startGateway,
    async publish(topic, data, ...flags) {
      const { code, stdout, stderr } = await runCommand([
        ...['publish', '--hub', hub, '--cacert', rootFile, '--token', token],
        ...['--topic', topic, '--data', data, ...flags],
      ]);
      assert.equal(code, 0, stderr);
      return stdout.trim();
    },
  };
  await startGateway();
  const appProcess = startProcess(test, [join(root, 'examples/app/server.mjs')], {
    ...KEYS,
    PORT: String(app),
    SITE: site,
    HUB_DEMO_TOKEN: 'a.b.c',
    NODE_EXTRA_CA_CERTS: rootFile,
  });
  await appProcess.says('app: http');
  return installation;
}

async function mint(site: string, hub: string): Promise<string> {
  const { code, stdout, stderr } = await runCommand([
    ...['token', '--iss', site, '--aud', hub, '--key', KEYS.HUB_PUBLISHER_JWT_KEY],
    ...['--publish', '*'],
  ]);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

function message(id: string, text: string): string {
  return JSON.stringify({ id, from: 'cli', text });
}

function countLoads(page: Page): () => number {
  let loads = 0;
  page.on('load', () => {
    loads += 1;
  });
  return () => loads;
}
