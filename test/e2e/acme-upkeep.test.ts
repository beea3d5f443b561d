import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { createCertificateFiles } from '../support/certificate-files.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePorts, handshake, SharedStorage, startAcmeGateway } from '../support/acme-gateway.ts';
import { freePort } from '../support/free-port.ts';
import { hasPebble, startPebble } from '../support/pebble.ts';
import { TlsClient } from '../support/tls-client.ts';
import { TurnedClock } from '../support/turned-clock.ts';

const DAY_MS = 24 * 60 * 60 * 1000;
const SITE = 'a.example.com {\n\trespond hello\n}\n';

describe('maintenance of ACME certificates', () => {
  it('renews them in the last third of their lifetime, and uses the new one for the next handshake', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const storage = new SharedStorage(test);
    const pebble = await startPebble(test, ports);
    const clock = new TurnedClock();
    const options = { ...ports, storage, acme: acmeOf(pebble), sites: SITE };
    const { log, stop } = await startAcmeGateway(options, { clock, random: () => 0 });
    await log.says('Certificate obtained');
    const root = await pebble.issuingRoot();
    const first = await serialOf(ports.httpsPort, root);
    // Pebble's last for five years.
    clock.turn(3 * 365 * DAY_MS);
    assert.equal(await serialOf(ports.httpsPort, root), first);
    assert.equal(pebble.orders(), 1);
    clock.turn(365 * DAY_MS);
    await log.says('Certificate obtained', 2);
    const second = await serialOf(ports.httpsPort, root);
    assert.notEqual(second, first);
    assert.equal(pebble.orders(), 2);
    // By the turned clock the new one is old as well: it is not ordered again and again.
    await log.says('A new certificate has already expired: is the clock of this machine right?');

    await stop();
    const restarted = await startAcmeGateway(options, { random: () => 0 });
    assert.equal(await serialOf(ports.httpsPort, root), second);
    assert.deepEqual(restarted.log.of('Waiting for a certificate'), []);
    assert.equal(pebble.orders(), 2);
  });

  it('gets them from the second authority while the first is down', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const pebble = await startPebble(test, ports);
    const down = `127.0.0.1:${await freePort()}`;
    const { log } = await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: `acme_ca https://${down}/dir ${pebble.directory}\nacme_ca_root ${pebble.rootFile}`,
      sites: SITE,
    });
    const { fields } = await log.says('Certificate obtained');
    assert.equal(fields['authority'], new URL(pebble.directory).host);
    const [failed] = log.of('An authority issued no certificate; hubgate asks the next one');
    assert.equal(failed?.fields['authority'], down);
    assert.match(String(failed.fields['error']), /ECONNREFUSED/);
    await serialOf(ports.httpsPort, await pebble.issuingRoot());
  });

  it('orders them once for gateways that share a storage, and any gateway answers the challenge', async (test) => {
    if (!hasPebble(test)) return;
    const [first, second] = [await freePorts(), await freePorts()];
    const storage = new SharedStorage(test);
    // The authority finds the first only, whichever of them has ordered.
    const pebble = await startPebble(test, first);
    const common = { storage, acme: acmeOf(pebble), sites: SITE };
    const gateways = await Promise.all([
      startAcmeGateway({ ...common, ...first }),
      startAcmeGateway({ ...common, ...second }),
    ]);
    const adopted = gateways.map(async ({ log }) => {
      await Promise.race([
        log.says('Certificate obtained'),
        log.says('Another process has ordered the certificate'),
      ]);
    });
    await Promise.all(adopted);
    const root = await pebble.issuingRoot();
    const serials = [await serialOf(first.httpsPort, root), await serialOf(second.httpsPort, root)];
    assert.equal(serials[0], serials[1]);
    assert.equal(pebble.orders(), 1);
    const obtained = gateways.flatMap(({ log }) => log.of('Certificate obtained'));
    assert.equal(obtained.length, 1);
  });
});

describe('a site that waits for its certificate', () => {
  it('does not block other sites, startup or a reload, and is logged once a minute', async (test) => {
    const ports = await freePorts();
    const authority = await silentAuthority(test);
    const storage = new SharedStorage(test);
    // A private authority, which may know the name: ours need not lead anywhere.
    const root = join(await temporaryDirectory(test), 'root.pem');
    await writeFile(root, createCertificateFiles().site.cert);
    const local = 'localhost {\n\trespond local\n}\n';
    const { log, reload } = await startAcmeGateway({
      ...ports,
      storage,
      acme: `acme_ca ${authority.directory}\n\tacme_ca_root ${root}`,
      sites: `${SITE}${local}`,
    });
    await authority.contacted;
    const get = async (name: string) => {
      const client = new TlsClient({
        port: ports.httpsPort,
        servername: name,
        ca: await storage.localRoot(),
      });
      const status = await client.get(`${name}:${ports.httpsPort}`);
      await client.close();
      return status;
    };
    assert.equal(await get('localhost'), 200);
    assert.equal(await get('a.example.com'), null);
    assert.equal(await get('a.example.com'), null);
    const complaints = 'TLS handshake rejected: the certificate of this site is not issued yet';
    assert.equal(log.of(complaints).length, 1);
    await reload(`${SITE}${local}www.localhost {\n\trespond more\n}\n`);
    assert.equal(await get('www.localhost'), 200);
    assert.equal(await get('a.example.com'), null);
    // The order is still the same one: the reload has neither begun nor ended it.
    assert.equal(authority.connections(), 1);
    assert.equal(log.of('Waiting for a certificate').length, 1);
    assert.deepEqual(log.of('No certificate'), []);
  });
});

/** An authority that takes connections and never says a word. */
async function silentAuthority(test: TestContext): Promise<{
  readonly directory: string;
  readonly contacted: Promise<unknown>;
  connections(): number;
}> {
  const server: Server = createServer();
  let count = 0;
  server.on('connection', (socket) => {
    count += 1;
    socket.on('error', () => {});
    test.after(() => socket.destroy());
  });
  const contacted = once(server, 'connection');
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  // A TCP server that listens has an AddressInfo; strings are for Unix sockets.
  const { port } = server.address() as AddressInfo;
  return { directory: `https://127.0.0.1:${port}/dir`, contacted, connections: () => count };
}

function acmeOf(pebble: { readonly directory: string; readonly rootFile: string }): string {
  return `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}`;
}

/** Of the certificate that a client is given, and believes. */
async function serialOf(port: number, root: string): Promise<string> {
  const socket = await handshake(port, 'a.example.com', root);
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}
