import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect as connectTcp, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { cli, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

describe('a port changes hands at a reload', () => {
  it('from HTTP to HTTPS and back, and earlier connections close', async (test) => {
    const port = await freePort();
    const plain = `http://localhost:${port} {\n\trespond plain\n}\n`;
    const secure = `https://localhost:${port} {\n\ttls internal\n\trespond secure\n}\n`;
    const { reload, root, gateway } = await startLibraryGateway(test, plain);
    const kept = connectTcp(port, '127.0.0.1');
    kept.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(kept, 'data');
    const closed = once(kept.resume(), 'close');
    await reload(secure);
    assert.deepEqual(
      gateway.listeners.map((one) => one.secure),
      [true],
    );
    await closed;
    assert.equal(await getSecurely(port, 'localhost', await root()), 'secure');
    await reload(plain);
    assert.equal((await send(`http://localhost:${port}/`)).body, 'plain');
    await reload(secure);
    assert.equal(await getSecurely(port, 'localhost', await root()), 'secure');
  });

  it('when one address is bound instead of all, and the reverse', async (test) => {
    const port = await freePort();
    const site = (bind: string, text: string): string =>
      `http://localhost:${port} {\n\t${bind}\n\trespond ${text}\n}\n`;
    const { reload } = await startLibraryGateway(test, site('', 'all'));
    await reload(site('bind 127.0.0.1', 'one'));
    assert.equal(
      (await send(`http://127.0.0.1:${port}/`, { headers: [['Host', `localhost:${port}`]] })).body,
      'one',
    );
    await assert.rejects(send(`http://127.0.0.2:${port}/`), { code: 'ECONNREFUSED' });
    await reload(site('bind 0.0.0.0', 'every'));
    assert.equal(
      (await send(`http://127.0.0.2:${port}/`, { headers: [['Host', `localhost:${port}`]] })).body,
      'every',
    );
  });

  it('and is restored when another program is in the way', async (test) => {
    const port = await freePort();
    const { reload } = await startLibraryGateway(
      test,
      `http://localhost:${port} {\n\tbind 127.0.0.1\n\trespond one\n}\n`,
    );
    const foreign = createServer().listen(port, '127.0.0.2');
    test.after(() => foreign.close());
    await once(foreign, 'listening');
    await assert.rejects(reload(`http://localhost:${port} {\n\trespond all\n}\n`), {
      code: 'listen-failed',
    });
    const headers = [['Host', `localhost:${port}`]] as const;
    assert.equal((await send(`http://127.0.0.1:${port}/`, { headers })).body, 'one');
    foreign.close();
    await once(foreign, 'close');
    await reload(`http://localhost:${port} {\n\trespond all\n}\n`);
    assert.equal((await send(`http://127.0.0.2:${port}/`, { headers })).body, 'all');
  });

  for (const workers of [1, 2]) {
    it(`with ${workers} workers, and for the admin API`, async (test) => {
      const directory = await temporaryDirectory(test);
      const [port, admin] = [await freePort(), await freePort()];
      const file = join(directory, 'Hubfile');
      const write = (adminHost: string, bind: string, text: string) =>
        writeFile(
          file,
          `{\n\tworkers ${workers}\n\tadmin ${adminHost}:${admin}\n\tstorage ${directory}/s\n}\n` +
            `http://localhost:${port} {\n\t${bind}\n\trespond ${text}\n}\n`,
        );
      await write('127.0.0.1', '', 'all');
      const gateway = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
      await gateway.says('Admin API on');
      await write('0.0.0.0', 'bind 127.0.0.1', 'one');
      const { output } = gateway;
      gateway.child.kill('SIGHUP');
      await gateway.says('onfiguration', output.length);
      assert.match(gateway.output.slice(output.length), /Configuration reloaded/);
      const headers = [['Host', `localhost:${port}`]] as const;
      for (let i = 0; i < 10; i += 1) {
        assert.equal((await send(`http://127.0.0.1:${port}/`, { headers })).body, 'one');
      }
      await assert.rejects(send(`http://127.0.0.2:${port}/`), { code: 'ECONNREFUSED' });
      assert.equal((await send(`http://127.0.0.2:${admin}/config`)).status, 200);
    });
  }
});

describe('certificates with different key types side by side', () => {
  it('each site gets its own, in any order', async (test) => {
    const directory = await temporaryDirectory(test);
    for (const [name, type] of [
      ['rsa', ['-newkey', 'rsa:2048']],
      ['ec', ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']],
    ] as const) {
      execFileSync(
        'openssl',
        [
          ...['req', '-x509', ...type, '-nodes', '-days', '2', '-subj', `/CN=${name}.example.com`],
          ...['-addext', `subjectAltName=DNS:${name}.example.com`],
          ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
        ],
        { cwd: directory, stdio: 'ignore' },
      );
    }
    const port = await freePort();
    const site = (name: string): string =>
      `https://${name}.example.com:${port} {\n\ttls ${directory}/${name}.crt ${directory}/${name}.key\n\trespond ${name}\n}\n`;
    for (const [first, second] of [
      ['rsa', 'ec'],
      ['ec', 'rsa'],
    ] as const) {
      const { gateway } = await startLibraryGateway(test, site(first) + site(second));
      for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
        for (const name of ['rsa', 'ec']) {
          const socket = await shake(test, { port, servername: `${name}.example.com`, maxVersion });
          assert.equal(socket.getPeerCertificate().subject.CN, `${name}.example.com`);
        }
        const nameless = await shake(test, { port, maxVersion });
        assert.equal(nameless.getPeerCertificate().subject.CN, `${first}.example.com`);
      }
      await gateway.stop();
    }
  });
});

async function shake(
  test: TestContext,
  options: {
    readonly port: number;
    readonly servername?: string;
    readonly maxVersion: 'TLSv1.2' | 'TLSv1.3';
  },
): Promise<TLSSocket> {
  // Which certificate is presented is the question; whether it is believed is not.
  const socket = connect({ host: '127.0.0.1', rejectUnauthorized: false, ...options });
  test.after(() => socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

async function getSecurely(port: number, servername: string, ca: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port, servername, ca });
  socket.write(`GET / HTTP/1.1\r\nHost: ${servername}:${port}\r\nConnection: close\r\n\r\n`);
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  return text.slice(text.indexOf('\r\n\r\n') + 4);
}
