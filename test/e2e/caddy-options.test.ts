import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as after } from 'node:timers/promises';
import { connect, type ConnectionOptions } from 'node:tls';
import { freePorts, type Ports, SharedStorage, startAcmeGateway } from '../support/acme-gateway.ts';
import { runCaddy } from '../support/caddy.ts';
import { createClientAuthority } from '../support/client-authority.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('options that Caddy 2 and hubgate read alike', () => {
  it('alpn: the first protocol of the list that the client offers, and no other', async (test) => {
    const ports = await startBoth(
      test,
      '',
      (port) => `localhost:${port} {
	tls internal {
		alpn http/1.1 h2
	}
	respond one
}
only.localhost:${port} {
	tls internal {
		alpn h2
	}
	respond two
}
`,
    );
    for (const port of ports ?? []) {
      const chosen = (servername: string, ALPNProtocols: string[]) =>
        shake(port, { servername, ALPNProtocols });
      assert.equal(await chosen('localhost', ['h2', 'http/1.1']), 'http/1.1');
      assert.equal(await chosen('localhost', ['h2']), 'h2');
      assert.equal(await chosen('only.localhost', ['http/1.1', 'h2']), 'h2');
    }
    // Go lets such a client go on without ALPN; the standard has it refused (RFC 7301 §3.2).
    const [ours = 0] = ports ?? [];
    const refused = { servername: 'only.localhost', ALPNProtocols: ['http/1.1'] };
    if (ours !== 0) await assert.rejects(shake(ours, refused), /alert|reset/i);
  });

  it('client_auth { trusted_ca_cert_file }: a client with a certificate of another authority is rejected', async (test) => {
    const directory = await temporaryDirectory(test);
    const ours = createClientAuthority(directory, 'ours');
    const theirs = createClientAuthority(directory, 'theirs');
    const [friend, stranger] = [ours.issue('friend'), theirs.issue('stranger')];
    const ports = await startBoth(
      test,
      '',
      (port) => `localhost:${port} {
	tls internal {
		client_auth {
			mode require_and_verify
			trusted_ca_cert_file ${ours.file}
		}
	}
	respond hello
}
`,
    );
    for (const port of ports ?? []) {
      assert.match(await get(port, friend), /^HTTP\/1\.1 200/);
      assert.equal(await get(port, stranger), '');
      assert.equal(await get(port, {}), '');
    }
  });

  it('servers <address>: applies to its listener instead of the general block', async (test) => {
    const general = '\tservers {\n\t\tprotocols h1\n\t}\n';
    const others = await freePorts();
    for (const [address, chosen] of [
      [null, 'h2'],
      [others.httpsPort, 'http/1.1'],
    ] as const) {
      const ports = await startBoth(
        test,
        (port) => `${general}\tservers :${address ?? port} {\n\t\tprotocols h1 h2\n\t}\n`,
        (port) => `localhost:${port} {\n\ttls internal\n\trespond hello\n}\n`,
      );
      for (const port of ports ?? []) {
        const options = { servername: 'localhost', ALPNProtocols: ['h2', 'http/1.1'] };
        assert.equal(await shake(port, options), chosen);
      }
    }
  });

  it('order: a directive runs where it is put', async (test) => {
    const ports = await startBoth(
      test,
      '\torder respond before redir\n\torder rewrite first\n\torder header after encode\n',
      (port) => `http://localhost:${port} {
	redir /old /new
	respond /old "not redirected {uri}"
	handle {
		respond other
	}
	rewrite /older /old
}
`,
      'httpPort',
    );
    const answers = [];
    for (const port of ports ?? []) {
      const urls = ['/old', '/older', '/x'].map((path) => `http://localhost:${port}${path}`);
      answers.push(await Promise.all(urls.map(answerOf)));
    }
    if (ports === null) return;
    assert.deepEqual(answers[0], [
      [200, 'not redirected /old'],
      [200, 'not redirected /old'],
      [200, 'other'],
    ]);
    assert.deepEqual(answers[1], answers[0]);
  });
});

/** The ports of hubgate and of Caddy with the same sites; null without Caddy. */
async function startBoth(
  test: TestContext,
  options: string | ((port: number) => string),
  sites: (port: number) => string,
  port: keyof Ports = 'httpsPort',
): Promise<readonly number[] | null> {
  const at = (number: number): string => (typeof options === 'string' ? options : options(number));
  const own = await freePorts();
  const beside = await freePorts();
  await startAcmeGateway({
    ...{
      ...own,
      storage: new SharedStorage(test),
      acme: `${at(own[port]).trim()}\npersist_config off`,
    },
    autoHttps: 'disable_redirects',
    sites: sites(own[port]),
  });
  const caddyfile = `{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\thttp_port ${beside.httpPort}\n\thttps_port ${beside.httpsPort}\n${at(beside[port])}}\n${sites(beside[port])}`;
  const certified = [...sites(0).matchAll(/^(\S+):0 \{\s+tls internal/gm)].map(([, name]) => name);
  if (!(await runCaddy(test, caddyfile, certified.length))) return null;
  for (const name of certified) await hasCertificate(beside[port], name ?? '');
  return [own[port], beside[port]];
}

/** Caddy says that it has a certificate a moment before it presents it. */
async function hasCertificate(port: number, servername: string): Promise<void> {
  const isMissing = async (): Promise<boolean> => {
    try {
      await shake(port, { servername, ALPNProtocols: ['h2', 'http/1.1'] });
      return false;
    } catch (error) {
      return String(error).includes('internal error');
    }
  };
  while (await isMissing()) await after(20);
}

/** The protocol of a handshake; who signed the certificate does not matter here. */
function shake(port: number, options: ConnectionOptions): Promise<string | false | null> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...options });
    socket.once('secureConnect', () => {
      resolve(socket.alpnProtocol);
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

async function answerOf(url: string): Promise<readonly [status: number, body: string]> {
  const answer = await fetch(url, { redirect: 'manual' });
  return [answer.status, await answer.text()];
}

/** What is answered; nothing where the connection ends before. */
function get(port: number, client: ConnectionOptions): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({
      ...{ host: '127.0.0.1', port, rejectUnauthorized: false, servername: 'localhost' },
      ...client,
    });
    socket.write(`GET / HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: close\r\n\r\n`);
    socket.on('data', (chunk) => {
      answer += String(chunk);
    });
    socket.once('error', () => {});
    socket.once('close', () => resolve(answer));
  });
}
