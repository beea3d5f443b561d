import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect } from 'node:tls';
import {
  freePorts,
  handshake,
  type Ports,
  SharedStorage,
  startAcmeGateway,
} from '../support/acme-gateway.ts';
import { runCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { hasPebble, startPebble } from '../support/pebble.ts';

const SITE = 'https:// {\n\ttls {\n\t\ton_demand\n\t}\n\trespond hello\n}\n';
const INTERNAL = 'https:// {\n\ttls internal {\n\t\ton_demand\n\t}\n\trespond hello\n}\n';

describe('certificates on demand', () => {
  it('a handshake waits for the certificate of a name that the app allows, and many handshakes share one order', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const app = await startApp(test, ['shop.example.com']);
    const storage = new SharedStorage(test);
    const pebble = await startPebble(test, { ...ports, nonceRejects: 0 });
    const acme = `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}\n${askOf(app.url)}`;
    const before = await startAcmeGateway({ ...ports, storage, acme, sites: SITE });
    const root = await pebble.issuingRoot();
    const sockets = await Promise.all(
      Array.from({ length: 5 }, () => handshake(ports.httpsPort, 'shop.example.com', root)),
    );
    for (const socket of sockets) {
      assert.equal(socket.getPeerCertificate().subjectaltname, 'DNS:shop.example.com');
      socket.destroy();
    }
    assert.equal(pebble.orders(), 1);
    assert.deepEqual(app.asked, ['/may?key=1&domain=shop.example.com']);
    const certificates = await before.certificates();
    assert.deepEqual(
      certificates.map(({ names }) => names),
      [['shop.example.com']],
    );
    await before.stop();

    // It is stored: after a restart nobody is asked.
    await startAcmeGateway({ ...ports, storage, acme, sites: SITE });
    (await handshake(ports.httpsPort, 'shop.example.com', root)).destroy();
    assert.equal(pebble.orders(), 1);
    assert.equal(app.asked.length, 1);
  });

  it('HTTP-01: the authority gets its response on the HTTP port', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const app = await startApp(test, ['shop.example.com']);
    const pebble = await startPebble(test, {
      httpPort: ports.httpPort,
      httpsPort: await freePort(),
      nonceRejects: 0,
    });
    await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}\nacme_challenges http-01\n${askOf(app.url)}`,
      sites: SITE,
    });
    const root = await pebble.issuingRoot();
    (await handshake(ports.httpsPort, 'shop.example.com', root)).destroy();
  });

  it('TLS 1.2: the authority gets its response while the handshakes of clients wait', async (test) => {
    if (!hasPebble(test)) return;
    const ports = await freePorts();
    const app = await startApp(test, ['shop.example.com']);
    const pebble = await startPebble(test, {
      httpPort: await freePort(),
      httpsPort: ports.httpsPort,
      nonceRejects: 0,
    });
    await startAcmeGateway({
      ...ports,
      storage: new SharedStorage(test),
      acme: `acme_ca ${pebble.directory}\nacme_ca_root ${pebble.rootFile}\n${askOf(app.url)}`,
      sites: SITE.replace('on_demand', 'on_demand\n\t\tprotocols tls1.2 tls1.2'),
    });
    const root = await pebble.issuingRoot();
    (await handshake(ports.httpsPort, 'shop.example.com', root)).destroy();
  });

  it('the app is asked once for a name that it refuses, and never for an invalid name', async (test) => {
    const { ports, app } = await startInternal(test, ['shop.example.com']);
    for (let i = 0; i < 3; i += 1) await assert.rejects(shake(ports, 'other.example.com'));
    assert.deepEqual(app.asked, ['/may?key=1&domain=other.example.com']);
    for (const name of [
      'single',
      'under_score.example.com',
      '-a.example.com',
      '10.0.0.1.2',
      'a.b.7',
    ]) {
      await assert.rejects(shake(ports, name), name);
    }
    assert.equal(app.asked.length, 1);
    await shake(ports, 'SHOP.example.com');
    assert.equal(app.asked.at(-1), '/may?key=1&domain=shop.example.com');
  });

  it('an app that redirects, fails or is down has not allowed the name', async (test) => {
    const { ports, app, storage } = await startInternal(test, []);
    for (const status of [302, 404, 500]) {
      app.status = status;
      await assert.rejects(shake(ports, `s${status}.example.com`));
    }
    app.close();
    await assert.rejects(shake(ports, 'gone.example.com'));
    assert.equal(existsSync(join(storage.path, 'certificates')), false);
  });

  it('no more orders begin within the interval than burst allows', async (test) => {
    const names = ['a.example.com', 'b.example.com', 'c.example.com'];
    const { ports, log } = await startInternal(test, names, '\n\t\tinterval 1h\n\t\tburst 2');
    await shake(ports, 'a.example.com');
    await shake(ports, 'b.example.com');
    await assert.rejects(shake(ports, 'c.example.com'));
    assert.equal(
      log.of('No certificate on demand: the limit of on_demand_tls is reached').length,
      1,
    );
    // Those that are there are not orders.
    await shake(ports, 'a.example.com');
  });

  it('Caddy 2 and hubgate send the same requests to the app, and issue and refuse the same certificates', async (test) => {
    const names = ['shop.example.com'];
    const { ports, app } = await startInternal(test, names);
    const port = await freePort();
    const beside = await startApp(test, names);
    const caddyfile = `{
	admin off
	auto_https disable_redirects
	skip_install_trust
	https_port ${port}
	${askOf(beside.url)}
}
${INTERNAL}`;
    if (!(await runCaddy(test, caddyfile))) return;
    app.status = 302;
    beside.status = 302;
    for (const each of [ports, { ...ports, httpsPort: port }]) {
      assert.equal(await shake(each, 'shop.example.com'), 'DNS:shop.example.com');
      await assert.rejects(shake(each, 'other.example.com'));
    }
    assert.deepEqual(app.asked.map(sorted), beside.asked.map(sorted));
  });
});

function sorted(path: string): string {
  const { searchParams } = new URL(path, 'http://app');
  searchParams.sort();
  return searchParams.toString();
}

function askOf(url: string, more = ''): string {
  return `on_demand_tls {\n\t\task ${url}/may?key=1${more}\n\t}`;
}

async function startInternal(test: TestContext, allowed: readonly string[], more = '') {
  const ports = await freePorts();
  const app = await startApp(test, allowed);
  const storage = new SharedStorage(test);
  const { log } = await startAcmeGateway({
    ...ports,
    storage,
    acme: askOf(app.url, more),
    sites: INTERNAL,
  });
  return { ports, app, storage, log };
}

/** Who is asked whether a name may have a certificate. */
async function startApp(test: TestContext, allowed: readonly string[]) {
  const app = { url: '', asked: [] as string[], status: 404, close: () => void server.close() };
  const server = createServer((request, response) => {
    const { url = '' } = request;
    app.asked.push(url);
    const name = new URL(url, 'http://app').searchParams.get('domain') ?? '';
    response.writeHead(allowed.includes(name) ? 200 : app.status, { location: '/yes' }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  test.after(() => server.close());
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  app.url = `http://127.0.0.1:${address.port}`;
  app.close = () => {
    server.close();
    server.closeAllConnections();
  };
  return app;
}

/** The names of the certificate; who signed it does not matter here. */
function shake({ httpsPort: port }: Ports, servername: string): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, servername, rejectUnauthorized: false });
    socket.once('secureConnect', () => {
      resolve(socket.getPeerCertificate().subjectaltname);
      socket.destroy();
    });
    socket.once('error', reject);
  });
}
