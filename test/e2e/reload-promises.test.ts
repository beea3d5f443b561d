import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { connect } from 'node:tls';
import { SignJWT } from 'jose';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess, type TestProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { startJwksServer } from '../unit/auth/jwks-server.ts';

const KEY = 'the key of publishers and subscribers, long enough';

interface Running {
  readonly directory: string;
  readonly port: number;
  readonly file: string;
  readonly process: TestProcess;
  /** Writes the Hubfile, lets it be loaded, and resolves when the log has said this. */
  edit(sites: string, says: string, options?: string): Promise<void>;
}

describe('a reload', () => {
  it('loads renewed certificate files although the Hubfile is broken', async (test) => {
    const directory = await temporaryDirectory(test);
    const authority = createClientAuthority(directory, 'root');
    const place = async (name: string): Promise<void> => {
      const { cert, key } = authority.issue(name);
      await writeFile(join(directory, 'cert.pem'), cert);
      await writeFile(join(directory, 'key.pem'), key);
    };
    await place('before');
    const sites = (port: number): string =>
      `https://localhost:${port} {\n\ttls ${directory}/cert.pem ${directory}/key.pem\n\trespond hello\n}\n`;
    const running = await start(test, sites, { directory });
    assert.equal(await presented(running.port), 'before');
    await running.edit('localhost {\n\tnonsense\n}\n', 'the old one keeps serving');
    await place('after');
    const said = running.process.output.length;
    running.process.child.kill('SIGHUP');
    await running.process.says('Configuration files re-read', said);
    assert.equal(await presented(running.port), 'after');
  });

  it('refuses a change of storage, and says what to do', async (test) => {
    const sites = (port: number): string => `http://localhost:${port} {\n\trespond hello\n}\n`;
    const { edit, directory, port, process } = await start(test, sites);
    const said = process.output.length;
    mkdirSync(join(directory, 'elsewhere'));
    await edit(sites(port), 'storage-changed', `storage ${directory}/elsewhere`);
    assert.match(process.output.slice(said), /stop hubgate, move the content of the directory/);
    assert.equal((await send(`http://localhost:${port}/`)).body, 'hello');
  });

  it('keeps history and streams while one address or the name of the hub stays, and otherwise says how many streams it closes', async (test) => {
    const port = await freePort();
    const site = (addresses: readonly string[], more = ''): string =>
      `${addresses.map((host) => `http://${host}:${port}`).join(', ')} {\n\thub {\n\t\tanonymous\n\t\tissuer me {\n\t\t\tpublisher {\n\t\t\t\tjwt "${KEY}"\n\t\t\t}\n\t\t}\n\t\t${more}\n\t}\n}\n`;
    const { edit, process } = await start(test, () => site(['localhost']));
    const hub = `http://localhost:${port}/.well-known/hub`;
    const stream = await openStream(test, `http://127.0.0.1:${port}/.well-known/hub?match=news`, {
      headers: [['Host', `localhost:${port}`]],
    });
    assert.equal(stream.status, 200);
    const reloaded = async (sites: string): Promise<string> => {
      const said = process.output.length;
      await edit(sites, '"msg":"Configuration reloaded"');
      return process.output.slice(said);
    };
    assert.match(await reloaded(site(['alias', 'localhost'])), /"endingStreams":0/);
    await publish(hub, 'one', port);
    await stream.untilId('one');
    assert.match(await reloaded(site(['alias', 'localhost'], 'name chat')), /"endingStreams":0/);
    assert.match(await reloaded(site(['renamed', '127.0.0.1'], 'name chat')), /"endingStreams":0/);
    await publish(`http://127.0.0.1:${port}/.well-known/hub`, 'two', port);
    await stream.untilId('two');
    const gone = await reloaded(`http://127.0.0.1:${port} {\n\trespond x\n}\n`);
    assert.match(gone, /"endingStreams":1/);
    assert.match(gone, /hub http:\/\/localhost:\d+ is no longer configured: its history stays in /);
    await stream.untilEnd();
    // It is where it was when the hub comes back.
    await reloaded(site(['127.0.0.1'], 'name chat'));
    const again = await openStream(test, `http://127.0.0.1:${port}/.well-known/hub?match=news`, {
      headers: [['Last-Event-ID', 'earliest']],
    });
    await again.untilId('two');
    assert.deepEqual(again.ids, ['one', 'two']);
  });

  it('keeps the keys of an identity provider that is down when an option of its block changes', async (test) => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const server = await startJwksServer([{ ...publicKey.export({ format: 'jwk' }), kid: 'a' }]);
    test.after(() => server.close());
    const sites = (port: number, option = ''): string =>
      `http://localhost:${port} {\n\thub {\n\t\tissuer https://i.example {\n\t\t\tpublisher {\n\t\t\t\tjwks_uri ${server.uri} {\n${option}\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t\tanonymous\n\t\tcookie_name hub\n\t\ttransport memory\n\t}\n}\n`;
    const { edit, port } = await start(test, sites);
    const hub = `http://localhost:${port}/.well-known/hub`;
    const token = await new SignJWT({
      client_id: 'a',
      authorization_details: [{ type: hub, actions: ['publish'], topics: ['a'] }],
    })
      .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid: 'a' })
      .setIssuer('https://i.example')
      .setAudience(hub)
      .setSubject('a')
      .setJti('1')
      .setIssuedAt()
      .setExpirationTime('1h')
      .sign(privateKey);
    const publish = async (): Promise<number> => {
      const headers = [
        ['Authorization', `Bearer ${token}`],
        ['Content-Type', 'application/x-www-form-urlencoded'],
      ] as const;
      return (await send(hub, { method: 'POST', headers, body: 'topic=b' })).status;
    };
    // The key is known, and the token does not allow the topic.
    assert.equal(await publish(), 403);
    server.answer = (response) => void response.writeHead(500).end();
    for (const option of ['refresh 20s', '']) {
      await edit(sites(port, option), '"msg":"Configuration reloaded"');
      assert.equal(await publish(), 403);
    }
  });

  it('accepts the same with workers as in one process: 5 MB, and any text', async (test) => {
    // Each file is within its bound; together they are more.
    const route = (i: number): string =>
      `\thandle /${i} {\n\t\trespond "${'x'.repeat(2000)}"\n\t}\n`;
    const routes = Array.from({ length: 1500 }, (_, i) => route(i)).join('');
    const { directory, port, edit } = await start(
      test,
      (own) => `http://localhost:${own} {\n\trespond / "x [redacted] y"\n}\n`,
      { options: 'workers 2' },
    );
    assert.equal((await send(`http://localhost:${port}/`)).body, 'x [redacted] y');
    await writeFile(join(directory, 'more.hub'), routes);
    const site = (host: string): string =>
      `http://${host}:${port} {\n\timport more.hub\n\trespond / second\n}\n`;
    await edit(site('localhost') + site('127.0.0.1'), 'Configuration reloaded');
    assert.equal((await send(`http://localhost:${port}/`)).body, 'second');
  });
});

async function start(
  test: TestContext,
  sites: (port: number) => string,
  {
    directory: given,
    options = '',
  }: { readonly directory?: string; readonly options?: string } = {},
): Promise<Running> {
  const directory = given ?? (await temporaryDirectory(test));
  const port = await freePort();
  const file = join(directory, 'Hubfile');
  const write = (text: string, more: string): Promise<void> =>
    writeFile(
      file,
      `{\n\tadmin off\n\tauto_https off\n\tgrace_period 1s\n${more.includes('storage') ? '' : `\tstorage ${directory}/storage\n`}\t${more}\n}\n${text}`,
    );
  await write(sites(port), options);
  const process = startProcess(test, [cli, 'run', '--no-watch', '--config', file]);
  await process.says('Listening on');
  return {
    directory,
    port,
    file,
    process,
    async edit(text, says, more = options) {
      const said = process.output.length;
      await write(text, more);
      process.child.kill('SIGHUP');
      await process.says(says, said);
    },
  };
}

async function publish(hub: string, id: string, port: number): Promise<void> {
  const aud = `http://localhost:${port}/.well-known/hub`;
  const token = await signToken(KEY, {
    ...{ iss: 'me', aud: [aud, hub] },
    authorization_details: [
      { type: 'urn:hub:authorization-detail', actions: ['publish'], topics: [{ match: '*' }] },
    ],
  });
  const { status, body } = await send(hub, {
    method: 'POST',
    headers: [
      ['Authorization', `Bearer ${token}`],
      ['Content-Type', 'application/x-www-form-urlencoded'],
    ],
    body: new URLSearchParams({ topic: 'news', id }).toString(),
  });
  assert.equal(status, 200, body);
}

/** The name in the certificate that is presented; whether it is believed is not the question. */
function presented(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: '127.0.0.1',
      port,
      servername: 'localhost',
      rejectUnauthorized: false,
    });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      const { CN } = socket.getPeerCertificate().subject;
      socket.destroy();
      resolve(String(CN));
    });
  });
}
