import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { connect as connectTcp, createServer } from 'node:net';
import { mkdir, mkdtemp, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { type Answer, send } from '../support/http.ts';
import { removeWith, temporaryDirectory } from '../support/temporary-directory.ts';

interface Served {
  readonly root: string;
  readonly port: number;
  get(target: string, headers?: Record<string, string>, method?: string): Promise<Answer>;
}

/** Sites whose directory depends on the request, each below its own path. */
async function serveByRequest(test: TestContext, php: string): Promise<string> {
  const base = await temporaryDirectory(test);
  for (const name of ['secret', 'sites/secret', 'sites/a.example', 'sites/one/two']) {
    await mkdir(join(base, name), { recursive: true });
    await writeFile(join(base, name, 'x.txt'), name);
  }
  const sites = join(base, 'sites');
  const port = await freePort();
  await startGateway(
    test,
    `:${port} {
	handle_path /host/* {
		root * ${sites}/{host}
		file_server
	}
	handle_path /label/* {
		root * ${sites}/{labels.2}
		file_server
	}
	handle_path /field/* {
		file_server {
			root ${sites}/{header.X-Site}
		}
	}
	handle_path /dots/* {
		root * ${sites}/.{header.X-Site}
		file_server
	}
	handle_path /two/* {
		root * ${sites}/{header.X-Site}{query.site}
		file_server
	}
	handle_path /set/* {
		vars root ${sites}/{header.X-Site}
		file_server
	}
	handle_path /variable/* {
		vars site {cookie.site}
		root * ${sites}/{vars.site}
		file_server
	}
	handle_path /tried/* {
		vars site {header.X-Site}
		@found file {
			root ${sites}/{vars.site}
			try_files {path}
		}
		respond @found found
		respond none 404
	}
	handle_path /php/* {
		reverse_proxy ${php} {
			transport fastcgi {
				root ${sites}/{header.X-Site}
			}
		}
	}
	handle_path /own/* {
		root * ${sites}/../sites
		file_server {
			root {vars.root}/one/two
		}
	}
	handle_path /mapped/* {
		map {host} {site} {
			default one/two
		}
		root * ${sites}/{site}
		file_server
	}
}
`,
  );
  return `http://127.0.0.1:${port}`;
}

async function serve(test: TestContext, directives: (root: string) => string): Promise<Served> {
  const base = await mkdtemp(join(tmpdir(), 'hubgate-files-'));
  removeWith(test, base);
  const root = join(base, 'public');
  await mkdir(join(root, 'docs', 'empty'), { recursive: true });
  await mkdir(join(root, '.well-known'));
  await mkdir(join(root, 'private'));
  const files: Record<string, string> = {
    '../outside.txt': 'outside',
    'index.html': '<p>home</p>',
    'docs/index.html': '<p>docs</p>',
    'digits.txt': '0123456789',
    'nothing.txt': '',
    'a b+ü.txt': 'odd name',
    '.env': 'SECRET=1',
    '.well-known/security.txt': 'contact',
    'private/x.txt': 'private',
    'backup.bak': 'old',
    noextension: 'bytes',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(root, name), text);
  await utimes(join(root, 'digits.txt'), 1_700_000_000, 1_700_000_000);
  await symlink(join(root, 'digits.txt'), join(root, 'inside-link.txt'));
  await symlink(join(root, 'noextension'), join(root, 'script.js'));
  await symlink(join(base, 'outside.txt'), join(root, 'outside-link.txt'));
  await symlink(base, join(root, 'outside-directory'));
  const port = await freePort();
  await startGateway(test, `http://localhost:${port} {\n${directives(root)}\n}\n`);
  return {
    root,
    port,
    get: (target, headers = {}, method = 'GET') =>
      send(`http://localhost:${port}/`, { target, method, headers: Object.entries(headers) }),
  };
}

const plain = (root: string): string =>
  `\troot * ${root}\n\tfile_server {\n\t\thide *.bak private\n\t}`;

describe('file_server', () => {
  it('serves files with type, length and validators; HEAD without the body', async (test) => {
    const { get } = await serve(test, plain);
    const { status, headers, body } = await get('/digits.txt');
    assert.equal(status, 200);
    assert.equal(body, '0123456789');
    assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
    assert.equal(headers['content-length'], '10');
    assert.equal(headers['accept-ranges'], 'bytes');
    assert.equal(headers['last-modified'], 'Tue, 14 Nov 2023 22:13:20 GMT');
    assert.match(String(headers.etag), /^"[\w-]+"$/);
    const head = await get('/digits.txt', {}, 'HEAD');
    assert.deepEqual([head.status, head.body, head.headers['content-length']], [200, '', '10']);
    assert.equal((await get('/nothing.txt')).headers['content-length'], '0');
    assert.equal((await get('/a%20b+%C3%BC.txt')).body, 'odd name');
    assert.equal((await get('/noextension')).headers['content-type'], undefined);
    assert.equal((await get('/inside-link.txt')).body, '0123456789');
    // The type is the one of the name in the URL.
    const script = (await get('/script.js')).headers['content-type'];
    assert.equal(script, 'text/javascript; charset=utf-8');
    assert.equal((await get('/digits.txt?query=1')).body, '0123456789');
  });

  it('serves the index of a directory, and redirects to its path with a slash', async (test) => {
    const { get } = await serve(test, plain);
    assert.equal((await get('/')).body, '<p>home</p>');
    assert.equal((await get('/docs/')).body, '<p>docs</p>');
    const redirect = await get('/docs?a=1');
    assert.deepEqual([redirect.status, redirect.headers.location], [308, './docs/?a=1']);
    assert.equal((await get('/docs/empty/')).status, 404);
    assert.equal((await get('/docs/empty')).status, 404);
    const slashed = await get('/digits.txt/?a=1');
    assert.deepEqual([slashed.status, slashed.headers.location], [308, '../digits.txt?a=1']);
  });

  it('redirects below a prefix that was stripped, and never to another host', async (test) => {
    const { get } = await serve(
      test,
      (root) => `\troot * ${root}\n\thandle_path /static/* {\n\t\tfile_server\n\t}\n\tfile_server`,
    );
    assert.equal((await get('/static/digits.txt')).body, '0123456789');
    assert.equal((await get('/static/docs')).headers.location, './docs/');
    assert.equal((await get('//docs')).headers.location, './docs/');
    assert.equal((await get('//evil.example/%2e%2e/docs')).headers.location, './docs/');
  });

  it('matches hide patterns in linear time, whatever name a client asks for', async (test) => {
    const { get } = await serve(
      test,
      (root) =>
        `\troot * ${root}\n\tfile_server {\n\t\thide *a*a*a*a*a*a*a*b docs/*a*a*a*a*a*b\n\t}`,
    );
    assert.equal((await get(`/${'a'.repeat(4000)}`)).status, 404);
    assert.equal((await get(`/docs/${'a'.repeat(4000)}`)).status, 404);
    assert.equal((await get('/digits.txt')).status, 200);
  });

  it('hides dotfiles, configured files, and everything outside the root', async (test) => {
    const { get } = await serve(test, plain);
    for (const target of [
      '/.env',
      '/../outside.txt',
      '/docs/../../outside.txt',
      '/%2e%2e/outside.txt',
      '/outside-link.txt',
      '/outside-directory/outside.txt',
      '/outside-directory/',
      '/backup.bak',
      '/private/x.txt',
      '/private/',
      '/missing',
      '/digits.txt/x',
      `/${'x'.repeat(300)}`,
      `/${'x/'.repeat(5000)}`,
    ]) {
      const { status, body } = await get(target);
      assert.equal(status, 404, target);
      assert.equal(body.includes('outside'), false);
    }
    for (const target of [
      '/..%2foutside.txt',
      '/docs/..%2f..%2foutside.txt',
      '/%2e%2e%2foutside.txt',
      '/..%5coutside.txt',
      '/digits.txt%00.html',
      '/%ff',
    ]) {
      assert.equal((await get(target)).status, 400, target);
    }
    assert.equal((await get('/.well-known/security.txt')).body, 'contact');
    const post = await get('/digits.txt', {}, 'POST');
    assert.deepEqual([post.status, post.headers.allow], [405, 'GET, HEAD']);
  });

  it('finds no file if a matcher sees a directory, so that no matcher is bypassed', async (test) => {
    for (const serving of [
      'file_server',
      'try_files {path}\n\t\tfile_server',
      '@file file\n\t\trewrite @file {file_match.relative}\n\t\tfile_server',
      'try_files {path}\n\t\tfile_server {\n\t\t\tdisable_canonical_uris\n\t\t}',
    ]) {
      const { get } = await serve(
        test,
        (root) => `\troot * ${root}\n\troute {\n\t\trespond /digits.txt 403\n\t\t${serving}\n\t}`,
      );
      assert.equal((await get('/digits.txt')).status, 403);
      const slash = serving.includes('disable') ? 404 : 308;
      for (const [end, status] of [
        // To where the matcher sees the file.
        ...(['/', '//', '/./', '/x/..'] as const).map((end) => [end, slash] as const),
        ...(['%2f', '/%2F', '%2f%2f'] as const).map((end) => [end, 404] as const),
        ...(['%2f.', '%2F%2E'] as const).map((end) => [end, 400] as const),
        ...(['/.', '/%2e'] as const).map((end) => [end, 403] as const),
      ]) {
        assert.equal((await get(`/digits.txt${end}`)).status, status, `${end} ${serving}`);
      }
    }
  });

  it('redirects to a directory with its slash however its name is written, so that no matcher is bypassed', async (test) => {
    const { get } = await serve(
      test,
      (root) => `\troot * ${root}\n\troute {\n\t\trespond /docs/* 403\n\t\tfile_server\n\t}`,
    );
    for (const [target, location] of [
      ['/docs', './docs/'],
      ['/%64ocs', './docs/'],
      ['/docs/.', './docs/'],
      ['/%2fdocs?x', './%2fdocs/?x'],
    ] as const) {
      const { status, headers } = await get(target);
      assert.deepEqual([status, headers.location], [308, location], target);
      assert.equal((await get(location.slice(1))).status, 403, target);
    }
  });

  it('serves ranges (RFC 9110 §14)', async (test) => {
    const { get } = await serve(test, plain);
    for (const [range, expected, where] of [
      ['bytes=0-3', '0123', 'bytes 0-3/10'],
      ['bytes=4-', '456789', 'bytes 4-9/10'],
      ['bytes=-2', '89', 'bytes 8-9/10'],
      ['bytes=-100', '0123456789', 'bytes 0-9/10'],
      ['bytes=8-100', '89', 'bytes 8-9/10'],
      ['bytes=9-9', '9', 'bytes 9-9/10'],
    ] as const) {
      const { status, body, headers } = await get('/digits.txt', { Range: range });
      assert.deepEqual([status, body, headers['content-range']], [206, expected, where], range);
      assert.equal(headers['content-length'], String(expected.length));
    }
    for (const range of ['bytes=10-', 'bytes=100-200', 'bytes=-0']) {
      const { status, headers } = await get('/digits.txt', { Range: range });
      assert.deepEqual([status, headers['content-range']], [416, 'bytes */10'], range);
    }
    assert.equal((await get('/nothing.txt', { Range: 'bytes=0-' })).status, 200);
    for (const range of ['bytes=0-1,3-4', 'bytes=3-1', 'lines=0-1', 'bytes=x', 'bytes=-']) {
      assert.equal((await get('/digits.txt', { Range: range })).status, 200, range);
    }
  });

  it('sends no freshness and no validators with an unsatisfiable range, as in Caddy', async (test) => {
    const { get } = await serve(
      test,
      (root) => `header Cache-Control max-age=60\nheader ?X-Kept yes\n${plain(root)}`,
    );
    const { status, headers } = await get('/digits.txt', { Range: 'bytes=10-' });
    const fields = ['cache-control', 'etag', 'last-modified', 'x-kept', 'content-range'];
    assert.deepEqual(
      [status, ...fields.map((name) => headers[name])],
      [416, undefined, undefined, undefined, 'yes', 'bytes */10'],
    );
    const { headers: whole } = await get('/digits.txt', { Range: 'bytes=0-' });
    assert.equal(whole['cache-control'], 'max-age=60');
  });

  it('evaluates conditional requests in the order of RFC 9110 §13.2.2', async (test) => {
    const { get } = await serve(test, plain);
    const { headers } = await get('/digits.txt');
    const etag = String(headers.etag);
    const date = String(headers['last-modified']);
    const earlier = 'Tue, 14 Nov 2023 22:13:19 GMT';
    for (const [fields, expected] of [
      [{ 'If-None-Match': etag }, 304],
      [{ 'If-None-Match': `"x", W/${etag}` }, 304],
      [{ 'If-None-Match': '*' }, 304],
      [{ 'If-None-Match': '"x"', 'If-Modified-Since': date }, 200],
      [{ 'If-Modified-Since': date }, 304],
      [{ 'If-Modified-Since': earlier }, 200],
      [{ 'If-Modified-Since': 'nonsense' }, 200],
      [{ 'If-Match': etag }, 200],
      [{ 'If-Match': `W/${etag}` }, 412],
      [{ 'If-Match': '"x"' }, 412],
      [{ 'If-Unmodified-Since': earlier }, 412],
      [{ 'If-Unmodified-Since': date }, 200],
      [{ Range: 'bytes=0-1', 'If-Range': etag }, 206],
      [{ Range: 'bytes=0-1', 'If-Range': date }, 206],
      [{ Range: 'bytes=0-1', 'If-Range': `W/${etag}` }, 200],
      [{ Range: 'bytes=0-1', 'If-Range': '"x"' }, 200],
      [{ Range: 'bytes=0-1', 'If-Range': earlier }, 200],
    ] as const) {
      const { status, body, headers: answered } = await get('/digits.txt', fields);
      assert.equal(status, expected, JSON.stringify(fields));
      if (status === 304) assert.deepEqual([body, answered.etag], ['', etag]);
    }
  });

  it('gives no validators to a file from the beginning of 1970, where reproducible archives put every version', async (test) => {
    const { root, get } = await serve(test, plain);
    for (const seconds of [0, 1]) {
      await utimes(join(root, 'digits.txt'), seconds, seconds);
      const { status, headers } = await get('/digits.txt');
      assert.deepEqual(
        [status, headers.etag, headers['last-modified']],
        [200, undefined, undefined],
        String(seconds),
      );
      const date = new Date(seconds * 1000).toUTCString();
      for (const [fields, expected] of [
        [{ 'If-Modified-Since': date }, 200],
        [{ 'If-None-Match': '"0-a"' }, 200],
        [{ 'If-None-Match': '*' }, 304],
        [{ 'If-Match': '"0-a"' }, 412],
        [{ 'If-Match': '*' }, 200],
        [{ Range: 'bytes=0-1' }, 206],
        [{ Range: 'bytes=0-1', 'If-Range': date }, 200],
        [{ Range: 'bytes=0-1', 'If-Range': '"0-a"' }, 200],
      ] as const) {
        assert.equal((await get('/digits.txt', fields)).status, expected, JSON.stringify(fields));
      }
    }
    await utimes(join(root, 'digits.txt'), 2, 2);
    assert.equal(
      (await get('/digits.txt')).headers['last-modified'],
      'Thu, 01 Jan 1970 00:00:02 GMT',
    );
  });

  it('aborts a response whose file becomes shorter while it is sent', async (test) => {
    const { root, port } = await serve(test, plain);
    const size = 64 * 1024 * 1024;
    const file = join(root, 'large.bin');
    await writeFile(file, '');
    await truncate(file, size);
    const socket = connectTcp(port, 'localhost');
    test.after(() => socket.destroy());
    socket.write('GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(socket, 'readable');
    // More than the system keeps for a client that does not read is still to be sent.
    await truncate(file, 0);
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length));
    socket.on('error', () => {});
    await once(socket, 'close');
    assert.ok(bytes < size, `${bytes}`);
  });

  it('serves files over HTTP/2, and in error routes', async (test) => {
    const base = await serve(
      test,
      (root) =>
        `\troot * ${root}\n\tfile_server\n\thandle_errors {\n\t\trewrite /digits.txt\n\t\tfile_server\n\t}`,
    );
    const missing = await base.get('/missing');
    assert.deepEqual([missing.status, missing.body], [404, '0123456789']);
    const port = await freePort();
    const { root: authority } = await startGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n\troot * ${base.root}\n\tencode gzip\n\tfile_server\n}\n`,
    );
    const client = connect(`https://localhost:${port}`, { ca: await authority() });
    test.after(() => client.close());
    const stream = client.request({ ':path': '/digits.txt', range: 'bytes=2-4' });
    let body = '';
    let status = 0;
    stream.on('response', (fields) => (status = Number(fields[':status'])));
    stream.setEncoding('utf8');
    for await (const chunk of stream) body += chunk;
    assert.deepEqual([status, body], [206, '234']);
  });

  it('serves no file outside of a directory whose name the request decides', async (test) => {
    let asked = 0;
    const php = createServer((socket) => {
      asked += 1;
      socket.destroy();
    });
    await once(php.listen(0, '127.0.0.1'), 'listening');
    test.after(() => php.close());
    const address = php.address();
    assert.ok(typeof address === 'object' && address !== null);
    const origin = await serveByRequest(test, `127.0.0.1:${address.port}`);
    const get = async (target: string, headers: Record<string, string> = {}) => {
      const { status, body } = await send(`${origin}/`, {
        target,
        headers: Object.entries({ Host: 'a.example', ...headers }),
      });
      return status === 200 ? body : status;
    };
    for (const host of ['..', '...', '.', '[...]']) {
      assert.equal(await get('/host/secret/x.txt', { Host: host }), 400, host);
    }
    assert.equal(await get('/label/secret/x.txt', { Host: '.example.com' }), 400);
    assert.equal(await get('/label/secret/x.txt', { Host: 'example.com' }), 404);
    for (const site of ['..', 'one/../..', '../../', '.', '', '/', './/.']) {
      for (const path of ['field', 'set', 'two', 'tried', 'php']) {
        const target = `/${path}/secret/x.txt`;
        assert.equal(await get(target, { 'X-Site': site }), 404, `${path} ${site}`);
      }
      assert.equal(await get('/variable/secret/x.txt', { Cookie: `site=${site}` }), 404, site);
    }
    assert.equal(await get('/dots/secret/x.txt', { 'X-Site': '.' }), 404);
    assert.equal(await get('/dots/secret/x.txt'), 404);
    assert.equal(await get('/two/secret/x.txt?site=.', { 'X-Site': '.' }), 404);
    assert.equal(asked, 0);
    // The names of sites, and what the operator writes.
    assert.equal(await get('/host/x.txt'), 'sites/a.example');
    assert.equal(await get('/host/x.txt', { Host: 'A.example.:80' }), 'sites/a.example');
    for (const path of ['field', 'set', 'two']) {
      assert.equal(await get(`/${path}/x.txt`, { 'X-Site': './one/two' }), 'sites/one/two', path);
    }
    assert.equal(await get('/tried/x.txt', { 'X-Site': 'one/two' }), 'found');
    assert.equal(await get('/own/x.txt'), 'sites/one/two');
    assert.equal(await get('/mapped/x.txt'), 'sites/one/two');
  });
});
