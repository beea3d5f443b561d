import assert from 'node:assert/strict';
import { mkdir, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { startCaddy } from '../support/caddy.ts';
import { chromiumPath, launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const ODD = '<img src=x onerror=alert(1)> & "q" %2F?#.txt';

async function tree(test: TestContext): Promise<string> {
  const base = await temporaryDirectory(test);
  const root = join(base, 'public');
  await mkdir(join(root, 'list', 'sub'), { recursive: true });
  await mkdir(join(root, 'list', 'Apps'));
  await mkdir(join(root, 'home'));
  const files: Record<string, string> = {
    'list/b.txt': 'bb',
    'list/a.txt': 'aaaa',
    'list/C.txt': 'c',
    [`list/${ODD}`]: 'odd',
    'list/.secret': 'secret',
    'list/old.bak': 'old',
    'home/index.html': 'index',
    'app.css': 'body{color:red}'.repeat(100),
    '../outside.txt': 'outside',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text);
  await utimes(join(root, 'list/b.txt'), 1_600_000_000, 1_600_000_000);
  await utimes(join(root, 'list/a.txt'), 1_700_000_000, 1_700_000_000);
  await symlink(join(base, 'outside.txt'), join(root, 'list/leads-out.txt'));
  await symlink(join(root, 'list/b.txt'), join(root, 'list/d.txt'));
  await writeFile(join(root, 'app.css.br'), brotliCompressSync(files['app.css'] ?? ''));
  await writeFile(join(root, 'app.css.gz'), gzipSync(files['app.css'] ?? ''));
  return root;
}

async function start(test: TestContext, directives: string): Promise<string> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  await startGateway(test, `${origin} {\n${directives}\n}\n`);
  return origin;
}

interface Listed {
  readonly name: string;
  readonly size: number;
  readonly is_dir: boolean;
  readonly is_symlink: boolean;
}

describe('file_server browse', () => {
  it('shows the first entries of the order if there are more than `file_limit`', async (test) => {
    const root = await tree(test);
    const directives = (order: string) =>
      `\troot * ${root}/list\n\tfile_server {\n\t\tbrowse {\n\t\t\tsort name ${order}\n\t\t\tfile_limit 1\n\t\t}\n\t}\n`;
    for (const [order, first] of [
      ['asc', ODD],
      ['desc', 'sub/'],
    ] as const) {
      const site = await start(test, directives(order));
      const { body } = await send(`${site}/`, { headers: [['Accept', 'application/json']] });
      assert.deepEqual(
        (JSON.parse(body) as Listed[]).map(({ name }) => name),
        [first],
      );
      assert.match((await send(`${site}/`)).body, /Only the first 1 entries are listed/);
    }
  });

  it('says which entries are shown, whatever the query asks for', async (test) => {
    const root = await tree(test);
    const directives = `\troot * ${root}/list\n\tfile_server {\n\t\tbrowse {\n\t\t\tfile_limit 1\n\t\t}\n\t}\n`;
    const site = await start(test, directives);
    const said = async (query: string): Promise<string | undefined> => {
      const { body } = await send(`${site}/${query}`);
      return /<p[^>]*>(.*)<\/p>/.exec(body)?.[1];
    };
    assert.equal(await said('?limit=100'), undefined);
    assert.equal(await said(''), 'Only the first 1 entries are listed.');
    assert.equal(await said('?offset=1'), 'Only the 1 entries after the first 1 are listed.');
    assert.equal(await said('?offset=100'), 'None of the entries is listed.');
  });

  it('lists a directory as JSON, in the sort orders of Caddy', async (test) => {
    const root = await tree(test);
    const directives = `\troot * ${root}\n\tfile_server browse {\n\t\thide .secret *.bak leads-out.txt\n\t}\n`;
    const own = await start(test, directives);
    const caddy = await startCaddy(test, directives);
    const list = async (origin: string, query: string): Promise<Listed[]> => {
      const { status, headers, body } = await send(`${origin}/list/${query}`, {
        headers: [['Accept', 'application/json']],
      });
      assert.equal(status, 200);
      assert.match(headers['content-type'] ?? '', /^application\/json/);
      // The text is a listing; what it holds is asserted below.
      return JSON.parse(body) as Listed[];
    };
    const names = async (origin: string, query: string): Promise<string[]> =>
      (await list(origin, query)).map(({ name }) => name);
    assert.deepEqual(await names(own, ''), [
      'Apps/',
      'sub/',
      ODD,
      'a.txt',
      'b.txt',
      'C.txt',
      'd.txt',
    ]);
    assert.deepEqual((await names(own, '?sort=name&order=desc')).slice(0, 2), ['sub/', 'd.txt']);
    assert.deepEqual(await names(own, '?sort=name&limit=2&offset=3'), ['b.txt', 'C.txt']);
    assert.deepEqual((await names(own, '?sort=time')).at(0), 'b.txt');
    assert.equal(JSON.stringify(await list(own, '')).includes('leads-out'), false);
    if (caddy === null) return;
    for (const query of ['', '?sort=name&order=asc', '?sort=name&order=desc']) {
      const part = (all: Listed[]): object[] =>
        all
          .filter(({ is_symlink }) => !is_symlink)
          .map(({ name, size, is_dir }) => ({ name, is_dir, size: is_dir ? 0 : size }));
      assert.deepEqual(part(await list(own, query)), part(await list(caddy, query)), query);
    }
  });

  it('renders a page without script whose links are correct, in a browser too', async (test) => {
    const root = await tree(test);
    const own = await start(test, `\troot * ${root}\n\tfile_server browse\n`);
    const { status, headers, body } = await send(`${own}/list/`);
    assert.equal(status, 200);
    assert.match(String(headers['content-security-policy']), /^default-src 'none'/);
    assert.equal(headers.vary, 'Accept');
    assert.doesNotMatch(body, /<script|<img|\.secret|leads-out/);
    assert.match(body, /<th scope="col" aria-sort="ascending">/);
    assert.equal((await send(`${own}/list`)).headers.location, './list/');
    assert.equal((await send(`${own}/home/`)).body, 'index');
    assert.equal((await send(`${own}/list/`, { method: 'HEAD' })).body, '');

    const path = chromiumPath(test);
    if (path === null) return;
    const page = await (await launchChromium(test, path, null)).newPage();
    const said: string[] = [];
    page.on('console', (message) => said.push(message.text()));
    await page.goto(`${own}/list/`);
    await page.getByRole('link', { name: 'Modified' }).click();
    const sorted = page.getByRole('columnheader', { name: 'Modified' });
    assert.equal(await sorted.getAttribute('aria-sort'), 'ascending');
    assert.equal(await page.locator('tbody a').first().textContent(), 'b.txt');
    await page.getByRole('link', { name: ODD }).click();
    assert.equal(await page.textContent('body'), 'odd');
    await page.goto(`${own}/list/sub/`);
    await page.getByRole('link', { name: 'list/' }).click();
    assert.equal(page.url(), `${own}/list/`);
    assert.deepEqual(
      said.filter((text) => !text.startsWith('Failed to load resource')),
      [],
    );
  });

  it('shows the path that the client sees, with links up to the root of the files', async (test) => {
    const root = await tree(test);
    await mkdir(join(root, 'list', 'sub', 'a&b'));
    const own = await start(
      test,
      `\thandle_path /public/* {\n\t\troot * ${root}\n\t\tfile_server browse\n\t}\n\thandle {\n\t\troot * ${root}\n\t\trewrite /short/ /list/\n\t\tfile_server browse\n\t}\n`,
    );
    const heading = async (path: string): Promise<string | undefined> =>
      /<h1>(.*)<\/h1>/.exec((await send(`${own}${path}`)).body)?.[1];
    assert.equal(
      await heading('/public/list/sub/a%26b/'),
      'Index of <a href="../../../">/public/</a><a href="../../">list/</a><a href="../" rel="up">sub/</a>a&#38;b/',
    );
    assert.equal(await heading('/public/'), 'Index of /public/');
    assert.equal(await heading('/list/'), 'Index of <a href="../" rel="up">/</a>list/');
    assert.equal(await heading('/short/'), 'Index of /short/');
  });

  it('marks the sort order, and says that times are UTC', async (test) => {
    const root = await tree(test);
    const own = await start(test, `\troot * ${root}\n\tfile_server browse\n`);
    const { body } = await send(`${own}/list/?sort=time&order=desc`);
    assert.match(
      body,
      /class="moment" aria-sort="descending"><a [^>]*>Modified \(UTC\)<\/a> <span aria-hidden="true">▼</,
    );
    assert.equal(body.match(/aria-sort/g)?.length, 1);
    assert.match(
      body,
      /<td class="moment"><time datetime="2020-09-13T12:26:40.000Z">2020-09-13 12:26</,
    );
  });

  it('lists nothing unless it is enabled', async (test) => {
    const root = await tree(test);
    const own = await start(test, `\troot * ${root}\n\tfile_server\n`);
    assert.equal((await send(`${own}/list/`)).status, 404);
  });
});

describe('file_server', () => {
  it('serves the precompressed file that the client prefers', async (test) => {
    const root = await tree(test);
    const directives = `\troot * ${root}\n\tfile_server {\n\t\tprecompressed br gzip\n\t}\n`;
    const own = await start(test, directives);
    const caddy = await startCaddy(test, directives);
    const url = `/app.css`;
    for (const origin of caddy === null ? [own] : [own, caddy]) {
      for (const [accepted, encoding] of [
        ['gzip, br', 'br'],
        ['gzip', 'gzip'],
        ['zstd', undefined],
        ['', undefined],
      ] as const) {
        const fields = accepted === '' ? [] : [['Accept-Encoding', accepted] as const];
        const { headers } = await send(`${origin}${url}`, { headers: fields });
        assert.equal(headers['content-encoding'], encoding, `${origin} ${accepted}`);
        assert.equal(headers['content-type'], 'text/css; charset=utf-8');
        // Caddy 2.6 leaves it out where nothing was encoded.
        if (origin === own) assert.equal(headers.vary, 'Accept-Encoding');
      }
    }
    const none = await send(`${own}${url}`, { headers: [['Accept-Encoding', 'br;q=0, gzip;q=0']] });
    assert.equal(none.headers['content-encoding'], undefined);
    const response = await fetch(`${own}${url}`, { headers: { 'Accept-Encoding': 'br' } });
    assert.match(await response.text(), /^body\{color:red\}/);
    // Of one length and one moment.
    for (const name of ['one.txt', 'one.txt.br', 'one.txt.gz']) {
      await writeFile(join(root, name), 'abc');
      await utimes(join(root, name), 1_700_000_000, 1_700_000_000);
    }
    const tags = await Promise.all(
      ['br', 'gzip', 'identity'].map(
        async (one) =>
          (await send(`${own}/one.txt`, { headers: [['Accept-Encoding', one]] })).headers.etag,
      ),
    );
    assert.equal(new Set(tags).size, 3);
    const again = await send(`${own}/one.txt`, {
      headers: [
        ['Accept-Encoding', 'br'],
        ['If-None-Match', String(tags[0])],
      ],
    });
    assert.deepEqual([again.status, again.headers.vary], [304, 'Accept-Encoding']);
  });

  it('uses another status, and passes on requests for missing files', async (test) => {
    const root = await tree(test);
    const directives = `
	root * ${root}
	handle /gone/* {
		rewrite * /home/index.html
		file_server {
			status 410
		}
	}
	route {
		file_server {
			pass_thru
		}
		respond "passed" 202
	}
`;
    const own = await start(test, directives);
    const caddy = await startCaddy(test, directives);
    for (const origin of caddy === null ? [own] : [own, caddy]) {
      const gone = await send(`${origin}/gone/x`);
      assert.deepEqual([gone.status, gone.body], [410, 'index']);
      assert.equal((await send(`${origin}/home/`)).body, 'index');
      for (const method of ['GET', 'POST']) {
        for (const target of ['/none', '/caf%e9']) {
          const passed = await send(origin, { target, method });
          assert.deepEqual([passed.status, passed.body], [202, 'passed'], `${origin}${target}`);
        }
      }
    }
    const part = await send(`${own}/gone/x`, { headers: [['Range', 'bytes=0-1']] });
    assert.deepEqual([part.status, part.body], [410, 'index']);
  });
});
