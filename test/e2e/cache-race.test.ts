import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { openStream, send } from '../support/http.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess } from '../support/process.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { startRedis } from '../support/redis-server.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';
import { rounds } from '../support/rounds.ts';

const KEY = 'the key of publishers and subscribers, long enough';
const HUB = 'https://hub.example/.well-known/hub';
const ROUNDS = rounds(150, 1_000);
const CHANGES = rounds(20, 100);
/** By which all nodes know the page, wherever it was asked for. */
const TAG = 'page';
/** A connection of its own, so that any worker may answer. */
const ALONE = { headers: [['Connection', 'close']] } as const;

/** The same with the same URL on all nodes. */
const SAME_PAGE = { headers: [...ALONE.headers, ['Host', 'pages.example']] } as const;

interface Node {
  readonly origin: string;
  readonly admin: string;
}

interface App {
  readonly port: number;
  version: number;
  /** Holds answers back until the returned function is called. */
  hold(): () => void;
  /** Resolves when so many requests have come. */
  isAsked(count: number): Promise<void>;
}

/** An app with one page that says which version it is, as of when it was asked; some answers take a while. A POST makes the next version. */
async function startApp(test: TestContext): Promise<App> {
  let asked = 0;
  let held: Promise<void> = Promise.resolve();
  const waiting: { readonly count: number; readonly go: () => void }[] = [];
  const server = createServer(({ method }, response: ServerResponse) => {
    if (method === 'POST') {
      app.version += 1;
      response.end();
      return;
    }
    asked += 1;
    for (const { count, go } of waiting) if (asked >= count) go();
    const body = String(app.version);
    const answer = async (): Promise<void> => {
      await held;
      response.writeHead(200, { 'Cache-Control': 'public, max-age=3600', 'Surrogate-Key': TAG });
      response.end(body);
    };
    if (asked % 3 === 0) setTimeout(() => void answer(), 2);
    else void answer();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const app: App = {
    port,
    version: 0,
    hold() {
      let release: () => void = () => {};
      held = new Promise((resolve) => {
        release = resolve;
      });
      return () => release();
    },
    isAsked: (count) =>
      new Promise((go) => {
        if (asked >= count) go();
        else waiting.push({ count, go });
      }),
  };
  return app;
}

/** Starts a gateway with a cache and a hub. */
async function startNode(
  test: TestContext,
  app: App,
  transport: string,
  workers: number,
): Promise<Node> {
  const directory = await temporaryDirectory(test);
  const port = await freePort();
  const admin = `localhost:${await freePort()}`;
  const file = join(directory, 'Hubfile');
  await writeFile(
    file,
    `{
	storage ${directory}
	admin ${admin}
	workers ${workers}
	auto_https disable_redirects
}
http://:${port} {
	hub {
		resource_identifier ${HUB}
		cookie_name hub
		anonymous
		issuer ${HUB} {
			publisher {
				jwt "${KEY}"
			}
		}
		${transport}
	}
	cache
	reverse_proxy 127.0.0.1:${app.port}
}
`,
  );
  const gateway = startProcess(test, [cli, 'run', '--config', file]);
  await gateway.says('Admin API on');
  return { origin: `http://127.0.0.1:${port}`, admin: `http://${admin}` };
}

/** Nobody who has heard of an update may get an older page, from any of the nodes. */
async function race(test: TestContext, app: App, nodes: readonly Node[]): Promise<void> {
  const origins = nodes.map(({ origin }) => origin);
  const [first = '', last = first] = [origins[0], origins.at(-1)];
  const stream = await openStream(test, `${last}/.well-known/hub?match=${TAG}`);
  assert.equal(stream.status, 200, stream.text);
  const state = { isOver: false };
  let hits = 0;
  // Others ask all the time, so that something is always under way.
  const others = origins.map(async (origin) => {
    for (let round = 0; round < 100 * ROUNDS && !state.isOver; round += 1) {
      const { headers } = await send(`${origin}/page`, ALONE);
      if (String(headers['cache-status']).includes('; hit')) hits += 1;
    }
  });
  try {
    for (let version = 1; version <= ROUNDS; version += 1) {
      app.version = version;
      const id = String(version);
      const published = publish(first, id);
      await stream.untilId(id);
      const pages = await Promise.all(origins.map((origin) => send(`${origin}/page`, ALONE)));
      for (const { body } of pages) assert.ok(Number(body) >= version, `${body} after ${version}`);
      assert.equal(await published, 200);
    }
  } finally {
    state.isOver = true;
    await Promise.all(others);
  }
  assert.ok(hits > 0, 'nothing was answered from the cache');
}

/** Whoever has made a change, or has purged, gets no older page, from any of the nodes and workers. */
async function change(app: App, nodes: readonly Node[]): Promise<void> {
  const [first] = nodes;
  const last = nodes.at(-1);
  assert.ok(first !== undefined && last !== undefined);
  const pages = () =>
    Promise.all(Array.from({ length: 4 }, () => send(`${last.origin}/page`, SAME_PAGE)));
  for (let round = 0; round < CHANGES; round += 1) {
    await pages();
    const { status } = await send(`${first.origin}/page`, { method: 'POST', ...SAME_PAGE });
    assert.equal(status, 200);
    const { version } = app;
    for (const { body } of await pages()) assert.equal(body, String(version));
    app.version += 1;
    const order = round % 2 === 0 ? `tag=${TAG}` : 'pattern=*/page';
    const purged = await send(`${first.admin}/cache/purge?${order}`, { method: 'POST' });
    assert.equal(purged.status, 200);
    for (const { body } of await pages()) assert.equal(body, String(version + 1));
  }
}

/** A token that may publish everything. */
function publisherToken(): Promise<string> {
  return signToken(KEY, {
    iss: HUB,
    aud: HUB,
    authorization_details: [
      {
        type: 'urn:hub:authorization-detail',
        actions: ['publish'],
        topics: [{ match: '*' }],
      },
    ],
  });
}

/** Publishes an update with the topic of the page. */
async function publish(origin: string, id: string): Promise<number> {
  const { status } = await send(`${origin}/.well-known/hub`, {
    method: 'POST',
    headers: [
      ['Authorization', `Bearer ${await publisherToken()}`],
      ['Content-Type', 'application/x-www-form-urlencoded'],
    ],
    body: `topic=${TAG}&id=${id}&data=x`,
  });
  return status;
}

const STORES = [
  ['redis', startRedis],
  ['postgres', startPostgres],
] as const;

describe('cache, races with updates', () => {
  it('does not store or share a response that the app began before the update', async (test) => {
    const app = await startApp(test);
    const { origin } = await startNode(test, app, 'transport memory', 1);
    const release = app.hold();
    app.version = 1;
    const old = send(`${origin}/page`);
    await app.isAsked(1);
    const joined = send(`${origin}/page`);
    app.version = 2;
    assert.equal(await publish(origin, 'x'), 200);
    const next = [send(`${origin}/page`), send(`${origin}/page`)];
    // What was sent before has been read by then.
    for (let i = 0; i < 10; i += 1) {
      await send(`${origin}/.well-known/hub`, { method: 'OPTIONS' });
    }
    release();
    assert.equal((await old).body, '1');
    await joined;
    for (const one of next) assert.equal((await one).body, '2');
    assert.equal((await send(`${origin}/page`)).body, '2');
  });

  it('never serves a page older than an announced update, in one process', async (test) => {
    const app = await startApp(test);
    await race(test, app, [await startNode(test, app, 'transport memory', 1)]);
  });

  it('never does so with workers', { skip: process.platform !== 'linux' }, async (test) => {
    const app = await startApp(test);
    await race(test, app, [await startNode(test, app, '', 2)]);
  });

  it('serves no older page after a change or a purge, with workers', {
    skip: process.platform !== 'linux',
  }, async (test) => {
    const app = await startApp(test);
    await change(app, [await startNode(test, app, '', 2)]);
  });

  for (const [kind, startStore] of STORES) {
    it(`never does so on two nodes with ${kind}`, async (test) => {
      const store = await startStore(test, test);
      if (store === null) return;
      const app = await startApp(test);
      const transport = `transport ${kind} {\n\t\t\turl ${store.url}\n\t\t\tstream shared\n\t\t}`;
      await race(test, app, [
        await startNode(test, app, transport, 1),
        await startNode(test, app, transport, 1),
      ]);
    });

    it(`serves no older page after a change or a purge, on two nodes with ${kind}`, async (test) => {
      const store = await startStore(test, test);
      if (store === null) return;
      const app = await startApp(test);
      const transport = `transport ${kind} {\n\t\t\turl ${store.url}\n\t\t\tstream shared\n\t\t}`;
      await change(app, [
        await startNode(test, app, transport, 1),
        await startNode(test, app, transport, 1),
      ]);
    });
  }
});
