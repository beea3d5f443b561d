import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { loadConfig } from '../../src/load-config.ts';
import { diskIo } from '../../src/hubfile/disk.ts';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { createGateway } from '../support/installed-package.ts';
import { freePort } from '../support/free-port.ts';
import { openStream, type RawRequest, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { root } from '../support/process.ts';
import { cookieHeader, cookies, detail, fields } from '../unit/discovery/site.ts';
import { removeWith } from '../support/temporary-directory.ts';

const KEYS = {
  HUB_PUBLISHER_JWT_KEY: 'publisher-key-of-the-test-0123456789abcdef',
  HUB_SUBSCRIBER_JWT_KEY: 'subscriber-key-of-the-test-0123456789abcdef',
};
const COOKIE = 'hub_token';

type Env = Readonly<Record<string, string>>;

interface Story {
  readonly site: string;
  readonly hub: string;
  /** For the processes of the example. */
  readonly env: Env;
  get(path: string, options?: RawRequest): ReturnType<typeof send>;
  stream(query: string, cookie: readonly [string, string]): Promise<Stream>;
}

/** A gateway with the Hubfile of an example, on ports of its own. */
async function tell(test: TestContext, example: string, host = 'localhost'): Promise<Story> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-story-'));
  removeWith(test, storage);
  const port = await freePort();
  const site = `http://${host}:${port}`;
  const env = {
    ...KEYS,
    STORAGE: storage,
    PORT: String(port),
    APP_PORT: String(await freePort()),
    AUTH_PORT: String(await freePort()),
    SITE: site,
  };
  const { config, warnings } = loadConfig(join(root, 'examples', example, 'Hubfile'), diskIo(env));
  assert.deepEqual(warnings, []);
  const gateway = createGateway({ ...config, options: { ...config.options, gracePeriodMs: 100 } });
  await gateway.start();
  test.after(() => gateway.stop());
  const hub = `${site}/.well-known/hub`;
  return {
    site,
    hub,
    env,
    get: (path, options) => send(site + path, options),
    stream: (query, cookie) => openStream(test, `${hub}?${query}`, { headers: [cookie] }),
  };
}

/** Runs a program until the test ends; resolves when it has said that it listens. */
async function run(
  test: TestContext,
  program: string,
  args: readonly string[],
  env: Env,
  ready: RegExp = /listening/,
): Promise<void> {
  const child = spawn(program, args, { cwd: root, env: { ...process.env, ...env } });
  test.after(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    const hear = (chunk: Buffer): void => {
      said += String(chunk);
      if (ready.test(said)) resolve();
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('exit', () => reject(new Error(`${program} ended: ${said}`)));
    child.once('error', reject);
  });
}

async function isInstalled(test: TestContext, program: string): Promise<boolean> {
  const child = spawn(program, ['--version'], { stdio: 'ignore' });
  const ended = await once(child, 'exit').catch(() => null);
  if (ended !== null) return true;
  test.skip(`${program} is not installed`);
  return false;
}

const session = (user: string) => ({ headers: [['Cookie', `session=s-${user}`]] as const });

describe('the stories of docs/discovery.md', () => {
  it('Express signs its users’ tokens and sends them in a header', async (test) => {
    const { env, get, stream, site } = await tell(test, 'discovery-express');
    await run(test, process.execPath, ['examples/discovery-express/app.mjs'], env);
    const post = (path: string, body: object, headers: RawRequest['headers'] = []) =>
      get(path, {
        method: 'POST',
        headers: [['Content-Type', 'application/json'], ...headers],
        body: JSON.stringify(body),
      });
    const login = await post('/login', { user: 'alice' });
    const own = [cookieHeader(login)];
    const page = await get('/orders', { headers: own });
    const token = cookieHeader(page);
    assert.ok(cookies(page).has(COOKIE));
    assert.deepEqual(fields(page, 'hub-access-token'), []);

    const again = await get('/orders', {
      headers: [...own, ['If-None-Match', String(page.headers.etag)]],
    });
    assert.equal(again.status, 304);
    assert.ok(cookies(again).has(COOKIE), 'a 304 to a private page renews the cookie');

    const events = await stream('match=*', token);
    const order = JSON.parse((await post('/orders', { book: 1 }, own)).body);
    await events.until(({ text }) => text.includes(order.id));
    const [session = ''] = own.map(([, value]) => value);
    const logout = await post('/logout', {}, [['Cookie', `${session}; ${token[1]}`]]);
    assert.equal(cookies(logout).get(COOKIE)?.get('max-age'), '0');
    await events.untilEnd();
    assert.ok(order.id.startsWith(site));
  });

  it('a static site: the gateway mints tokens for the user that the auth service names', async (test) => {
    if (!(await isInstalled(test, 'python3'))) return;
    const { env, get, stream, site, hub } = await tell(test, 'discovery-static');
    await run(test, process.execPath, ['examples/discovery-static/auth.mjs'], env);
    const pages = join(root, 'examples/discovery-static/pages');
    const server = ['-u', '-m', 'http.server', String(env['APP_PORT']), '-b', 'localhost'];
    await run(test, 'python3', [...server, '-d', pages], env, /Serving/);
    const page = await get('/', session('alice'));
    assert.match(fields(page, 'link').join(), /rel="hub"/);
    assert.equal(page.body, await readFile(join(pages, 'index.html'), 'utf8'));
    const guest = await get('/');
    assert.deepEqual(fields(guest, 'set-cookie'), []);
    const forged = await get('/', { headers: [['X-User-Id', 'alice']] });
    assert.deepEqual(fields(forged, 'set-cookie'), [], 'nobody can name himself');

    const modified = ['If-Modified-Since', String(page.headers['last-modified'])] as const;
    const reload = await get('/', { headers: [...session('alice').headers, modified] });
    assert.ok(cookies(reload).has(COOKIE), 'a reload renews the cookie');

    const events = await stream('match=*', cookieHeader(page));
    const token = await signToken(KEYS.HUB_PUBLISHER_JWT_KEY, {
      iss: site,
      aud: hub,
      authorization_details: [detail('publish', '*')],
    });
    for (const user of ['bob', 'alice']) {
      const body = new URLSearchParams({
        topic: `${site}/users/${user}/news`,
        private: 'on',
        id: user,
      });
      const headers = { authorization: `Bearer ${token}` };
      assert.ok((await fetch(hub, { method: 'POST', headers, body })).ok);
    }
    assert.deepEqual(await events.untilId('alice'), ['alice']);
  });

  for (const [name, program, args] of [
    ['Python', 'python3', () => ['examples/discovery-python/app.py']],
    [
      'PHP',
      'php',
      ({ APP_PORT }: Env) => ['-S', `localhost:${APP_PORT}`, 'examples/discovery-php/index.php'],
    ],
  ] as const) {
    it(`${name} names its user in a plain header`, async (test) => {
      if (!(await isInstalled(test, program))) return;
      const { env, get, stream, site, hub } = await tell(test, 'discovery-python');
      const token = await signToken(KEYS.HUB_PUBLISHER_JWT_KEY, {
        iss: site,
        aud: hub,
        authorization_details: [detail('publish', '*')],
      });
      await run(test, program, args(env), { ...env, HUB_TOKEN: token }, /listening|started/);
      const page = await get('/', session('alice'));
      assert.equal(page.body, 'hello, alice');
      const events = await stream('match=*', cookieHeader(page));
      await get('/notify?user=bob');
      await get('/notify?user=alice');
      await events.until(({ text }) => text.includes('data: hello'));
      assert.equal(events.ids.length, 1, 'alice reads her own notes only');

      const own = cookieHeader(page)[1];
      const logout = await get('/logout', { headers: [['Cookie', `session=s-alice; ${own}`]] });
      assert.equal(cookies(logout).get(COOKIE)?.get('max-age'), '0');
      await events.untilEnd();
    });
  }

  it('a single-page app sends its token itself, to a hub on another domain', async (test) => {
    const executable = chromiumPath(test);
    if (executable === null) return;
    const { env, site } = await tell(test, 'discovery-spa', 'spa.localhost');
    await run(test, process.execPath, ['examples/discovery-spa/server.mjs'], env);
    const browser = await launchChromium(test, executable, null);
    const page = await browser.newPage();
    await page.goto(`${site}/`);
    await page.locator('html[data-status=open]').waitFor({ state: 'attached' });
    await page.getByText('the first note').waitFor();
    const hub = `http://hub.localhost:${env['PORT']}/.well-known/hub`;
    const token = await signToken(KEYS.HUB_PUBLISHER_JWT_KEY, {
      iss: site,
      aud: hub,
      authorization_details: [detail('publish', '*')],
    });
    // The system's resolver may not know names below localhost; browsers do.
    const { status } = await send(hub.replace('hub.localhost', 'localhost'), {
      method: 'POST',
      headers: [
        ['Host', `hub.localhost:${env['PORT']}`],
        ['Authorization', `Bearer ${token}`],
        ['Content-Type', 'application/x-www-form-urlencoded'],
      ],
      body: 'topic=https://example.com/notes&data=the second note&private=on',
    });
    assert.equal(status, 200);
    await page.getByText('the second note').waitFor();
  });

  it('every Hubfile in docs/discovery.md and docs/live.md loads unchanged', async () => {
    const pages = ['docs/discovery.md', 'docs/live.md'].map((page) => join(root, page));
    const text = (await Promise.all(pages.map((page) => readFile(page, 'utf8')))).join('\n');
    const blocks = [...text.matchAll(/```hubfile\n(.*?)```/gs)].map(([, block]) => block ?? '');
    assert.ok(blocks.length >= 6);
    for (const block of blocks) {
      const disk = diskIo({ ...KEYS, GATEWAY_SECRET: 'a secret' });
      const file = join(dirname(root), 'Hubfile');
      const { warnings } = loadConfig(file, { ...disk, read: () => Buffer.from(block) });
      assert.deepEqual(
        warnings.map(({ message }) => message),
        [],
        block,
      );
    }
  });
});
