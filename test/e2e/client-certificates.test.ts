import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it, type TestContext } from 'node:test';
import { checkServerIdentity, type ConnectionOptions } from 'node:tls';
import type { Logger } from '../../src/index.ts';
import { silentLogger } from '../support/installed-package.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { openssl } from '../support/openssl.ts';
import { TlsClient, visit } from '../support/tls-client.ts';

const directory = mkdtempSync(join(tmpdir(), 'hubgate-clients-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const ours = createClientAuthority(directory, 'ours');
const theirs = createClientAuthority(directory, 'theirs');
const friend = ours.issue('friend');
const stranger = theirs.issue('stranger');

const MODES = ['request', 'require', 'verify_if_given', 'require_and_verify'] as const;
const VERSIONS = ['TLSv1.2', 'TLSv1.3'] as const;

/** Who is let in: without a certificate, with a strange one, with one of the pool. */
const LET_IN = {
  request: [true, true, true],
  require: [false, true, true],
  verify_if_given: [true, false, true],
  require_and_verify: [false, false, true],
} as const;

describe('client certificates', () => {
  for (const version of VERSIONS) {
    for (const mode of MODES) {
      it(`${mode}: accepts the right clients, over ${version}`, async (test) => {
        const { port, to } = await start(test, (at) => site('strict.localhost', at, mode));
        const clients = [{}, stranger, friend];
        const answered: boolean[] = [];
        for (const client of clients) {
          const { statuses } = await visit(
            { ...to('strict.localhost'), ...client, minVersion: version, maxVersion: version },
            [`strict.localhost:${port}`],
          );
          answered.push(statuses[0] === 200);
        }
        assert.deepEqual(answered, LET_IN[mode]);
      });
    }
  }

  it('require: accepts any certificate if there is no trust pool', async (test) => {
    const { port, to } = await start(
      test,
      (at) =>
        `strict.localhost:${at} {\n\ttls internal {\n\t\tclient_auth {\n\t\t\tmode require\n\t\t}\n\t}\n\trespond ok\n}\n`,
    );
    const host = `strict.localhost:${port}`;
    const any = await visit({ ...to('strict.localhost'), ...stranger }, [host]);
    assert.deepEqual(any.statuses, [200]);
    assert.deepEqual((await visit(to('strict.localhost'), [host])).statuses, []);
  });

  it('logs why a client was rejected, before any request is read', async (test) => {
    const lines: unknown[] = [];
    const log: Logger = {
      ...silentLogger,
      debug: (message, fields) => void lines.push({ message, ...fields }),
      child: () => log,
    };
    const { port, to } = await start(
      test,
      (at) => site('strict.localhost', at, 'require_and_verify'),
      log,
    );
    const refused = await visit({ ...to('strict.localhost'), ...stranger }, [
      `strict.localhost:${port}`,
    ]);
    assert.deepEqual(refused.statuses, []);
    const line = lines.find((one) => JSON.stringify(one).includes('A client was rejected'));
    assert.match(JSON.stringify(line), /not trusted: UNABLE_TO_(?:GET_ISSUER_CERT|VERIFY)/);
    assert.match(JSON.stringify(line), /strict\.localhost/);
  });

  it('are requested only by sites that ask for them, with the authorities of their pool', async (test) => {
    const { port, rootFile } = await start(
      test,
      (at) => `${plain('open.localhost', at)}${site('strict.localhost', at, 'require_and_verify')}`,
    );
    const asked = (name: string): Promise<string> =>
      openssl(
        's_client',
        '-connect',
        `127.0.0.1:${port}`,
        '-servername',
        name,
        '-CAfile',
        rootFile,
      );
    assert.match(
      await asked('strict.localhost'),
      /Acceptable client certificate CA names\nCN = ours\n/,
    );
    const open = await asked('open.localhost');
    assert.match(open, /Verification: OK/);
    assert.doesNotMatch(open, /Acceptable client|Requested Signature Algorithms/);
  });

  it('accepts a client that connects to an IP address and sends no server name', async (test) => {
    const { port, to } = await start(
      test,
      (at) => `${plain('open.localhost', at)}${site('127.0.0.1', at, 'require_and_verify')}`,
    );
    const { servername: _, ...unnamed } = to('');
    const host = `127.0.0.1:${port}`;
    assert.deepEqual((await visit({ ...unnamed, ...friend }, [host])).statuses, [200]);
    assert.deepEqual((await visit(unnamed, [host])).statuses, []);
  });

  it('waits for a ClientHello that arrives in pieces', async (test) => {
    const { port, to } = await start(
      test,
      (at) => `${plain('open.localhost', at)}${site('strict.localhost', at, 'require_and_verify')}`,
    );
    const relay = createServer((client) => {
      const gateway = connectTcp({ host: '127.0.0.1', port, noDelay: true });
      gateway.pipe(client);
      client.once('data', (hello: Buffer) => {
        client.pause();
        const rest = [...hello].map((_, at) => hello.subarray(at, at + 1));
        const next = (): void => {
          const piece = rest.shift();
          if (piece === undefined) client.pipe(gateway);
          else gateway.write(piece, next);
        };
        next();
      });
      for (const one of [client, gateway]) one.on('error', () => one.destroy());
    });
    relay.listen(0, '127.0.0.1');
    test.after(() => relay.close());
    await once(relay, 'listening');
    const address = relay.address();
    assert.ok(address !== null && typeof address === 'object');
    const through = { ...to('strict.localhost'), ...friend, port: address.port };
    assert.deepEqual((await visit(through, [`strict.localhost:${port}`])).statuses, [200]);
  });

  it('reports a trust pool that cannot be read as a load error with its path', async (test) => {
    const { port, reload, to } = await start(test, (at) => site('strict.localhost', at, 'require'));
    for (const [file, text] of [
      [join(directory, 'absent.pem'), null],
      [join(directory, 'empty.pem'), 'nothing of use\n'],
    ] as const) {
      if (text !== null) writeFileSync(file, text);
      await assert.rejects(
        async () => reload(site('strict.localhost', port, 'require', file)),
        (error) =>
          error instanceof Error &&
          'code' in error &&
          error.code === 'invalid-config' &&
          error.message.includes(file),
      );
    }
    const { statuses } = await visit({ ...to('strict.localhost'), ...friend }, [
      `strict.localhost:${port}`,
    ]);
    assert.deepEqual(statuses, [200]);
  });
});

describe('a request for a site with client certificates over another connection (RFC 9110 §15.5.20)', () => {
  const sites = (at: number): string =>
    [
      plain('open.localhost', at),
      site('strict.localhost', at, 'require_and_verify'),
      site('other.localhost', at, 'require_and_verify'),
      site('lax.localhost', at, 'request'),
    ].join('');

  for (const version of VERSIONS) {
    it(`gets 421 over HTTP/1.1 and ${version}, also without a server name`, async (test) => {
      const { port, to } = await start(test, sites);
      const tls = { ...friend, minVersion: version, maxVersion: version };
      const { servername: _, ...unnamed } = to('');
      const hosts = ['strict', 'other', 'lax', 'open'].map((name) => `${name}.localhost:${port}`);
      const over = async (options: ConnectionOptions): Promise<readonly number[]> =>
        (await visit({ ...options, ...tls }, hosts)).statuses;
      assert.deepEqual(await over(to('open.localhost')), [421, 421, 421, 200]);
      assert.deepEqual(await over(to('strict.localhost')), [200, 421, 421, 200]);
      assert.deepEqual(await over(to('lax.localhost')), [421, 421, 200, 200]);
      assert.deepEqual(
        await over({ ...unnamed, checkServerIdentity: identityOf('open.localhost') }),
        [...[421, 421, 421, 200]],
      );
    });

    it(`gets 421 over a resumed ${version} session, which another site does not accept`, async (test) => {
      const { port, to } = await start(test, sites);
      const tls = { ...friend, minVersion: version, maxVersion: version };
      const [strict, open] = [`strict.localhost:${port}`, `open.localhost:${port}`];
      const first = await visit({ ...to('open.localhost'), ...tls }, [open]);
      assert.ok(first.session !== null);
      const again = await visit({ ...to('open.localhost'), ...tls, session: first.session }, [
        strict,
        open,
      ]);
      assert.equal(again.resumed, true);
      assert.deepEqual(again.statuses, [421, 200]);

      const { cert: _cert, key: _key, ...nobody } = tls;
      const carried = await visit(
        { ...to('strict.localhost'), ...nobody, session: first.session },
        [strict],
      );
      assert.deepEqual([carried.resumed, carried.statuses], [false, []]);

      const checked = await visit({ ...to('strict.localhost'), ...tls }, [strict]);
      assert.ok(checked.session !== null);
      const resumed = await visit(
        { ...to('strict.localhost'), ...nobody, session: checked.session },
        [strict],
      );
      assert.deepEqual([resumed.resumed, resumed.statuses], [true, [200]]);
      const elsewhere = await visit(
        { ...to('other.localhost'), ...nobody, session: checked.session },
        [`other.localhost:${port}`],
      );
      assert.deepEqual([elsewhere.resumed, elsewhere.statuses], [false, []]);
    });
  }

  it('gets 421 over HTTP/2, and the connection stays open', async (test) => {
    const { port, to } = await start(test, sites);
    for (const [name, statuses] of [
      ['open.localhost', [421, 421, 200]],
      ['strict.localhost', [200, 421, 200]],
    ] as const) {
      const session = connectHttp2(`https://127.0.0.1:${port}`, { ...to(name), ...friend });
      test.after(() => session.close());
      const got: unknown[] = [];
      for (const host of ['strict.localhost', 'other.localhost', 'open.localhost']) {
        const stream = session.request({ ':path': '/', ':authority': `${host}:${port}` });
        const [headers] = await once(stream, 'response');
        got.push(headers[':status']);
        stream.resume();
        await once(stream, 'end');
      }
      assert.deepEqual(got, statuses);
    }
  });

  it('gets 421 after a reload that changes the trust pool, and old sessions are not resumed', async (test) => {
    const pool = join(directory, 'changing.pem');
    writeFileSync(pool, readFileSync(ours.file));
    const text = (at: number): string =>
      `${plain('open.localhost', at)}${site('strict.localhost', at, 'require_and_verify', pool)}`;
    const { port, reload, to } = await start(test, text);
    const host = `strict.localhost:${port}`;
    const before = await visit({ ...to('strict.localhost'), ...friend }, [host]);
    assert.deepEqual(before.statuses, [200]);
    assert.ok(before.session !== null);
    const open = new TlsClient({ ...to('strict.localhost'), ...friend });
    assert.equal(await open.get(host), 200);
    await reload(text(port));
    assert.equal(await open.get(host), 200, 'nothing that concerns it has changed');

    writeFileSync(pool, readFileSync(theirs.file));
    await reload(text(port));
    assert.equal(await open.get(host), 421);
    assert.equal(await open.get(`open.localhost:${port}`), 200);
    await open.close();
    const old = await visit({ ...to('strict.localhost'), ...friend, session: before.session }, [
      host,
    ]);
    assert.deepEqual([old.resumed, old.statuses], [false, []]);
    const now = await visit({ ...to('strict.localhost'), ...stranger }, [host]);
    assert.deepEqual(now.statuses, [200]);
  });

  it('gets 421 on a plain HTTP port', async (test) => {
    const port = await freePort();
    const both = `http://strict.localhost:${port}, `;
    await start(test, (at) => both + site('strict.localhost', at, 'require_and_verify'));
    const socket = connectTcp({ host: '127.0.0.1', port });
    test.after(() => socket.destroy());
    socket.write(`GET / HTTP/1.1\r\nHost: strict.localhost:${port}\r\n\r\n`);
    const [chunk] = await once(socket, 'data');
    assert.match(String(chunk), /^HTTP\/1\.1 421 /);
  });
});

describe('TLS versions and cipher suites', () => {
  it('accepts forward secrecy with authenticated encryption, and nothing older', async (test) => {
    const rsa = ['-newkey', 'rsa:2048', '-nodes', '-keyout', 'rsa.key', '-out', 'rsa.crt'];
    execFileSync('openssl', ['req', '-x509', ...rsa, '-days', '2', '-subj', '/CN=localhost'], {
      cwd: directory,
      stdio: 'ignore',
    });
    const files = `${join(directory, 'rsa.crt')} ${join(directory, 'rsa.key')}`;
    const { port } = await start(
      test,
      (at) => `localhost:${at} {\n\ttls ${files}\n\trespond ok\n}\n`,
    );
    const negotiated = async (...args: readonly string[]): Promise<string | undefined> => {
      const connect = ['-connect', `127.0.0.1:${port}`, '-servername', 'localhost'];
      const output = await openssl('s_client', ...connect, ...args);
      return /^New, [^,]+, Cipher is (.*)$/m.exec(output)?.[1];
    };
    for (const cipher of ['ECDHE-RSA-AES128-GCM-SHA256', 'ECDHE-RSA-CHACHA20-POLY1305']) {
      assert.equal(await negotiated('-tls1_2', '-cipher', cipher), cipher);
    }
    for (const cipher of [
      'ECDHE-RSA-AES128-SHA',
      'ECDHE-RSA-AES256-SHA384',
      'AES128-GCM-SHA256',
      'AES256-SHA',
    ]) {
      assert.equal(await negotiated('-tls1_2', '-cipher', cipher), '(NONE)', cipher);
    }
    assert.equal(await negotiated('-tls1_1', '-cipher', 'ALL:@SECLEVEL=0'), '(NONE)');
    assert.equal(await negotiated('-tls1_3'), 'TLS_AES_256_GCM_SHA384');
  });

  it('enforces the versions and suites of each site on a shared port', async (test) => {
    const { port, to } = await start(
      test,
      (at) =>
        `${plain('open.localhost', at)}new.localhost:${at} {\n\ttls {\n\t\tissuer internal\n\t\tprotocols tls1.3\n\t}\n\trespond ok\n}\n` +
        `narrow.localhost:${at} {\n\ttls {\n\t\tissuer internal\n\t\tciphers ECDHE-ECDSA-AES256-GCM-SHA384\n\t}\n\trespond ok\n}\n`,
    );
    const get = async (name: string, options: ConnectionOptions): Promise<readonly number[]> =>
      (await visit({ ...to(name), ...options }, [`${name}:${port}`])).statuses;
    const older = { maxVersion: 'TLSv1.2' } as const;
    assert.deepEqual(await get('open.localhost', older), [200]);
    assert.deepEqual(await get('new.localhost', older), []);
    assert.deepEqual(await get('new.localhost', {}), [200]);
    const narrow = 'narrow.localhost';
    assert.deepEqual(await get(narrow, { minVersion: 'TLSv1.3' }), [200]);
    assert.deepEqual(await get(narrow, older), [200]);
    const other = 'ECDHE-ECDSA-AES128-GCM-SHA256';
    assert.deepEqual(await get(narrow, { ...older, ciphers: other }), []);
  });
});

/** Who sends no name expects that of the first site. */
function identityOf(name: string): typeof checkServerIdentity {
  return (_host, certificate) => checkServerIdentity(name, certificate);
}

function plain(host: string, port: number): string {
  return `${host}:${port} {\n\ttls internal\n\trespond ok\n}\n`;
}

function site(host: string, port: number, mode: string, pool = ours.file): string {
  return `${host}:${port} {\n\ttls internal {\n\t\tclient_auth {\n\t\t\tmode ${mode}\n\t\t\ttrust_pool ${pool}\n\t\t}\n\t}\n\trespond ok\n}\n`;
}

async function start(
  test: TestContext,
  sites: (port: number) => string,
  log: Logger = silentLogger,
) {
  const port = await freePort();
  const options = '\tauto_https disable_redirects\n';
  const { rootFile, root, reload } = await startLibraryGateway(test, sites(port), options, log);
  const ca = await root().catch(() => '');
  const to = (servername: string): ConnectionOptions => ({ port, servername, ca });
  return { port, rootFile, reload, to };
}
