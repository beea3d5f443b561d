import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { adaptedCaddyfile } from '../../src/cli/commands/adapt.ts';
import { createGateway, parseHubfile, silentLogger } from '../support/installed-package.ts';
import { runCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { type Answer, type RawRequest, send } from '../support/http.ts';

/*
 * Caddyfiles of test/caddyfile as Debian's Caddy serves them, and as hubgate serves what `adapt` makes
 * of them: the same requests, the same answers. Only addresses, ports and directories are replaced.
 */
const cases = join(dirname(fileURLToPath(import.meta.url)), '../caddyfile');
const directory = mkdtempSync(join(tmpdir(), 'hubgate-caddyfiles-'));
after(() => rmSync(directory, { recursive: true, force: true }));

/** An app that tells what reached it. */
const app = createServer((request, response) => {
  const { host: _, ...headers } = request.headers;
  const seen = Object.entries(headers).filter(([name]) => /^x-(?!forwarded)|^remote-/.test(name));
  if (request.url?.startsWith('/api/verify') === true) {
    const isKnown = request.headers.cookie === 'session=1';
    // Without a type, Caddy guesses one from the body, but only if the head waits for it.
    response.setHeader('Content-Type', 'text/plain');
    response.writeHead(isKnown ? 200 : 401, isKnown ? { 'Remote-User': 'ann' } : {});
    response.end(isKnown ? '' : 'sign in');
    return;
  }
  response.setHeader('X-Powered-By', 'the app');
  response.setHeader('Content-Type', 'text/plain');
  response.end(
    `${request.method} ${request.url} ${JSON.stringify(seen.sort(([a], [b]) => (a < b ? -1 : 1)))}`,
  );
});
let backend = '';
before(async () => {
  await new Promise<void>((resolve) => app.listen(0, '127.0.0.1', resolve));
  const address = app.address();
  backend = `127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  for (const [name, content] of Object.entries(FILES)) {
    const file = join(directory, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
});
after(() => app.close());

const FILES: Readonly<Record<string, string | Buffer>> = {
  'srv/shop/dist/index.html': '<h1>shop</h1>',
  'srv/shop/dist/assets/app.1.js': 'run()',
  'srv/files/a/read.txt': 'read',
  'srv/docs/index.html': 'docs',
  'srv/docs/404.html': 'no such page',
  'srv/docs/guide.css': 'a{}',
  'srv/docs/guide.css.gz': gzipSync('a{}'),
  'srv/docs/part/default.htm': 'part',
  'srv/media/a.txt': 'media',
  'srv/frontend/index.html': 'front',
  'srv/frontend/robots.txt': 'User-agent: *',
  'srv/www/index.html': 'www',
  'srv/www/errors/404.html': 'not here',
  'srv/www/docs.html': 'docs page',
};

interface Asked {
  readonly gateway: (target: string, request?: RawRequest) => Promise<Answer>;
  readonly caddy: ((target: string, request?: RawRequest) => Promise<Answer>) | null;
}

/** Both programs with one Caddyfile. */
async function serve(
  test: TestContext,
  name: string,
  replacements: Readonly<Record<string, string>> = {},
): Promise<Asked> {
  const written = readFileSync(join(cases, `${name}.caddyfile`), 'utf8');
  const caddyPort = await freePort();
  const caddyfile = placed(written, caddyPort, replacements);
  const port = await freePort();
  const storage = mkdtempSync(join(directory, 'storage-'));
  const file = join(storage, 'Caddyfile');
  writeFileSync(file, placed(written, port, replacements));
  const { text, leftOut } = adaptedCaddyfile(file, {});
  assert.deepEqual(leftOut, []);
  const config = parseHubfile(text.replace('{\n', `{\n\tstorage ${storage}\n`), { env: {} });
  const gateway = createGateway(config, { log: silentLogger });
  test.after(() => gateway.stop());
  await gateway.start();
  const started = await runCaddy(test, caddyfile);
  return {
    gateway: (target, request) => send(`http://127.0.0.1:${port}${target}`, request),
    caddy: started
      ? (target, request) => send(`http://127.0.0.1:${caddyPort}${target}`, request)
      : null,
  };
}

const OPTIONS = '{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n';

function placed(
  caddyfile: string,
  port: number,
  replacements: Readonly<Record<string, string>>,
): string {
  const all = Object.entries({
    '/srv/': `${directory}/srv/`,
    'root * /srv\n': `root * ${directory}/srv\n`,
    ...replacements,
  });
  const text = all.reduce((sofar, [from, to]) => sofar.replaceAll(from, to), caddyfile);
  // Plain HTTP, on a port of its own.
  return (
    OPTIONS +
    text.replaceAll(
      /^(?:https?:\/\/)?((?:[a-z]+\.)*example(?:\.com)?)?(?::8080)? \{$/gm,
      (_, host) => `http://${host ?? ''}:${port} {`,
    )
  );
}

/** What every program says in its own way; hubgate names itself in Via, as a proxy is to. */
const OWN = new Set([
  'connection',
  'content-length',
  'date',
  'etag',
  'keep-alive',
  'last-modified',
  'server',
  'transfer-encoding',
  'via',
]);

/** An error that no page is for: Caddy's answer is empty, hubgate's names the status and the request. */
function shown({ status, headers: { vary, ...headers }, body }: Answer) {
  const isPlainError = status >= 400 && headers['x-request-id'] !== undefined;
  return isPlainError
    ? { status, headers: {}, body: '' }
    : { status, headers: comparable({ ...headers, ...varied(vary) }), body };
}

/** That the content depends on the encoding, which Caddy 2.6 does not always say. */
function varied(vary: string | undefined): IncomingHttpHeaders {
  return vary === undefined || vary === 'Accept-Encoding' ? {} : { vary };
}

function comparable(headers: IncomingHttpHeaders): Record<string, unknown> {
  const entries = Object.entries(headers).filter(([name]) => !OWN.has(name));
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The same requests to both: each a target, or a target with a request. */
async function compare(
  { gateway, caddy }: Asked,
  requests: readonly (string | readonly [string, RawRequest])[],
  statuses: readonly number[],
): Promise<void> {
  const found: number[] = [];
  for (const one of requests) {
    const [target, request = {}] = typeof one === 'string' ? [one] : one;
    const own = await gateway(target, request);
    found.push(own.status);
    if (caddy === null) continue;
    const label = `${target} ${JSON.stringify(request)}`;
    assert.deepEqual(shown(own), shown(await caddy(target, request)), label);
  }
  assert.deepEqual(found, statuses);
}

function to(host: string): RawRequest {
  return { headers: [['Host', host]] };
}

function withFields(fields: Readonly<Record<string, string>>, method = 'GET'): RawRequest {
  return { method, headers: Object.entries(fields) };
}

describe('an adapted Caddyfile answers as Caddy does', () => {
  it('single-page-app', async (test) => {
    const host = { Host: 'shop.example.com' };
    const asked = await serve(test, 'single-page-app');
    await compare(
      asked,
      [
        ['/', withFields(host)],
        ['/deep/link?x=1', withFields(host)],
        ['/assets/app.1.js', withFields(host)],
        ['/index.html', withFields(host)],
        ['/assets/app.1.js', withFields(host, 'HEAD')],
        ['/assets/app.1.js', withFields({ ...host, Range: 'bytes=0-2' })],
      ],
      [200, 200, 200, 200, 200, 206],
    );
  });

  it('static-browse', async (test) => {
    const asked = await serve(test, 'static-browse');
    const host = to('files.example.com');
    await compare(
      asked,
      [
        ['/a/read.txt', host],
        ['/v12/x/y', host],
        ['/missing', host],
      ],
      [200, 301, 404],
    );
  });

  it('precompressed', async (test) => {
    const asked = await serve(test, 'precompressed');
    const host = { Host: 'docs.example.com' };
    await compare(
      asked,
      [
        ['/', withFields(host)],
        ['/part/', withFields(host)],
        ['/guide.css', withFields(host)],
        ['/guide.css', withFields({ ...host, 'Accept-Encoding': 'gzip' })],
        ['/none', withFields(host)],
      ],
      [200, 200, 200, 200, 404],
    );
  });

  it('www-redirect', async (test) => {
    const asked = await serve(test, 'www-redirect');
    await compare(
      asked,
      [
        ['/a?b=c', to('www.example.com')],
        ['/', to('example.com')],
        ['/x', to('example.com')],
      ],
      [301, 200, 404],
    );
  });

  it('api-and-app', async (test) => {
    const asked = await serve(test, 'api-and-app', { 'backend:4000': backend });
    const host = to('app.example.com');
    await compare(
      asked,
      [
        ['/api/users?id=1', host],
        ['/api/', host],
        ['/media/a.txt', host],
        ['/media/none', host],
        ['/robots.txt', host],
        ['/some/page', host],
      ],
      [200, 200, 200, 404, 200, 200],
    );
  });

  it('cors', async (test) => {
    const asked = await serve(test, 'cors', { 'localhost:8000': backend });
    const host = { Host: 'api.example.com' };
    await compare(
      asked,
      [
        ['/x', withFields({ ...host, Origin: 'https://app.example.com' })],
        ['/x', withFields({ ...host, Origin: 'https://admin.example.com' })],
        ['/x', withFields({ ...host, Origin: 'https://other.example.com' })],
        ['/x', withFields({ ...host, Origin: 'https://app.example.com' }, 'OPTIONS')],
      ],
      [200, 200, 200, 204],
    );
  });

  it('error-pages', async (test) => {
    const asked = await serve(test, 'error-pages');
    const host = to('www.example.com');
    await compare(
      asked,
      [
        ['/', host],
        ['/none', host],
        ['/none/deep', host],
      ],
      [200, 404, 404],
    );
  });

  it('maintenance', async (test) => {
    const asked = await serve(test, 'maintenance', { 'localhost:3000': backend });
    const host = to('shop.example.com');
    await compare(asked, [['/cart', host]], [200]);
    mkdirSync(join(directory, 'srv/flags'), { recursive: true });
    writeFileSync(join(directory, 'srv/flags/maintenance.on'), '');
    await compare(asked, [['/cart', host]], [503]);
  });

  it('single-sign-on', async (test) => {
    const asked = await serve(test, 'single-sign-on', {
      'authelia:9091': backend,
      'app:8080': backend,
      // For a field that is absent Caddy 2.6 sends the text of its placeholder.
      'Remote-User Remote-Groups Remote-Name Remote-Email': 'Remote-User',
    });
    const host = { Host: 'app.example.com' };
    await compare(
      asked,
      [
        ['/', withFields(host)],
        ['/page', withFields({ ...host, Cookie: 'session=1', 'Remote-User': 'forged' })],
      ],
      [401, 200],
    );
  });

  it('snippets', async (test) => {
    const asked = await serve(test, 'snippets', {
      'app-a:3000': backend,
      'app-b:3000': backend,
      '/var/log/caddy': directory,
      'header_up X-Request-Start "t={time.now.unix_ms}"': 'header_up X-Request-Start "{method}"',
      'a.example.com': 'ua.example.com',
    });
    await compare(
      asked,
      [
        ['/a', to('ua.example.com')],
        ['/b', to('b.example.com')],
      ],
      [200, 200],
    );
  });

  it('map-and-vars', async (test) => {
    const asked = await serve(test, 'map-and-vars');
    await compare(asked, ['/news/today', '/about', '/else'], [200, 200, 200]);
  });

  it('redirect-list', async (test) => {
    const asked = await serve(test, 'redirect-list');
    const host = to('www.example.com');
    await compare(
      asked,
      ['/blog', '/jobs', '/product/tea.html', '/old', '/docs/a?b', '/', '/none'].map(
        (target) => [target, host] as const,
      ),
      [301, 301, 301, 302, 308, 200, 404],
    );
  });

  it('cookies-and-headers', async (test) => {
    // The sign for setting late came after Caddy 2.6.
    const asked = await serve(test, 'cookies-and-headers', { 'header >X-Late': 'header X-Late' });
    await compare(
      asked,
      [
        '/?name=x',
        ['/?preview=1&name=%20y', withFields({ Cookie: 'a=b; beta=1', 'X-Internal': '1' })],
        ['/?preview=1', {}],
      ],
      [200, 200, 200],
    );
  });

  it('health-endpoint', async (test) => {
    const asked = await serve(test, 'health-endpoint');
    await compare(
      asked,
      ['/healthz', '/hook/a', ['/hook/a', { method: 'POST', body: 'x' }], '/none'],
      [200, 405, 202, 404],
    );
  });

  it('rewrites', async (test) => {
    const asked = await serve(test, 'rewrites');
    await compare(
      asked,
      [
        '/a.html',
        '/v1/users',
        '/old/x/old/y',
        '/search?term=a%20b',
        '/item-12?x=1',
        '/v1/item-3.html',
      ],
      [200, 200, 200, 200, 200, 200],
    );
  });

  it('routes-in-order', async (test) => {
    const asked = await serve(test, 'routes-in-order');
    await compare(
      asked,
      ['/private/x', ['/private/x', withFields({ 'X-Key': 'open' })], '/a', '/b/c', '/other'],
      [403, 200, 200, 200, 404],
    );
  });
});
