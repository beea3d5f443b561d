import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { Agent, createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freePort } from '../support/free-port.ts';
import { openStream, send, type Stream } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import type { Order, Reply } from './fixtures/reloading-gateway.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { SOURCE } from '../support/process.ts';

const RELOADS = 200;
const STREAMS = 500;
/** Beyond the 20th reload everything has been allocated that a running gateway needs. */
const WARM_UP = 20;
const HEAP_TOLERANCE_BYTES = 3 * 1024 * 1024;
const KEY = 'a-secret-of-the-test-that-is-long-enough';
const ISSUER = 'https://issuer.example';

describe('hot reload under load (hubfile.md §4)', () => {
  it('fails no request, closes no stream, loses and duplicates no update, and leaks nothing', async (test) => {
    const { order, hubfiles, site } = await startGateway(test);
    const hub = `${site}/.well-known/hub`;
    const token = await signToken(KEY, grant(hub, 'subscribe'));
    const streams: Stream[] = [];
    for (let i = 0; i < STREAMS; i += 1) {
      const headers = i % 2 === 0 ? [] : [['Authorization', `Bearer ${token}`] as const];
      streams.push(await openStream(test, `${hub}?match=news`, { headers }));
    }

    const requests = keepRequesting(site);
    const publications = keepPublishing(hub, await signToken(KEY, grant(hub, 'publish')));
    let warm: Reply = {};
    for (let count = 1; count <= RELOADS; count += 1) {
      const { endingStreams } = await order({
        kind: 'load',
        hubfile: hubfiles[count % 2] ?? '',
      });
      assert.equal(endingStreams, 0);
      if (count === WARM_UP) warm = await order({ kind: 'measure' });
    }
    const hot = await order({ kind: 'measure' });
    const published = await publications.stop();
    const { sent, failures } = await requests.stop();

    assert.deepEqual(failures, []);
    assert.ok(sent > RELOADS, `only ${sent} requests were sent`);
    assert.ok(published.length > 20, `only ${published.length} updates were published`);
    const last = published.at(-1) ?? '';
    for (const stream of streams) {
      await stream.untilId(last);
      assert.equal(stream.ended, false);
      assert.deepEqual(stream.ids, published);
    }
    const growth = (hot.heapBytes ?? 0) - (warm.heapBytes ?? 0);
    test.diagnostic(
      `${sent} requests, ${published.length} updates to ${STREAMS} streams; heap ${growth} bytes from reload ${WARM_UP} to ${RELOADS}, descriptors ${warm.descriptors} and ${hot.descriptors}`,
    );
    assert.ok(growth < HEAP_TOLERANCE_BYTES, `the heap grew by ${growth} bytes`);
    // The connections of the load come and go by one or two; a leak would be one per reload.
    assert.ok((hot.descriptors ?? 0) <= (warm.descriptors ?? 0) + 10, 'descriptors leak');
  });
});

interface Started {
  readonly site: string;
  /** Two configurations that differ in what they answer, in their ports and in their issuers. */
  readonly hubfiles: readonly string[];
  order(order: Order): Promise<Reply>;
}

async function startGateway(test: TestContext): Promise<Started> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-reload-'));
  removeWith(test, storage);
  const app = await startApp(test);
  const [port, otherPort] = [await freePort(), await freePort()];
  const site = `http://localhost:${port}`;
  const hubfile = (answer: string, issuers: string, others: string): string => `{
	admin off
	auto_https off
	storage ${storage}
	grace_period 1s
}
${site} {
	hub {
		issuer ${ISSUER} {
			publisher {
				jwt ${KEY}
			}
			subscriber {
				jwt ${KEY}
			}
		}
		${issuers}
		anonymous
		cookie_name token
		transport memory {
			size 50
		}
	}
	header X-Generation ${answer}
	respond /own ${answer}
	reverse_proxy localhost:${app}
}
${others}
`;
  const hubfiles = [
    hubfile('first', '', ''),
    hubfile(
      'second',
      `issuer https://other.example {\n\t\t\tsubscriber {\n\t\t\t\tjwt ${KEY}\n\t\t\t}\n\t\t}`,
      `https://localhost:${otherPort} {\n\ttls internal\n\trespond other\n}`,
    ),
  ];
  const child = fork(
    fileURLToPath(new URL('./fixtures/reloading-gateway.ts', import.meta.url)),
    [],
    { execArgv: ['--expose-gc', ...SOURCE] },
  );
  test.after(() => child.kill('SIGKILL'));
  const order = async (what: Order): Promise<Reply> => {
    const answer = once(child, 'message');
    child.send(what);
    const [reply]: Reply[] = await answer;
    if (reply?.error !== undefined) throw new Error(reply.error);
    return reply ?? {};
  };
  await order({ kind: 'load', hubfile: hubfiles[0] ?? '' });
  return { site, hubfiles, order };
}

async function startApp(test: TestContext): Promise<number> {
  const app = createServer((_request, response) => response.end('the app'));
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  test.after(() => {
    app.closeAllConnections();
    app.close();
  });
  const address = app.address();
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

function grant(hub: string, action: 'publish' | 'subscribe'): Record<string, unknown> {
  return {
    iss: ISSUER,
    aud: hub,
    authorization_details: [
      { type: 'urn:hub:authorization-detail', actions: [action], topics: [{ match: '*' }] },
    ],
  };
}

/** Asks the app and the gateway itself, over connections that are kept, until it is stopped. */
function keepRequesting(site: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const failures: string[] = [];
  let sent = 0;
  const stop = new AbortController();
  const worker = async (path: string, expected: RegExp): Promise<void> => {
    while (!stop.signal.aborted) {
      const answer = await get(site + path, agent).catch((error: unknown) => String(error));
      sent += 1;
      if (!expected.test(answer)) failures.push(`${path}: ${answer}`);
    }
  };
  const workers = [
    ...Array.from({ length: 4 }, () => worker('/own', /^200 (first first|second second)$/)),
    ...Array.from({ length: 4 }, () => worker('/page', /^200 (first|second) the app$/)),
  ];
  return {
    async stop() {
      stop.abort();
      await Promise.all(workers);
      agent.destroy();
      return { sent, failures };
    },
  };
}

/** Status, the generation that answered, and the body. */
function get(url: string, agent: Agent): Promise<string> {
  return new Promise((resolve, reject) => {
    const sending = request(url, { agent }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (body += chunk));
      response.on('error', reject);
      response.on('end', () => {
        const generation = String(response.headers['x-generation']);
        resolve(`${response.statusCode} ${generation} ${body}`);
      });
    });
    sending.on('error', reject);
    sending.end();
  });
}

/** Publishes one update after the other, and gives the ids in the order of their answers. */
function keepPublishing(hub: string, token: string) {
  const ids: string[] = [];
  const stop = new AbortController();
  const publisher = (async () => {
    while (!stop.signal.aborted) {
      const { status, body } = await send(hub, {
        method: 'POST',
        body: `topic=news&data=x&id=update-${ids.length}`,
        headers: [
          ['Content-Type', 'application/x-www-form-urlencoded'],
          ['Authorization', `Bearer ${token}`],
        ],
      });
      assert.equal(status, 200, body);
      ids.push(body);
    }
  })();
  return {
    async stop() {
      stop.abort();
      await publisher;
      return ids;
    },
  };
}
