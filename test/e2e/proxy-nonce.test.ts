import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { describe, it } from 'node:test';
import { rounds } from '../support/rounds.ts';
import { origin, type Origin, proxyTo } from '../unit/proxy/gateway.ts';

const CLIENTS = 64;
const REQUESTS = rounds(200, 1_000);
/** Often enough that every kill meets requests under way; seldom enough that most are answered. */
const REQUESTS_PER_KILL = 500;

/** Answers with the nonce, in the head and, spread over several writes, in the body. */
const echo: http.RequestListener = (request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const nonce = String(request.headers['x-nonce']);
    response.writeHead(200, { 'x-nonce': nonce });
    response.write(`${nonce}|`);
    setImmediate(() => response.end(Buffer.concat(chunks)));
  });
};

interface Reply {
  readonly status: number;
  readonly nonce: string;
  readonly body: string;
}

describe(`${CLIENTS} clients with ${REQUESTS} requests each, upstreams killed and restarted`, () => {
  it('get their own response or an error', async () => {
    const upstreams: Origin[] = [];
    for (let i = 0; i < 3; i += 1) upstreams.push(await origin(echo));
    await using gateway = await proxyTo(
      upstreams.map(({ url }) => url),
      {
        loadBalancing: {
          policy: { kind: 'round_robin' },
          tryDurationMs: 0,
          retries: null,
          retryMatch: null,
          tryIntervalMs: 1,
        },
      },
    );
    const session = http2.connect(`http://127.0.0.1:${gateway.http2}`);
    const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS });

    let answered = 0;
    let failed = 0;
    let kills = 0;
    let chaos = Promise.resolve();
    const killAndRestart = async (): Promise<void> => {
      const index = kills % upstreams.length;
      const victim = upstreams[index];
      assert.ok(victim);
      await victim.close();
      upstreams[index] = await origin(echo, { port: victim.port });
      kills += 1;
    };
    // By requests made, not by the clock: a slow machine sees as many kills as a fast one.
    const done = (): void => {
      if ((answered + failed) % REQUESTS_PER_KILL === 0) chaos = chaos.then(killAndRestart);
    };

    const client = async (_: unknown, number: number): Promise<void> => {
      for (let i = 0; i < REQUESTS; i += 1) {
        const nonce = randomUUID();
        const body = i % 2 === 0 ? '' : nonce.repeat(50);
        const reply =
          number % 2 === 0
            ? await ask1(gateway.http1, agent, nonce, body)
            : await ask2(session, nonce, body);
        if (reply === 'broken' || reply.status !== 200) {
          assert.ok(reply === 'broken' || reply.status === 502, JSON.stringify(reply));
          failed += 1;
          done();
          continue;
        }
        assert.equal(reply.nonce, nonce);
        assert.equal(reply.body, `${nonce}|${body}`);
        answered += 1;
        done();
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    await chaos;
    session.close();
    agent.destroy();
    for (const upstream of upstreams) await upstream.close();
    assert.equal(answered + failed, CLIENTS * REQUESTS);
    assert.equal(kills, Math.floor((CLIENTS * REQUESTS) / REQUESTS_PER_KILL));
    assert.ok(answered > failed, `${answered} answered, ${failed} failed, ${kills} kills`);
    assert.deepEqual(gateway.faults, []);
  });
});

async function ask1(
  port: number,
  agent: http.Agent,
  nonce: string,
  body: string,
): Promise<Reply | 'broken'> {
  try {
    const request = http.request({
      host: '127.0.0.1',
      port,
      agent,
      method: body === '' ? 'GET' : 'POST',
      headers: { 'x-nonce': nonce },
    });
    request.end(body);
    const [response]: http.IncomingMessage[] = await once(request, 'response');
    if (response === undefined) return 'broken';
    let text = '';
    for await (const chunk of response) text += String(chunk);
    const { statusCode = 0, headers } = response;
    return { status: statusCode, nonce: String(headers['x-nonce']), body: text };
  } catch {
    return 'broken';
  }
}

async function ask2(
  session: http2.ClientHttp2Session,
  nonce: string,
  body: string,
): Promise<Reply | 'broken'> {
  try {
    const stream = session.request(
      { ':path': '/', ':method': body === '' ? 'GET' : 'POST', 'x-nonce': nonce },
      { endStream: body === '' },
    );
    if (body !== '') stream.end(body);
    const [headers] = await once(stream, 'response');
    let text = '';
    for await (const chunk of stream) text += String(chunk);
    return { status: Number(headers[':status']), nonce: String(headers['x-nonce']), body: text };
  } catch {
    return 'broken';
  }
}
