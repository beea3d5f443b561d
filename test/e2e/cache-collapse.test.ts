import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createConnectionServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { silentLogger } from '../support/installed-package.ts';
import { TestClock } from '../support/test-clock.ts';

/** A request that the app has been given, and answers when the test says so. */
interface Question {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** An app whose every answer the test gives, behind a cache. */
class SlowApp {
  readonly questions: Question[] = [];
  readonly url: string;
  readonly clock: TestClock;
  #waiting: (() => void)[] = [];

  private constructor(url: string, clock: TestClock) {
    this.url = url;
    this.clock = clock;
  }

  static async start(test: TestContext, directives = 'cache'): Promise<SlowApp> {
    const port = await freePort();
    const clock = new TestClock(Date.parse('2026-01-01T00:00:00Z'));
    const app = new SlowApp(`http://127.0.0.1:${port}`, clock);
    const server = createServer((request, response) => {
      app.questions.push({ request, response });
      for (const go of app.#waiting.splice(0)) go();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    test.after(() => {
      server.closeAllConnections();
      server.close();
    });
    const { port: own } = server.address() as AddressInfo;
    const site = `${app.url} {\n${directives}\nrespond /ping pong\nreverse_proxy 127.0.0.1:${own}\n}\n`;
    await startLibraryGateway(test, site, undefined, silentLogger, clock);
    return app;
  }

  /** The question of this number, as soon as it has come. */
  async question(number: number): Promise<Question> {
    for (;;) {
      const found = this.questions[number - 1];
      if (found !== undefined) return found;
      await new Promise<void>((go) => this.#waiting.push(go));
    }
  }

  /** The question with which the gateway revalidates a stale response to `/a` while a client uses it. */
  async revalidation(): Promise<Question> {
    const first = send(`${this.url}/a`);
    const stale = { 'Cache-Control': 'public, max-age=10, stale-while-revalidate=20' };
    (await this.question(1)).response.writeHead(200, stale).end('old');
    await first;
    this.clock.advance(15_000);
    assert.equal((await send(`${this.url}/a`)).body, 'old');
    return this.question(2);
  }

  /** What was sent before has been read by the gateway: it answers later requests itself meanwhile. */
  async handled(): Promise<void> {
    for (let i = 0; i < 10; i += 1) await send(`${this.url}/ping`);
  }

  /** A client that reads when the test wants it to; without an agent, so that it can leave. */
  open(path: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      get(`${this.url}${path}`, { agent: false }, resolve).on('error', reject);
    });
  }
}

/** Resolves when a message is over, in good order or not. */
function closed(message: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    message.on('error', () => {});
    message.once('close', resolve);
  });
}

const SHARED = { 'Cache-Control': 'public, max-age=60' } as const;
const CLIENTS = 1_000;

describe('cache, concurrent requests for the same URL', () => {
  it('sends the app one request for a thousand, both on a miss and when the response is stale', async (test) => {
    const app = await SlowApp.start(test);
    const agent = new Agent({ maxSockets: CLIENTS });
    test.after(() => agent.destroy());
    const ask = (): Promise<string> =>
      new Promise((resolve, reject) => {
        get(`${app.url}/a`, { agent }, (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('end', () => resolve(text));
        }).on('error', reject);
      });
    for (let round = 1; round <= 2; round += 1) {
      const answers = Array.from({ length: CLIENTS }, ask);
      const { response } = await app.question(round);
      // One more asks by a connection of its own: by the time it is there, so are most of the others.
      const late = ask();
      await app.handled();
      response.writeHead(200, SHARED).end(`answer ${round}`);
      assert.deepEqual(
        new Set(await Promise.all([...answers, late])),
        new Set([`answer ${round}`]),
      );
      assert.equal(app.questions.length, round);
      app.clock.advance(61_000);
    }
  });

  it('streams the body to waiting clients as it arrives', async (test) => {
    const app = await SlowApp.start(test);
    const first = app.open('/a');
    const { response } = await app.question(1);
    const second = app.open('/a');
    await app.handled();
    response.writeHead(200, SHARED).write('beginning');
    for (const client of [await first, await second]) {
      const [chunk] = await once(client, 'data');
      assert.equal(String(chunk), 'beginning');
    }
    const ended = [await first, await second].map((client) => once(client, 'end'));
    response.end('end');
    await Promise.all(ended);
    assert.equal((await send(`${app.url}/a`)).body, 'beginningend');
    assert.equal(app.questions.length, 1);
  });

  it('keeps the fields that the app calls private from clients that join', async (test) => {
    const app = await SlowApp.start(test);
    const first = send(`${app.url}/a`);
    const { response } = await app.question(1);
    const second = send(`${app.url}/a`);
    await app.handled();
    response.writeHead(200, { 'Cache-Control': 'max-age=60, private="X-Own"', 'X-Own': 'first' });
    response.end('page');
    const answers = [await first, await second];
    assert.deepEqual(
      answers.map(({ body, headers }) => [body, headers['x-own']]),
      [
        ['page', 'first'],
        ['page', undefined],
      ],
    );
    assert.equal(app.questions.length, 1);
  });

  it('stores the response when its client has left, and sends it to the other waiting clients', async (test) => {
    const app = await SlowApp.start(test);
    const first = get(`${app.url}/a`, { agent: false });
    first.on('error', () => {});
    const { response, request } = await app.question(1);
    const second = app.open('/a');
    // The second waits for the first: it has not asked the app.
    await app.handled();
    first.destroy();
    response.writeHead(200, SHARED).write('beginning');
    const client = await second;
    assert.equal(request.destroyed, false);
    client.destroy();
    response.end('end');
    await once(response, 'close');
    assert.equal((await send(`${app.url}/a`)).body, 'beginningend');
  });

  it('does not let a slow reader delay other clients', async (test) => {
    const app = await SlowApp.start(test);
    const first = app.open('/a');
    const { response } = await app.question(1);
    const body = Buffer.alloc(6 * 1024 * 1024, 'x');
    response.writeHead(200, SHARED).end(body);
    // It has its head and reads nothing else.
    const slow = await first;
    await once(response, 'close');
    const { body: got, headers } = await send(`${app.url}/a`);
    assert.equal(got.length, body.length);
    assert.match(String(headers['cache-status']), /hit|collapsed/);
    let size = 0;
    for await (const chunk of slow) size += chunk.length;
    assert.equal(size, body.length);
    assert.equal(app.questions.length, 1);
  });

  it('stores nothing more while clients still read what was purged', async (test) => {
    const app = await SlowApp.start(test, 'cache {\nmax_size 50MiB\nmax_body 20MiB\n}');
    const page = Buffer.alloc(16 * 1024 * 1024, 'x');
    let asked = 0;
    /** Lets a client that reads at once ask, and returns what the cache did. */
    const read = async (): Promise<string> => {
      const answered = send(`${app.url}/a`);
      const question = await Promise.race([app.question(asked + 1), answered]);
      if ('response' in question) {
        asked += 1;
        question.response.writeHead(200, SHARED).end(page);
      }
      const { headers, body } = await answered;
      assert.equal(body.length, page.length);
      return String(headers['cache-status']);
    };
    const purge = async (): Promise<void> => {
      const changed = send(`${app.url}/a`, { method: 'POST' });
      (await app.question(asked + 1)).response.end();
      asked += 1;
      await changed;
    };
    const slow: IncomingMessage[] = [];
    for (let round = 0; round < 3; round += 1) {
      assert.match(await read(), /stored/);
      const one = await app.open('/a');
      assert.match(String(one.headers['cache-status']), /hit/, `round ${round}`);
      one.pause();
      slow.push(one);
      await purge();
    }
    for (let round = 0; round < 2; round += 1) assert.doesNotMatch(await read(), /hit/);
    const left = slow.map(closed);
    for (const one of slow) one.destroy();
    await Promise.all(left);
    // The gateway sees that they have left in its own time.
    let status = '';
    for (let round = 0; round < 1_000 && !status.includes('hit'); round += 1) status = await read();
    assert.match(status, /hit/);
  });

  it('passes on a response that turns out to be too long to store', async (test) => {
    const app = await SlowApp.start(test, 'cache {\nmax_body 100KiB\n}');
    const answer = send(`${app.url}/a`);
    const { response } = await app.question(1);
    response.writeHead(200, SHARED);
    const body = 'x'.repeat(1024 * 1024);
    for (let at = 0; at < body.length; at += 64 * 1024)
      response.write(body.slice(at, at + 64 * 1024));
    response.end();
    assert.equal((await answer).body.length, body.length);
    const again = send(`${app.url}/a`);
    (await app.question(2)).response.writeHead(200, SHARED).end('short');
    assert.equal((await again).body, 'short');
  });

  it('aborts when the app aborts, and stores nothing', async (test) => {
    const app = await SlowApp.start(test);
    const first = app.open('/a');
    const { response } = await app.question(1);
    const second = app.open('/a');
    await app.handled();
    response.writeHead(200, SHARED).write('beginning');
    const clients = [await first, await second];
    const endings = clients.map(async (client) => {
      client.resume();
      await closed(client);
      return client.complete;
    });
    response.destroy();
    assert.deepEqual(await Promise.all(endings), [false, false]);
    const again = send(`${app.url}/a`);
    (await app.question(2)).response.writeHead(200, SHARED).end('whole');
    assert.equal((await again).body, 'whole');
  });

  it('does not store a response that may be cut, because only the end of the connection ends it', async (test) => {
    const app = createConnectionServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', (request: Buffer) => {
        const length = request.includes('/length') ? 'Content-Length: 4\r\n' : '';
        socket.end(
          `HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nConnection: close\r\n${length}\r\nhalf`,
        );
      });
    });
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const { port: own } = app.address() as AddressInfo;
    const port = await freePort();
    const site = `http://127.0.0.1:${port} {\ncache\nreverse_proxy 127.0.0.1:${own}\n}\n`;
    await startLibraryGateway(test, site, undefined, silentLogger);
    const statusOf = async (path: string): Promise<string> => {
      const { headers, body } = await send(`http://127.0.0.1:${port}${path}`);
      assert.equal(body, 'half');
      return String(headers['cache-status']);
    };
    for (let round = 0; round < 2; round += 1) {
      assert.match(await statusOf('/'), /fwd=uri-miss; fwd-status=200; detail=length/);
    }
    assert.match(await statusOf('/length'), /stored/);
    assert.match(await statusOf('/length'), /hit/);
  });

  it('stops making clients wait once it knows that the response cannot be shared', async (test) => {
    const app = await SlowApp.start(test);
    const first = send(`${app.url}/a`);
    (await app.question(1)).response.writeHead(200, { 'Cache-Control': 'private' }).end('one');
    await first;
    const others = [send(`${app.url}/a`), send(`${app.url}/a`)];
    // Both have reached the app before either is answered.
    const questions = [await app.question(2), await app.question(3)];
    for (const { response } of questions) {
      response.writeHead(200, { 'Cache-Control': 'private' }).end('own');
    }
    for (const other of others) assert.equal((await other).body, 'own');
  });

  it('lets each client have an event stream of its own', async (test) => {
    const app = await SlowApp.start(test, 'cache {\nttl 1d\n}');
    const stream = { 'Content-Type': 'Text/Event-Stream; charset=utf-8' };
    const first = app.open('/a');
    const { response } = await app.question(1);
    const second = app.open('/a');
    await app.handled();
    response.writeHead(200, stream).write('data: first\n\n');
    assert.match(String((await first).headers['cache-status']), /detail=stream/);
    (await app.question(2)).response.writeHead(200, stream).write('data: second\n\n');
    const [chunk] = await once(await second, 'data');
    assert.equal(String(chunk), 'data: second\n\n');
  });

  it('lets live pages that it does not store share one fetch per update', async (test) => {
    const app = await SlowApp.start(
      test,
      'hub {\nanonymous\ncookie_name hub\n}\ndiscovery {\nchanges public\nlive\n}\ncache',
    );
    const headers = [['Hub-Live', 'urn:update']] as const;
    const first = send(`${app.url}/a`, { headers });
    const { response } = await app.question(1);
    const others = Array.from({ length: 20 }, () => send(`${app.url}/a`, { headers }));
    await app.handled();
    response.writeHead(200, { 'Content-Type': 'text/plain' }).end('shown');
    for (const one of [first, ...others]) assert.equal((await one).body, 'shown');
    assert.equal(app.questions.length, 1);
  });

  it('cancels the request to the app when no client is waiting any more', async (test) => {
    const app = await SlowApp.start(test);
    const only = get(`${app.url}/a`, { agent: false });
    only.on('error', () => {});
    const { request } = await app.question(1);
    const gone = closed(request);
    only.destroy();
    await gone;
    const next = send(`${app.url}/a`);
    (await app.question(2)).response.writeHead(200, SHARED).end('next');
    assert.equal((await next).body, 'next');
  });

  it('cancels a revalidation that the app never answers', async (test) => {
    const app = await SlowApp.start(test);
    const ask = (): Promise<{ body: string }> => send(`${app.url}/a`);
    const stale = { 'Cache-Control': 'public, max-age=10, stale-while-revalidate=60' };
    for (const hanging of ['head', 'body']) {
      const before = app.questions.length;
      const first = ask();
      (await app.question(before + 1)).response.writeHead(200, stale).end(hanging);
      await first;
      app.clock.advance(15_000);
      assert.equal((await ask()).body, hanging);
      const { request, response } = await app.question(before + 2);
      if (hanging === 'body') response.writeHead(200, stale).write('beginning');
      await app.handled();
      const gone = closed(request);
      app.clock.advance(60_000);
      await gone;
      const next = ask();
      (await app.question(before + 3)).response.writeHead(200, SHARED).end('next');
      assert.equal((await next).body, 'next');
      app.clock.advance(61_000);
    }
  });

  it('lets a client read the response to a revalidation, however long it takes', async (test) => {
    const app = await SlowApp.start(test);
    const { response } = await app.revalidation();
    app.clock.advance(20_000);
    const joined = app.open('/a');
    await app.handled();
    response.writeHead(200, SHARED).write('new ');
    const client = await joined;
    app.clock.advance(60_000);
    const later = app.open('/a');
    (await app.question(3)).response.writeHead(200, SHARED).end('newest');
    response.end('page');
    assert.equal(await text(client), 'new page');
    assert.equal(await text(await later), 'newest');
  });

  it('ends a revalidation that takes too long when the last client that reads its response leaves', async (test) => {
    const app = await SlowApp.start(test);
    const { request, response } = await app.revalidation();
    const gone = closed(request);
    app.clock.advance(20_000);
    const joined = app.open('/a');
    await app.handled();
    response.writeHead(200, SHARED).write('piece ');
    const client = await joined;
    const pieces = client[Symbol.asyncIterator]();
    // The app sends something every 10 seconds.
    for (let elapsed = 20_000; elapsed <= 70_000; elapsed += 10_000) {
      assert.equal(String((await pieces.next()).value), 'piece ');
      app.clock.advance(10_000);
      response.write('piece ');
    }
    assert.equal(request.destroyed, false);
    client.destroy();
    await gone;
  });

  it('does not replace a newer response by one whose app was silent for 30 seconds', async (test) => {
    const app = await SlowApp.start(test);
    const opened = app.open('/a');
    const { response } = await app.question(1);
    response.writeHead(200, SHARED).write('old');
    const client = await opened;
    await once(client, 'data');
    await app.handled();
    app.clock.advance(30_000);
    const next = send(`${app.url}/a`);
    (await app.question(2)).response.writeHead(200, SHARED).end('new');
    assert.equal((await next).body, 'new');
    response.end();
    await once(client.resume(), 'end');
    assert.equal((await send(`${app.url}/a`)).body, 'new');
    assert.equal(app.questions.length, 2);
  });

  it('asks the app again when it has sent nothing of a body for 30 seconds, also while a client reads it', async (test) => {
    const app = await SlowApp.start(test);
    for (const stays of [false, true]) {
      const before = app.questions.length;
      const opened = app.open('/a');
      const { request, response } = await app.question(before + 1);
      const gone = closed(request);
      response.writeHead(200, SHARED).write('beginning');
      const client = await opened;
      await once(client, 'data');
      if (!stays) client.destroy();
      app.clock.advance(29_000);
      const joined = await app.open('/a');
      await once(joined, 'data');
      assert.equal(app.questions.length, before + 1);
      joined.destroy();
      await closed(joined);
      await app.handled();
      app.clock.advance(1_000);
      const next = send(`${app.url}/a`);
      (await app.question(before + 2)).response.writeHead(200, SHARED).end('next');
      assert.equal((await next).body, 'next');
      if (stays) {
        assert.equal(request.destroyed, false);
        client.destroy();
      }
      await gone;
      app.clock.advance(61_000);
    }
  });

  for (const [what, field] of [
    ['a field of the request', '{header.X-Who}'],
    ['the client', '{vars.who}'],
  ] as const) {
    it(`never reports an error with fields that depend on ${what} to another client`, async (test) => {
      const rules = `vars who {header.X-Who}\nroute {\ncache\nheader X-Who ${field}\n}`;
      const app = await SlowApp.start(test, rules);
      const ask = async (who: string): Promise<unknown> => {
        const { status, headers } = await send(`${app.url}/a`, { headers: [['X-Who', who]] });
        return [status, headers['x-who']];
      };
      const first = ask('ann');
      const { response } = await app.question(1);
      const second = ask('bob');
      await app.handled();
      response.socket?.destroy();
      const state = { isAnswered: false };
      const both = Promise.all([first, second]).finally(() => (state.isAnswered = true));
      for (let number = 2; !state.isAnswered; number += 1) {
        // Each attempt ends as the first one.
        const next = app.question(number).then((question) => question.response.socket?.destroy());
        await Promise.race([next, both]);
      }
      assert.deepEqual(await both, [
        [502, 'ann'],
        [502, 'bob'],
      ]);
    });
  }

  it('reports a failing app to all waiting clients', async (test) => {
    const app = await SlowApp.start(test);
    const answers = [send(`${app.url}/a`)];
    const { response } = await app.question(1);
    answers.push(send(`${app.url}/a`), send(`${app.url}/a`));
    await app.handled();
    response.destroy();
    // The proxy tries once more, as a kept connection may have been closed at that moment.
    (await app.question(2)).response.destroy();
    const statuses = await Promise.all(answers.map(async (answer) => (await answer).status));
    assert.deepEqual(statuses, [502, 502, 502]);
  });
});
