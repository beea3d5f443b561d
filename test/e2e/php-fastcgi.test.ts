import assert from 'node:assert/strict';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import { join, resolve } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { openStream, send } from '../support/http.ts';
import { startPhpFpm } from '../support/php-fpm.ts';
import { RecordedLog } from '../support/recorded-log.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

const EXAMPLE = resolve('examples/php-fpm');

const SCRIPTS: Readonly<Record<string, string>> = {
  'index.php': `<?php echo 'index ', $_SERVER['REQUEST_URI'];`,
  'dump.php': `<?php
    header('Content-Type: application/json');
    $own = array_filter($_SERVER, 'is_string');
    ksort($own);
    echo json_encode(['server' => $own, 'get' => $_GET, 'body' => file_get_contents('php://input')]);`,
  'sub/index.php': `<?php echo 'sub ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '';`,
  'status.php': `<?php http_response_code(418); header('X-Own: a'); header('Set-Cookie: a=1', false); header('Set-Cookie: b=2', false); echo 'teapot';`,
  'moved.php': `<?php header('Location: /elsewhere');`,
  'error.php': `<?php error_log('it went wrong'); echo 'done';`,
  'length.php': `<?php header('Content-Length: ' . $_GET['n']); echo 'abcde';`,
  'lengths.php': `<?php header('Content-Length: 5'); header('Content-Length: 3', false); echo 'abcde';`,
  'slow.php': `<?php echo "first\\n"; while (ob_get_level()) ob_end_flush(); flush(); while (!file_exists($_GET['until'])) { clearstatcache(); usleep(1000); } echo "second\\n";`,
  'big.php': `<?php for ($i = 0; $i < 512; $i++) echo str_repeat('x', 8192);`,
  'plain.txt': 'plain',
};

async function site(test: TestContext): Promise<string> {
  const root = join(await temporaryDirectory(test), 'www');
  for (const [name, text] of Object.entries(SCRIPTS)) {
    await mkdir(join(root, name, '..'), { recursive: true });
    await writeFile(join(root, name), text);
  }
  return root;
}

async function start(
  test: TestContext,
  directives: string,
  log?: Parameters<typeof startLibraryGateway>[3],
): Promise<string> {
  const origin = `http://127.0.0.1:${await freePort()}`;
  await startLibraryGateway(test, `${origin} {\n${directives}\n}\n`, undefined, log);
  return origin;
}

/** A FastCGI server that keeps the names of the scripts that it was asked for, and answers none. */
async function recordScripts(test: TestContext) {
  const scripts: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes: Buffer) => {
      const name = /SCRIPT_NAME(\/[\w./-]*?\.php)/.exec(bytes.toString('latin1'))?.[1];
      if (name !== undefined) scripts.push(name);
      socket.destroy();
    });
  });
  const port = await freePort();
  await new Promise<void>((listening) => server.listen(port, '127.0.0.1', listening));
  test.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { upstream: `127.0.0.1:${port}`, scripts };
}

interface Dump {
  readonly server: Readonly<Record<string, string>>;
  readonly get: Readonly<Record<string, string>>;
  readonly body: string;
}

async function dump(
  origin: string,
  target: string,
  options: Parameters<typeof send>[1] = {},
): Promise<Dump> {
  const { status, body } = await send(origin, { target, ...options });
  assert.equal(status, 200, body);
  // The script above wrote it.
  return JSON.parse(body) as Dump;
}

describe('php_fastcgi', () => {
  it('sends PHP only requests for files, with an index or without', async (test) => {
    const root = await site(test);
    await writeFile(join(root, 'up.jpg'), '<?php echo 1;');
    const { upstream, scripts } = await recordScripts(test);
    for (const [index, targets] of [
      ['off', ['/up.jpg/a.php', '/none.php', '/sub/a.php']],
      // None of the files to try is there.
      ['none.php', ['/up.jpg/a.php', '/none.php', '/other']],
    ] as const) {
      const own = await start(
        test,
        `\troot * ${root}\n\troute {\n\t\tphp_fastcgi ${upstream} {\n\t\t\tindex ${index}\n\t\t}\n\t\trespond "not PHP" 404\n\t}\n`,
      );
      for (const target of targets) {
        assert.equal((await send(own, { target })).body, 'not PHP', `${index} ${target}`);
      }
      assert.equal((await send(own, { target: '/status.php' })).status, 502);
    }
    assert.deepEqual(new Set(scripts), new Set(['/status.php']));
  });

  it('redirects to a directory only if its index is among the files to try', async (test) => {
    const root = await site(test);
    await mkdir(join(root, 'admin'));
    await writeFile(join(root, 'admin/index.php'), '');
    await writeFile(join(root, 'index.php'), '');
    const { upstream, scripts } = await recordScripts(test);
    const statuses: number[] = [];
    for (const files of [
      '{path} index.php',
      '{path} {path}/index.php index.php',
      '{path} {http.request.uri.path}/index.php index.php',
    ]) {
      const own = await start(
        test,
        `\troot * ${root}\n\tphp_fastcgi ${upstream} {\n\t\ttry_files ${files}\n\t}\n`,
      );
      statuses.push((await send(own, { target: '/admin' })).status);
    }
    assert.deepEqual(statuses, [502, 308, 308]);
    assert.deepEqual(new Set(scripts), new Set(['/index.php']));
  });

  it('follows links in the root where resolve_root_symlink is written', async (test) => {
    const fpm = await startPhpFpm(test);
    if (fpm === null) return;
    const root = await site(test);
    const current = join(root, '..', 'current');
    await symlink(root, current);
    for (const [option, seen] of [
      ['', current],
      [' {\n\t\tresolve_root_symlink\n\t}', root],
    ] as const) {
      const own = await start(test, `\troot * ${current}\n\tphp_fastcgi ${fpm.upstream}${option}`);
      const { server } = await dump(own, '/dump.php');
      assert.equal(server['SCRIPT_FILENAME'], join(seen, 'dump.php'));
      assert.equal(server['DOCUMENT_ROOT'], seen);
    }
  });

  it('routes requests and describes them to scripts as Caddy does', async (test) => {
    const fpm = await startPhpFpm(test);
    if (fpm === null) return;
    const root = await site(test);
    const directives = `\troot * ${root}\n\tphp_fastcgi ${fpm.upstream} {\n\t\tenv APP_ENV staging\n\t}\n\tfile_server\n`;
    const own = await start(test, directives);
    const caddy = await startCaddy(test, directives);
    for (const [target, status, body] of [
      ['/', 200, 'index /'],
      ['/a/pretty/link?x=1', 200, 'index /a/pretty/link?x=1'],
      ['/sub/', 200, 'sub /sub/index.php '],
      ['/sub/index.php/more/info', 200, 'sub /sub/index.php /more/info'],
      ['/sub', 308, ''],
      ['/plain.txt', 200, 'plain'],
      ['/none.php', 200, 'index /none.php'],
      ['/status.php', 418, 'teapot'],
      ['/moved.php', 302, ''],
      ['/length.php?n=5', 200, 'abcde'],
    ] as const) {
      const answer = await send(own, { target });
      assert.deepEqual([answer.status, answer.body], [status, body], target);
      if (caddy === null) continue;
      const theirs = await send(caddy, { target });
      assert.deepEqual([theirs.status, theirs.body], [status, body], `Caddy: ${target}`);
      for (const name of ['location', 'x-own', 'set-cookie', 'content-type'] as const) {
        if (status === 308) continue;
        assert.deepEqual(answer.headers[name], theirs.headers[name], `${target} ${name}`);
      }
    }
    assert.equal((await send(own, { target: '/sub?a=1' })).headers.location, '/sub/?a=1');

    const request = {
      method: 'POST',
      headers: [
        ['Content-Type', 'text/x-own'],
        ['Content-Length', '4'],
        ['Cookie', 'a=1'],
        ['X-Two', 'one'],
        ['X-Two', 'two'],
      ],
      body: 'body',
    } as const;
    const target = '/dump.php/info?a=1&b=%20';
    const mine = await dump(own, target, request);
    assert.deepEqual([mine.get, mine.body], [{ a: '1', b: ' ' }, 'body']);
    assert.equal(mine.server['SCRIPT_FILENAME'], join(root, 'dump.php'));
    assert.equal(mine.server['REMOTE_ADDR'], '127.0.0.1');
    assert.equal(mine.server['HTTP_X_TWO'], 'one, two');
    if (caddy === null) return;
    const theirs = await dump(caddy, target, request);
    for (const name of [
      'APP_ENV CONTENT_LENGTH CONTENT_TYPE DOCUMENT_ROOT GATEWAY_INTERFACE HTTP_COOKIE PATH_INFO',
      'PHP_SELF QUERY_STRING REMOTE_ADDR REQUEST_METHOD REQUEST_SCHEME REQUEST_URI SCRIPT_FILENAME',
      'SCRIPT_NAME SERVER_NAME SERVER_PROTOCOL HTTP_X_FORWARDED_PROTO PATH_TRANSLATED',
    ].flatMap((line) => line.split(' '))) {
      assert.equal(mine.server[name], theirs.server[name], name);
    }
  });

  it('does not confuse one header with another, nor run a script outside the root', async (test) => {
    const fpm = await startPhpFpm(test, 'socket');
    if (fpm === null) return;
    const root = await site(test);
    await writeFile(join(root, '..', 'outside.php'), '<?php echo "outside";');
    const own = await start(
      test,
      `\troot * ${root}\n\tphp_fastcgi ${fpm.upstream}\n\tfile_server\n`,
    );
    const { server } = await dump(own, '/dump.php', {
      headers: [
        ['Proxy', 'http://evil.example'],
        ['X_Forwarded_For', '1.2.3.4'],
        ['X-Forwarded-For', '1.2.3.4'],
        ['Remote_User', 'admin'],
        ['Script.Filename', '/etc/passwd'],
      ],
    });
    for (const name of ['HTTP_PROXY', 'HTTP_REMOTE_USER', 'REMOTE_USER', 'HTTP_SCRIPT_FILENAME']) {
      assert.equal(server[name], undefined, name);
    }
    assert.equal(server['HTTP_X_FORWARDED_FOR'], '127.0.0.1');
    for (const target of ['/../outside.php', '/%2e%2e/outside.php', '/sub/..%2f..%2foutside.php']) {
      assert.doesNotMatch((await send(own, { target })).body, /^outside/, target);
    }
  });

  it('streams both ways, over HTTP/2 too', async (test) => {
    const fpm = await startPhpFpm(test, 'socket');
    if (fpm === null) return;
    const root = await site(test);
    const directives = `\troot * ${root}\n\tphp_fastcgi ${fpm.upstream}\n`;
    const own = await start(test, directives);
    const until = join(root, 'now');
    const stream = await openStream(test, `${own}/slow.php?until=${until}`);
    await stream.until(({ text: came }) => came.includes('first'));
    await writeFile(until, '');
    await stream.until(({ text: came }) => came.includes('second'));
    assert.equal((await send(`${own}/big.php`)).body.length, 512 * 8192);
    const body = 'b'.repeat(3_000_000);
    const sent = await dump(own, '/dump.php', {
      method: 'POST',
      body,
      headers: [
        ['Content-Type', 'x/y'],
        ['Content-Length', String(body.length)],
      ],
    });
    assert.equal(sent.body, body);
    const port = await freePort();
    const { root: authority } = await startLibraryGateway(
      test,
      `https://localhost:${port} {\n\ttls internal\n${directives}}\n`,
    );
    const client = connect(`https://localhost:${port}`, { ca: await authority() });
    test.after(() => client.close());
    const request = client.request({ ':path': '/dump.php', ':method': 'PUT' });
    // Without a length.
    request.write('one ');
    request.end('two');
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
    const { server, body: received } = JSON.parse(text) as Dump;
    assert.deepEqual(
      [received, server['HTTPS'], server['SERVER_PROTOCOL'], server['CONTENT_LENGTH']],
      ['one two', 'on', 'HTTP/2.0', '7'],
    );
    const long = await send(`${own}/dump.php`, {
      method: 'POST',
      headers: [['Transfer-Encoding', 'chunked']],
      body: 'x'.repeat(1024 * 1024 + 1),
    });
    assert.equal(long.status, 413);
  });

  it('logs the error output of a script, and aborts a response that does not have its declared length', async (test) => {
    const fpm = await startPhpFpm(test);
    if (fpm === null) return;
    const root = await site(test);
    const log = new RecordedLog();
    const own = await start(test, `\troot * ${root}\n\tphp_fastcgi ${fpm.upstream}\n`, log);
    assert.equal((await send(`${own}/error.php`)).body, 'done');
    const { fields } = await log.says('The script has reported an error');
    assert.match(String(fields['stderr']), /it went wrong/);
    await assert.rejects(send(`${own}/length.php?n=9`));
    await assert.rejects(send(`${own}/length.php?n=3`));
    assert.equal((await send(`${own}/lengths.php`)).status, 502);
  });

  it('serves a site with the structure of WordPress (examples/php-fpm)', async (test) => {
    const fpm = await startPhpFpm(test, 'socket');
    if (fpm === null) return;
    const port = await freePort();
    const hubfile = (await readFile(join(EXAMPLE, 'Hubfile'), 'utf8'))
      .replace('{$SITE:localhost}', `http://127.0.0.1:${port}`)
      .replace('{$ROOT:public}', join(EXAMPLE, 'public'))
      .replace(/\{\$PHP:[^}]*\}/, fpm.upstream);
    await startLibraryGateway(test, hubfile);
    for (const [path, status, body] of [
      ['/', 200, /<h1>\/<\/h1>/],
      ['/2026/hello-world/', 200, /<h1>\/2026\/hello-world\/<\/h1>/],
      ['/nothing/here', 404, /nothing/],
      ['/wp-admin/', 200, /Dashboard.*127\.0\.0\.1/],
      ['/wp-content/style.css', 200, /font-weight/],
      ['/wp-content/uploads/evil.php', 403, /Forbidden/],
      ['/wp-content/uploads/evil.PHP/x', 403, /Forbidden/],
    ] as const) {
      const answer = await send(`http://127.0.0.1:${port}${path}`);
      assert.equal(answer.status, status, path);
      assert.match(answer.body, body);
    }
  });
});

describe('reverse_proxy { transport fastcgi }', () => {
  it('rejects an invalid response, and tries the next server', async (test) => {
    const fpm = await startPhpFpm(test);
    if (fpm === null) return;
    const root = await site(test);
    const broken = await server(test, (socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n'));
    const endless = await server(test, (socket) => {
      for (let i = 0; i < 2; i += 1) socket.write(stdout(`X: ${'x'.repeat(60_000)}`));
    });
    const early = await server(test, (socket) => socket.end(stdout('Status: 200 OK\r\n')));
    const refused = `127.0.0.1:${await freePort()}`;
    const proxy = (...to: string[]): string =>
      `\treverse_proxy ${to.join(' ')} {\n\t\tlb_policy first\n\t\ttransport fastcgi {\n\t\t\troot ${root}\n\t\t\tsplit .php\n\t\t}\n\t}\n`;
    for (const one of [broken, early, endless, refused]) {
      const own = await start(test, proxy(one));
      assert.equal((await send(`${own}/status.php`)).status, 502);
    }
    const own = await start(test, proxy(refused, fpm.upstream));
    assert.equal((await send(`${own}/status.php`)).status, 418);
  });
});

async function server(test: TestContext, serve: (socket: Socket) => void): Promise<string> {
  const listener = createServer((socket) => {
    socket.on('error', () => {});
    serve(socket);
  });
  const port = await freePort();
  await new Promise<void>((done) => listener.listen(port, '127.0.0.1', done));
  test.after(() => listener.close());
  return `127.0.0.1:${port}`;
}

function stdout(text: string): Buffer {
  const header = Buffer.from([1, 6, 0, 1, 0, 0, 0, 0]);
  header.writeUInt16BE(text.length, 4);
  return Buffer.concat([header, Buffer.from(text)]);
}
