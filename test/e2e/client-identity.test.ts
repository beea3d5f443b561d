import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it, type TestContext } from 'node:test';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { decodeJwt } from 'jose';
import { createClientAuthority } from '../support/client-authority.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway, type TestProgram } from '../support/gateway.ts';
import { runCommand } from '../support/process.ts';

const directory = mkdtempSync(join(tmpdir(), 'hubgate-identity-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const ours = createClientAuthority(directory, 'ours');
const theirs = createClientAuthority(directory, 'theirs');
const NAMES = 'subjectAltName=DNS:a.example,email:alice@example.com,IP:2001:db8::1,URI:urn:x:y';
const alice = ours.issue('alice', 'clientAuth', {
  subject: '/C=DE/O=Our, Org "x"/CN=alice',
  names: NAMES,
});
const bob = ours.issue('bob');
const stranger = theirs.issue('stranger', 'clientAuth', { names: NAMES });
const KEY = 'a key of the hub that is long enough for it';

/** What the app has been sent. */
type Seen = Readonly<Record<string, string | undefined>>;

interface Place {
  readonly gateway: TestProgram;
  get(
    host: string,
    tls?: ConnectionOptions,
  ): Promise<{ seen: Seen; subject: string | null; session: Buffer | null; resumed: boolean }>;
  getHttp2(connectTo: string, host: string, tls?: ConnectionOptions): Promise<Seen>;
}

describe('the identity from a client certificate', () => {
  it('reaches the app, the log and a minted token, over HTTP/1.1, HTTP/2 and a resumed session', async (test) => {
    const place = await start(test);
    const wanted = {
      'x-subject': String.raw`CN=alice,O=Our\, Org \"x\",C=DE`,
      'x-issuer': 'CN=ours',
      'x-names': 'a.example alice@example.com 2001:db8::1 urn:x:y .',
    };
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const tls = { ...alice, minVersion: version, maxVersion: version };
      const first = await place.get('strict.localhost', tls);
      assert.deepEqual(picked(first.seen, wanted), wanted, version);
      assert.match(first.seen['x-serial'] ?? '', /^\d+$/);
      assert.match(first.seen['x-fingerprint'] ?? '', /^[0-9a-f]{64}$/);
      assert.equal(first.subject, 'alice@example.com');
      assert.ok(first.session !== null);
      // Without the certificate: the session has it.
      const nobody = { minVersion: version, maxVersion: version, session: first.session };
      const again = await place.get('strict.localhost', nobody);
      assert.equal(again.resumed, true);
      assert.deepEqual(again.seen, first.seen);
      assert.equal(again.subject, 'alice@example.com');
    }
    const over2 = await place.getHttp2('strict.localhost', 'strict.localhost', alice);
    assert.deepEqual(picked(over2, wanted), wanted);
    assert.match(place.gateway.process.output, /"who":"CN=alice,O=Our/);
  });

  it('is empty without a certificate, and no token is minted, whatever the client sends', async (test) => {
    const place = await start(test);
    const { seen, subject } = await place.get('lax.localhost');
    assert.deepEqual([seen['x-subject'], seen['x-names'], subject], ['', '.', null]);
    const named = await place.get('lax.localhost', bob);
    assert.deepEqual([named.seen['x-subject'], named.subject], ['CN=bob', null], 'it has no email');
    assert.equal((await place.get('lax.localhost', alice)).subject, 'alice@example.com');
  });

  it('is empty if the certificate was not verified, or was verified for another site', async (test) => {
    const place = await start(test);
    // Asked for, and taken without a look.
    assert.equal((await place.get('any.localhost', stranger)).seen['x-subject'], '');
    assert.equal((await place.get('any.localhost', alice)).seen['x-subject'], '');
    assert.equal((await place.get('open.localhost', alice)).seen['x-subject'], '');
    // A connection on which alice has proven herself to strict.localhost.
    const other = await place.getHttp2('strict.localhost', 'open.localhost', alice);
    assert.deepEqual([other['host'], other['x-subject']], ['open.localhost', '']);
  });

  it('is a load error in a guard or token of a site that does not verify certificates', async () => {
    const file = join(directory, 'Hubfile');
    const guard =
      'http://127.0.0.1:1 {\n\t@in header X-Who {tls_client_subject}\n\trespond @in in\n\trespond out 403\n}\n';
    for (const [text, message] of [
      [
        guard,
        /error: this site verifies no client certificates, so {tls_client_subject} is always/,
      ],
      [guard.replace('subject', 'sujet'), /error: {tls_client_sujet} is not a placeholder/],
      [
        `http://127.0.0.1:1 {\n${hub('{tls_client_subject}')}\trespond ok\n}\n`,
        /error: this site verifies no client certificates, so {tls_client_subject} is always empty and no token is issued/,
      ],
    ] as const) {
      writeFileSync(file, text);
      const { code, stdout, stderr } = await runCommand(['validate', '--config', file]);
      assert.equal(code, 1);
      assert.match(stdout + stderr, message);
    }
  });
});

function hub(user: string): string {
  return `	hub {
		issuer https://idp.example {
			publisher {
				jwt "${KEY}"
			}
			subscriber {
				jwt "${KEY}"
			}
		}
		transport memory
	}
	discovery {
		token mint {
			issuer https://idp.example
			key "${KEY}"
			subscribe https://example.com/users/${user}
		}
	}
`;
}

function picked(seen: Seen, like: Seen): Seen {
  return Object.fromEntries(Object.keys(like).map((name) => [name, seen[name]]));
}

async function start(test: TestContext): Promise<Place> {
  const app = createServer((incoming, response) => {
    const { 'x-forwarded-for': _from, traceparent: _trace, ...seen } = incoming.headers;
    response.setHeader('Content-Type', 'text/html').end(JSON.stringify(seen));
  });
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => app.close());
  const { port: appPort } = app.address() as AddressInfo;
  const port = await freePort();
  const site = (name: string, mode: string | null): string => {
    const auth = ` {\n\t\tclient_auth {\n\t\t\tmode ${mode}\n\t\t\ttrust_pool file ${ours.file}\n\t\t}\n\t}`;
    const verifies = mode === 'require_and_verify' || mode === 'verify_if_given';
    return `${name}.localhost:${port} {
	tls internal${mode === null ? '' : auth}
	log
	log_append who {tls_client_subject}
${verifies ? hub('{http.request.tls.client.san.emails.0}') : ''}	request_header X-Subject {tls_client_subject}
	request_header X-Issuer {tls_client_issuer}
	reverse_proxy 127.0.0.1:${appPort} {
		header_up Host {host}
		header_up X-Serial {http.request.tls.client.serial}
		header_up X-Fingerprint {tls_client_fingerprint}
		header_up X-Names "{http.request.tls.client.san.dns_names.0} {http.request.tls.client.san.emails.0} {http.request.tls.client.san.ips.0} {http.request.tls.client.san.uris.0} {http.request.tls.client.san.uris.1}."
	}
}
`;
  };
  const gateway = await startGateway(
    test,
    [
      ...[site('strict', 'require_and_verify'), site('lax', 'verify_if_given')],
      ...[site('any', 'require'), site('open', null)],
    ].join(''),
  );
  const ca = await gateway.root();
  const forged = { 'X-Subject': 'CN=alice', 'X-Names': 'forged', Accept: 'text/html' };
  return {
    gateway,
    async get(host, tls = {}) {
      const asked = request({
        ...{ host: '127.0.0.1', port, servername: host, ca, agent: false, ...tls },
        ...{ path: '/', headers: { Host: `${host}:${port}`, ...forged } },
      });
      let session: Buffer | null = null;
      let resumed = false;
      asked.on('socket', (socket) => {
        socket.on('session', (given: Buffer) => {
          session = given;
        });
        socket.on('secureConnect', () => {
          resumed = (socket as TLSSocket).isSessionReused();
        });
      });
      asked.end();
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      const text = await textOf(response);
      const cookies = (response.headers['set-cookie'] ?? []).join('\n');
      const token = /hub_access_token=([^;]+)/.exec(cookies)?.[1];
      const details = token === undefined ? null : JSON.stringify(decodeJwt(token));
      const subject =
        details === null ? null : (/users\/([^"]*)"/.exec(decodeURIComponent(details))?.[1] ?? '');
      return { seen: JSON.parse(text), subject, session, resumed };
    },
    async getHttp2(connectTo, host, tls = {}) {
      const session = connectHttp2(`https://127.0.0.1:${port}`, {
        ...{ servername: connectTo, ca, ...tls },
      });
      test.after(() => session.close());
      const stream = session.request({ ':path': '/', ':authority': `${host}:${port}`, ...forged });
      const text = await textOf(stream);
      session.close();
      return JSON.parse(text);
    },
  };
}

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString();
}
