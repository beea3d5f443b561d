import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { Agent, createServer, type Server } from 'node:https';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { AcmeError, asAcmeError, fixFor } from '../../../../src/tls/acme/acme-error.ts';
import { requestDirectory } from '../../../../src/tls/acme/directory-request.ts';
import { LocalAuthority } from '../../../../src/tls/local-authority.ts';
import { temporaryDirectory } from '../../../support/temporary-directory.ts';
import { TestClock } from '../../../support/test-clock.ts';

const PROBLEM = 'application/problem+json';

describe('requests to an ACME directory', () => {
  let server: Server;
  let origin = '';
  let root = '';
  before(async () => {
    const authority = new LocalAuthority(await temporaryDirectory({ after }), systemClock);
    const { chain, key } = await authority.issue(['127.0.0.1']);
    root = readFileSync(authority.rootFile, 'utf8');
    server = createServer({ cert: chain, key });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    // A TCP server that listens has an AddressInfo; strings are for Unix sockets.
    origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => server.close());

  /** What comes of one answer. */
  async function ask(
    { status = 200, headers = {}, body = '' }: Answered,
    data?: unknown,
  ): Promise<{ answer: unknown; sent: string; type: string | undefined }> {
    let sent = '';
    let type: string | undefined;
    server.removeAllListeners('request');
    server.on('request', (request, response) => {
      type = request.headers['content-type'];
      request.on('data', (chunk: Buffer) => (sent += chunk));
      request.on('end', () => response.writeHead(status, headers).end(body));
    });
    const agent = new Agent({ ca: root });
    const { signal } = new AbortController();
    const connection = { agent, clock: systemClock, signal };
    const method = data === undefined ? 'get' : 'post';
    const answer = await requestDirectory(`${origin}/x`, method, { data }, connection);
    return { answer: answer.data, sent, type };
  }

  it('send signed messages as JSON, and read JSON or text (RFC 8555 §6.2)', async () => {
    const json = { headers: { 'content-type': 'application/json' }, body: '{"a":1}' };
    const { answer, sent, type } = await ask(json, { payload: 'p' });
    assert.deepEqual(answer, { a: 1 });
    assert.equal(sent, '{"payload":"p"}');
    assert.equal(type, 'application/jose+json');
    const pem = { headers: { 'content-type': 'application/pem-certificate-chain' }, body: 'PEM' };
    assert.equal((await ask(pem)).answer, 'PEM');
    assert.equal((await ask({ ...json, body: '{' })).answer, '{');
  });

  it('report the type and detail of a refusal, and how long to wait (RFC 8555 §6.6, §6.7)', async () => {
    const body = JSON.stringify({
      type: 'urn:ietf:params:acme:error:rateLimited',
      detail: 'too many certificates',
    });
    const headers = { 'content-type': PROBLEM, 'retry-after': '7200' };
    const failure = await failureOf(ask({ status: 429, headers, body }));
    assert.equal(failure.code, 'acme-refused');
    assert.equal(failure.message, 'too many certificates');
    assert.equal(failure.problem, 'rateLimited');
    assert.equal(failure.retryAfterMs, 7_200_000);
    assert.match(String(fixFor(failure)), /acme_ca/);
    const plain = await failureOf(ask({ status: 503, body: '<html>' }));
    assert.equal(plain.message, 'The authority answered 503');
    assert.equal(plain.retryAfterMs, null);
  });

  it('leave a refused nonce to the library (RFC 8555 §6.5)', async () => {
    const problem = { type: 'urn:ietf:params:acme:error:badNonce' };
    const body = JSON.stringify(problem);
    const { answer } = await ask({ status: 400, headers: { 'content-type': PROBLEM }, body });
    assert.deepEqual(answer, problem);
  });

  it('cut off an endless response', async () => {
    const failure = await failureOf(ask({ body: 'x'.repeat(2 * 1024 * 1024) }));
    assert.match(failure.message, /cannot be used: its answer is larger than 1048576 bytes$/);
  });

  it('are not sent to a directory whose certificate is not trusted, and the suggested fix is its root', async () => {
    let asked = 0;
    server.removeAllListeners('request');
    server.on('request', () => (asked += 1));
    const { signal } = new AbortController();
    const connection = { agent: new Agent(), clock: systemClock, signal };
    const failure = await failureOf(requestDirectory(`${origin}/x`, 'get', {}, connection));
    assert.equal(failure.code, 'acme-unreachable');
    assert.match(String(fixFor(failure)), /acme_ca_root/);
    assert.equal(asked, 0);
  });

  it('time out after 30 s of silence', async () => {
    const clock = new TestClock();
    server.removeAllListeners('request');
    server.on('request', () => clock.advance(30_000));
    const { signal } = new AbortController();
    const connection = { agent: new Agent({ ca: root }), clock, signal };
    const failure = await failureOf(requestDirectory(`${origin}/x`, 'get', {}, connection));
    assert.equal(failure.code, 'acme-timeout');
    server.closeAllConnections();
  });

  it('report the reason when they are aborted', async () => {
    const unwanted = new AbortController();
    const reason = new Error('unwanted');
    server.removeAllListeners('request');
    server.on('request', () => unwanted.abort(reason));
    const agent = new Agent({ ca: root });
    const connection = { agent, clock: systemClock, signal: unwanted.signal };
    await assert.rejects(requestDirectory(`${origin}/x`, 'get', {}, connection), reason);
    server.closeAllConnections();
  });
});

describe('failures of an ACME order', () => {
  it('shorten long messages of the authority', () => {
    assert.equal(new AcmeError('acme-refused', 'x'.repeat(5000)).message.length, 300);
  });

  it('suggest to make room if nothing can be stored', () => {
    const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
    assert.match(String(fixFor(asAcmeError(full))), /storage: it needs room/);
  });

  it('suggest no fix if none is known', () => {
    assert.equal(fixFor(new AcmeError('acme-refused', '', { problem: 'toString' })), null);
    assert.equal(fixFor(asAcmeError(new Error('other'))), null);
  });
});

interface Answered {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

async function failureOf(promise: Promise<unknown>): Promise<AcmeError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof AcmeError) return error;
    throw error;
  }
  throw new Error('It did not fail');
}
