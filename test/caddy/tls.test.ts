import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { connect, type ConnectionOptions } from 'node:tls';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { createGateway, parseHubfile, silentLogger } from '../support/installed-package.ts';
import { TestProcess } from '../support/process.ts';
import { caddyOf } from './programs.ts';

/*
 * The directive `tls` in both programs: which handshakes succeed, what they agree on, and what a handler
 * learns of the client. CERT and KEY are files for every `*.test`, POOL and OTHER are authorities.
 */
const given = process.env['HUBGATE_CADDY'];

const directory = mkdtempSync(join(tmpdir(), 'hubgate-caddy-tls-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const pool = createClientAuthority(directory, 'pool');
const other = createClientAuthority(directory, 'other');
pool.issue('*.test', 'serverAuth');
const known = pool.issue('known');
const stranger = other.issue('stranger');

const FILES: Readonly<Record<string, string>> = {
  CERT: join(directory, '*.test.crt'),
  KEY: join(directory, '*.test.key'),
  POOL: pool.file,
  OTHER: other.file,
};

/** The block of `tls` of a site, by the first label of its name. */
const SITES: Readonly<Record<string, string>> = {
  plain: '',
  old: 'protocols tls1.2 tls1.2',
  new: 'protocols tls1.3',
  one: 'alpn http/1.1',
  two: 'alpn h2',
  curve: 'curves x25519',
  suite: 'protocols tls1.2 tls1.2\nciphers TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384',
  requested: 'client_auth {\nmode request\n}',
  required: 'client_auth {\nmode require\n}',
  given: 'client_auth {\nmode verify_if_given\ntrust_pool file POOL\n}',
  verified: 'client_auth {\nmode require_and_verify\ntrust_pool file POOL\n}',
  implied: 'client_auth {\ntrust_pool file POOL\n}',
  several: 'client_auth {\ntrust_pool file {\npem_file POOL\npem_file OTHER\n}\n}',
  oldname: 'client_auth {\ntrusted_ca_cert_file POOL\n}',
};

const CLIENTS: Readonly<Record<string, ConnectionOptions>> = {
  usual: {},
  'with TLS 1.2': { maxVersion: 'TLSv1.2' },
  'with TLS 1.3': { minVersion: 'TLSv1.3' },
  'that offers HTTP/1.1': { ALPNProtocols: ['http/1.1'] },
  'that offers both versions of HTTP': { ALPNProtocols: ['h2', 'http/1.1'] },
  'that offers something else': { ALPNProtocols: ['acme-tls/9'] },
  'with another curve': { ecdhCurve: 'P-256' },
  'with another suite': { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-GCM-SHA256' },
  'with a known certificate': known,
  'with a certificate of a stranger': stranger,
  'with a known certificate in TLS 1.2': { ...known, maxVersion: 'TLSv1.2' },
};

/** Handshakes that end otherwise by a decision that docs/from-caddy.md tells, by site and client. */
const DIFFERENT: Readonly<Record<string, RegExp>> = {
  // Go lets a client with HTTP/1.1 alone in, whatever the list.
  two: /that offers HTTP\/1\.1/,
  // A certificate that nobody has verified names nobody.
  requested: /certificate/,
  required: /certificate/,
};

/** Debian's Caddy does not know `trust_pool`. */
const sites = Object.entries(SITES).filter(
  ([, block]) => given !== undefined || !block.includes('trust_pool'),
);

function textWith(port: number, options: string): string {
  const blocks = sites.map(([name, block]) => {
    const tls = `tls CERT KEY {\n${block}\n}\n`;
    return `https://${name}.test:${port} {\n${tls}respond "{scheme} {tls_client_subject}."\n}\n`;
  });
  const text = `{\nadmin off\ndefault_bind 127.0.0.1\nauto_https off\n${options}}\n${blocks.join('')}`;
  return text.replaceAll(/\b(?:CERT|KEY|POOL|OTHER)\b/g, (name) => FILES[name] ?? name);
}

/** What a client gets: the versions and the answer, or that it is refused. */
function outcome(port: number, host: string, options: ConnectionOptions): Promise<string> {
  return new Promise((resolve) => {
    const target = { host: '127.0.0.1', port, servername: host, rejectUnauthorized: false };
    const socket = connect({ ...target, ...options });
    let answer = '';
    let agreed = '';
    socket.on('secureConnect', () => {
      agreed = `${socket.getProtocol()} ${socket.alpnProtocol || '-'}`;
      // The beginning of HTTP/2 is not an answer of the site.
      if (socket.alpnProtocol === 'h2') socket.end();
      else socket.write(`GET / HTTP/1.1\r\nHost: ${host}:${port}\r\nConnection: close\r\n\r\n`);
    });
    socket.on('data', (bytes: Buffer) => (answer += String(bytes)));
    socket.on('error', () => {});
    socket.on('close', () => {
      const [head = '', body = ''] = answer.split('\r\n\r\n');
      const status = /^HTTP\/1\.1 (\d+)/.exec(head)?.[1];
      const isOver = agreed.endsWith(' h2');
      if (status === undefined && !isOver) resolve('refused');
      else resolve(isOver ? agreed : `${agreed} ${status} ${withoutName(body.trim())}`);
    });
  });
}

/** Debian's Caddy leaves the name of a placeholder without a value. */
function withoutName(body: string): string {
  return body.replace('{http.request.tls.client.subject}', '');
}

describe('tls as in Caddy', () => {
  const cleanUps: (() => unknown)[] = [];
  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });
  let ports: Promise<{ readonly own: number; readonly its: number }> | null = null;

  async function start(program: string): Promise<{ readonly own: number; readonly its: number }> {
    const [own, its] = [await freePort(), await freePort()];
    const storage = `storage ${mkdtempSync(join(directory, 'storage-'))}\n`;
    const gateway = createGateway(parseHubfile(textWith(own, storage), { env: {} }), {
      log: silentLogger,
    });
    cleanUps.push(() => gateway.stop());
    await gateway.start();
    const config = join(directory, 'Caddyfile');
    writeFileSync(config, textWith(its, ''));
    const args = ['run', '--adapter', 'caddyfile', '--config', config];
    const env = { HOME: directory, XDG_DATA_HOME: directory };
    const caddy = new TestProcess(args, env, directory, { program });
    cleanUps.push(() => caddy.end('SIGKILL'));
    await caddy.says('serving initial configuration');
    return { own, its };
  }

  for (const [name, block] of sites) {
    it(`${name}: ${block.replaceAll('\n', ' ') || 'certificate files'}`, async (test) => {
      const program = caddyOf(test, given);
      if (program === null) return;
      ports ??= start(program);
      const { own, its } = await ports;
      for (const [client, options] of Object.entries(CLIENTS)) {
        const [actual, expected] = await Promise.all([
          outcome(own, `${name}.test`, options),
          outcome(its, `${name}.test`, options),
        ]);
        if (DIFFERENT[name]?.test(client) === true) assert.notEqual(actual, expected, client);
        else assert.equal(actual, expected, `a client ${client}`);
      }
    });
  }

  it('a name that no site has', async (test) => {
    const program = caddyOf(test, given);
    if (program === null) return;
    ports ??= start(program);
    const { own, its } = await ports;
    assert.equal(
      await outcome(own, 'nobody.example', {}),
      await outcome(its, 'nobody.example', {}),
    );
  });
});
