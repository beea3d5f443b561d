import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../src/kernel/clock.ts';
import { Challenges } from '../../src/tls/acme/challenges.ts';
import { freePorts, handshake, SharedStorage, startAcmeGateway } from '../support/acme-gateway.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { send } from '../support/http.ts';
import { openssl } from '../support/openssl.ts';
import { hasPebble, startPebble } from '../support/pebble.ts';

const EXTERNAL_ACCOUNT = {
  keyId: 'kid-1',
  macKey: 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W',
};
const EAB = `acme_eab {\n\t\tkey_id ${EXTERNAL_ACCOUNT.keyId}\n\t\tmac_key ${EXTERNAL_ACCOUNT.macKey}\n\t}`;
const SITE = 'a.example.com {\n\trespond hello\n}\n';

describe('ACME', () => {
  it('HTTP-01: gets a certificate that a client trusts, with an external account and rejected nonces (RFC 8555 §7.3.4, §8.3)', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const pebble = await startPebble(test, {
      httpPort: ports.httpPort,
      httpsPort: await freePort(),
      externalAccount: EXTERNAL_ACCOUNT,
    });
    const { log } = await startAcmeGateway({
      ...ports,
      storage,
      acme: `${directoryOf(pebble)}\nemail ops@example.com\n${EAB}`,
      autoHttps: 'disable_redirects',
      sites: SITE,
    });
    const { fields } = await log.says('Certificate obtained');
    assert.deepEqual(fields['names'], ['a.example.com']);
    assert.match(pebble.output(), /reject 30% of good nonces/);

    const rootFile = join(storage.path, 'issuing-root.pem');
    writeFileSync(rootFile, await pebble.issuingRoot());
    const seen = await openssl(
      ...['s_client', '-connect', `127.0.0.1:${ports.httpsPort}`, '-servername', 'a.example.com'],
      ...['-CAfile', rootFile, '-verify_return_error', '-verify_hostname', 'a.example.com'],
    );
    assert.match(seen, /Verify return code: 0 \(ok\)/);
    assert.match(seen, /Verified peername: a\.example\.com/);
    // The account, the certificate, and nothing that others may read or that is left over.
    for (const [path, mode] of filesOf(storage.path)) {
      assert.equal(mode, 0o600, path);
      assert.doesNotMatch(path, /\/(?:challenges|attempts)\//);
    }
    const text = JSON.stringify(log.lines);
    assert.equal(text.includes(EXTERNAL_ACCOUNT.macKey), false);
  });

  it('a site without tls uses the files of another site that are for its name, on any port', async (test) => {
    const ports = await freePorts();
    const [other, own] = [await freePort(), await freePort()];
    const storage = new SharedStorage(test);
    const authority = createClientAuthority(storage.path, 'authority');
    const { cert } = authority.issue('*.example.com', 'serverAuth');
    const files = join(storage.path, '*.example.com');
    const { log } = await startAcmeGateway({
      ...ports,
      storage,
      // Nobody answers there, and these names are none of its business.
      acme: `acme_ca https://127.0.0.1:${await freePort()}/dir`,
      sites: `files.example.com {\n\ttls ${files}.crt ${files}.key\n}
a.example.com {\n\trespond a\n}
*.example.com {\n\trespond any\n}
https://b.example.com:${other} {\n\trespond b\n}
https://c.example.com:${own} {\n\ttls internal\n}\n`,
    });
    for (const [port, name] of [
      [ports.httpsPort, 'files.example.com'],
      [ports.httpsPort, 'a.example.com'],
      [ports.httpsPort, 'any.example.com'],
      [other, 'b.example.com'],
    ] as const) {
      const socket = await handshake(port, name, readFileSync(authority.file, 'utf8'));
      assert.deepEqual(socket.getPeerCertificate().raw, new X509Certificate(cert).raw);
      socket.destroy();
    }
    (await handshake(own, 'c.example.com', await storage.localRoot())).destroy();
    assert.deepEqual(log.of('Waiting for a certificate'), []);
    assert.deepEqual(
      log.lines.filter(({ fields }) => fields['code'] === 'local-certificate'),
      [],
    );
  });

  it('TLS-ALPN-01: does the same without an HTTP port (RFC 8737)', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const pebble = await startPebble(test, {
      httpPort: await freePort(),
      httpsPort: ports.httpsPort,
      externalAccount: EXTERNAL_ACCOUNT,
    });
    const {
      ports: listening,
      certificates,
      log,
    } = await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: `${directoryOf(pebble)}\n${EAB}`,
      autoHttps: 'off',
      sites: 'a.example.com, b.example.com {\n\trespond hello\n}\n',
    });
    await log.says('Certificate obtained', 2);
    assert.deepEqual(listening(), [ports.httpsPort]);
    const root = await pebble.issuingRoot();
    for (const name of ['a.example.com', 'b.example.com']) {
      const socket = await handshake(ports.httpsPort, name, root);
      assert.equal(socket.getPeerCertificate().subjectaltname, `DNS:${name}`);
      socket.destroy();
    }
    const listed = await certificates();
    assert.deepEqual(
      // The one that was obtained first comes first.
      listed
        .filter(({ authority }) => authority !== 'local')
        .flatMap(({ names }) => names)
        .toSorted(),
      ['a.example.com', 'b.example.com'],
    );
  });

  it('gets a certificate for an IP address, and serves it to clients that send no server name (RFC 8738)', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const pebble = await startPebble(test, {
      httpPort: await freePort(),
      httpsPort: ports.httpsPort,
    });
    const { log } = await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: directoryOf(pebble),
      sites: '127.0.0.1 {\n\ttls ops@example.com\n\trespond hello\n}\n',
    });
    await log.says('Certificate obtained');
    const socket = await handshake(ports.httpsPort, '', await pebble.issuingRoot());
    assert.equal(socket.getPeerCertificate().subjectaltname, 'IP Address:127.0.0.1');
    socket.destroy();
  });

  it('creates an account once, and again when the authority has forgotten it', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const pebble = await startPebble(test, ports);
    const { log, reload } = await startAcmeGateway({
      ...ports,
      storage,
      acme: directoryOf(pebble),
      sites: SITE,
    });
    await log.says('Certificate obtained');
    const [account] = filesOf(storage.path).filter(([path]) => path.includes('/account-'));
    assert.ok(account);
    const [file] = account;
    const { key, url } = JSON.parse(readFileSync(file, 'utf8'));
    await reload(`${SITE}b.example.com {\n\trespond b\n}\n`);
    await log.says('Certificate obtained', 2);
    assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')), { key, url });

    writeFileSync(file, JSON.stringify({ key, url: `${url}0000` }));
    await reload(`${SITE}c.example.com {\n\trespond c\n}\n`);
    await log.says('Certificate obtained', 3);
    assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')), { key, url });

    // A damaged file is replaced as well, and kept under another name.
    let sites = SITE;
    for (const [index, damaged] of ['', JSON.stringify({ key: key.slice(0, 80), url })].entries()) {
      writeFileSync(file, damaged);
      sites += `d${index}.example.com {\n\trespond d\n}\n`;
      await reload(sites);
      await log.says('Certificate obtained', 4 + index);
      assert.notEqual(JSON.parse(readFileSync(file, 'utf8')).key, key);
      assert.equal(readFileSync(`${file}.damaged`, 'utf8'), damaged);
    }
  });
});

describe('a new authority', () => {
  it('is asked at once, while the certificate of the previous one is served until it delivers', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const former = await startPebble(test, ports);
    const before = await startAcmeGateway({
      ...ports,
      storage,
      acme: directoryOf(former),
      sites: SITE,
    });
    await before.log.says('Certificate obtained');
    await before.stop();
    const down = await startAcmeGateway({
      ...ports,
      storage,
      acme: `acme_ca https://127.0.0.1:${await freePort()}/dir`,
      sites: SITE,
    });
    await down.log.says('Certificate not renewed');
    (await handshake(ports.httpsPort, 'a.example.com', await former.issuingRoot())).destroy();
    await down.stop();
    const next = await startPebble(test, ports);
    const after = await startAcmeGateway({
      ...ports,
      storage,
      acme: directoryOf(next),
      sites: SITE,
    });
    await after.log.says('Certificate obtained');
    (await handshake(ports.httpsPort, 'a.example.com', await next.issuingRoot())).destroy();
  });

  it('receives no order while the staging authority fails, nor for a disabled challenge', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const wrong = await startPebble(test, {
      httpPort: await freePort(),
      httpsPort: await freePort(),
    });
    const right = await startPebble(test, ports);
    const authority = await startPebble(test, ports);
    const roots = join(storage.path, 'roots.pem');
    writeFileSync(
      roots,
      [wrong, right, authority].map(({ rootFile }) => readFileSync(rootFile, 'utf8')).join(''),
    );
    const start = (staging: string) =>
      startAcmeGateway({
        ...ports,
        storage,
        acme: `acme_ca ${authority.directory}\nacme_staging ${staging}\nacme_challenges http-01\nacme_ca_root ${roots}`,
        sites: SITE,
      });
    const first = await start(wrong.directory);
    const { fields } = await first.log.says('No certificate');
    assert.match(String(fields['error']), /^http-01: [^;]*$/);
    assert.equal(wrong.orders(), 1, 'one challenge, one order');
    assert.equal(authority.orders(), 0);
    await first.stop();
    const second = await start(right.directory);
    await second.log.says('Certificate obtained');
    assert.equal(right.orders(), 1);
    assert.equal(authority.orders(), 1);
    (await handshake(ports.httpsPort, 'a.example.com', await authority.issuingRoot())).destroy();
  });
});

describe('responses to challenges', () => {
  for (const version of ['-tls1_2', '-tls1_3']) {
    it(`openssl ${version}: a client that asks for acme-tls/1 gets the challenge certificate, all others get the site’s (RFC 8737 §4)`, async (test) => {
      if (!hasPebble(test)) return;
      const ports = await freePorts();
      const storage = new SharedStorage(test);
      const pebble = await startPebble(test, ports);
      const { log } = await startAcmeGateway({
        ...ports,
        storage,
        acme: directoryOf(pebble),
        sites: SITE,
      });
      await log.says('Certificate obtained');
      const connect = ['s_client', '-connect', `127.0.0.1:${ports.httpsPort}`, version];
      const named = [...connect, '-servername', 'a.example.com'];
      const nothing = await openssl(...named, '-alpn', 'acme-tls/1');
      assert.match(nothing, /no peer certificate available/);

      // As another machine does that shares the storage.
      const challenges = new Challenges(storage.path, systemClock);
      await challenges.publish({
        type: 'tls-alpn-01',
        name: 'a.example.com',
        token: 'token',
        keyAuthorization: 'token.thumbprint',
      });
      // It ends by itself: the other side closes.
      const answer = await talk([...named, '-alpn', 'acme-tls/1'], '');
      assert.match(answer, /subject=CN = ACME challenge/);
      assert.match(answer, /ALPN protocol: acme-tls\/1/);
      for (const alpn of ['acme-tls/1,h2', 'h2', 'http/1.1']) {
        const ordinary = await openssl(...named, '-alpn', alpn);
        assert.match(ordinary, /issuer=CN = Pebble/, alpn);
        assert.doesNotMatch(ordinary, /ALPN protocol: acme/, alpn);
      }
      assert.match(await openssl(...named), /issuer=CN = Pebble/);
      const stranger = await openssl(
        ...[...connect, '-servername', 'other.example.com', '-alpn', 'acme-tls/1'],
      );
      assert.match(stranger, /no peer certificate available/);

      // The storage fails, but the certificate of the site is in memory.
      const paths = filesOf(storage.path).map(([path]) => path);
      const file = paths.find((path) => path.includes('tls-alpn-01')) ?? '';
      writeFileSync(file, '{"expires');
      assert.match(await openssl(...named), /issuer=CN = Pebble/);
      rmSync(file);
      mkdirSync(file);
      assert.match(await openssl(...named), /issuer=CN = Pebble/);
    });

    it(`openssl ${version}: only the challenge is answered while the site has no certificate yet`, async (test) => {
      const ports = await freePorts();
      const storage = new SharedStorage(test);
      await startAcmeGateway({
        ...ports,
        storage,
        acme: `acme_ca https://127.0.0.1:${await freePort()}/dir`,
        sites: SITE,
      });
      const challenges = new Challenges(storage.path, systemClock);
      await challenges.publish({
        type: 'tls-alpn-01',
        name: 'a.example.com',
        token: 'token',
        keyAuthorization: 'token.thumbprint',
      });
      const named = [
        ...['s_client', '-connect', `127.0.0.1:${ports.httpsPort}`, version],
        ...['-servername', 'a.example.com'],
      ];
      assert.match(await openssl(...named, '-alpn', 'acme-tls/1'), /subject=CN = ACME challenge/);
      // Nobody is served with the answer's certificate.
      const served = await talk(
        [...named, '-ign_eof'],
        'GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n',
      );
      assert.doesNotMatch(served, /HTTP\/1\.1/);
    });
  }

  it('HTTP-01: come before redirects and sites, and only for pending challenges', async (test) => {
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const { log } = await startAcmeGateway({
      ...ports,
      storage,
      acme: `acme_ca https://127.0.0.1:${await freePort()}/dir`,
      sites: `${SITE}http://plain.example.com {\n\trespond app\n}\n`,
    });
    const origin = `http://127.0.0.1:${ports.httpPort}`;
    const challenges = new Challenges(storage.path, systemClock);
    const withdraw = await challenges.publish({
      type: 'http-01',
      name: 'a.example.com',
      token: 'tok_en-1',
      keyAuthorization: 'tok_en-1.thumbprint',
    });
    const ask = (host: string, path: string, method = 'GET') =>
      send(`${origin}${path}`, { method, headers: [['Host', host]] });
    const path = '/.well-known/acme-challenge/tok_en-1';
    for (const host of ['a.example.com', 'plain.example.com', 'unknown.example.com']) {
      const { status, body, headers } = await ask(host, path);
      assert.deepEqual([status, body], [200, 'tok_en-1.thumbprint'], host);
      assert.equal(headers['content-type'], 'application/octet-stream');
    }
    assert.equal((await ask('a.example.com', path, 'HEAD')).status, 200);
    for (const other of [`${path}x`, `${path}/`, `${path}?a`, '/.well-known/acme-challenge/']) {
      assert.equal((await ask('a.example.com', other)).status, 308, other);
      assert.equal((await ask('plain.example.com', other)).body, 'app', other);
    }
    assert.equal((await ask('plain.example.com', path, 'POST')).body, 'app');
    await withdraw();
    assert.equal((await ask('plain.example.com', path)).body, 'app');
    // The storage fails, which must not concern an app that answers challenges itself.
    mkdirSync(join(storage.path, 'acme', 'challenges', 'http-01', 'tok_en-1'));
    assert.equal((await ask('plain.example.com', path)).body, 'app');
    for (const length of [240, 241, 255, 256, 257]) {
      const long = `/.well-known/acme-challenge/${'a'.repeat(length)}`;
      assert.equal((await ask('plain.example.com', long)).body, 'app', String(length));
    }
    assert.deepEqual(log.of('A response failed'), []);
  });
});

/** Runs OpenSSL with something to say, until the other side ends. */
async function talk(args: readonly string[], text: string): Promise<string> {
  const child = spawn('openssl', args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => (output += chunk));
  }
  // It may have ended before it is told anything.
  child.stdin.on('error', () => {});
  child.stdin.write(text);
  await once(child, 'close');
  return output;
}

function directoryOf(pebble: { readonly directory: string; readonly rootFile: string }): string {
  return `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}`;
}

/**
 * All files of the ACME client in a storage except the locks, and all certificates, with their modes. A lock
 * is still being released when the log says that the certificate was obtained.
 */
function filesOf(storage: string): readonly (readonly [path: string, mode: number])[] {
  const acme = readdirSync(join(storage, 'acme')).filter((name) => name !== 'locks');
  const folders = ['certificates', ...acme.map((name) => join('acme', name))];
  return folders.flatMap((folder) =>
    readdirSync(join(storage, folder), { recursive: true, encoding: 'utf8' })
      .map((name) => join(storage, folder, name))
      .filter((path) => statSync(path).isFile())
      .map((path) => [path, statSync(path).mode & 0o777] as const),
  );
}
