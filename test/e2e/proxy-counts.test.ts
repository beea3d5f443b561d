import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, createServer, get, type Server } from 'node:http';
import { Agent as TlsAgent, get as getTls } from 'node:https';
import { type AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { TLSSocket } from 'node:tls';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { cli } from '../support/process.ts';

/** Requests after which V8 has compiled what all of them run. */
const WARM_UP = 8000;
const COUNTED = 1000;
/** The compiler may still work in the first rounds. */
const ROUNDS = 5;
/**
 * A proxied request leaves 25.9 KB on Node 20, 26.8 on 22, 27.7 on 24 and 28.5 on 26. A bare Node proxy with the
 * same HTTP client leaves 14. With 4 KB more, the test fails on each of them.
 */
const MAX_GARBAGE_BYTES = 29_500;

const PROBE = new URL('../support/count-garbage.mjs', import.meta.url).href;
/** With them, V8 does the same in each run. */
const HEAP = [
  '--min-semi-space-size=16',
  '--max-semi-space-size=16',
  '--no-concurrent-recompilation',
];
const BODY = Buffer.alloc(1024, 'x');

/** With discovery, as most sites have it. */
const siteOf = (address: string, tls: string, app: number): string => `${address} {
	${tls}
	hub {
		issuer https://a.example {
			publisher {
				jwt "a publisher key of more than 32 bytes, for tests"
			}
		}
		anonymous
		cookie_name hub
	}
	discovery
	reverse_proxy 127.0.0.1:${app}
}
`;

async function startApp(test: TestContext): Promise<number> {
  const app = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain', 'content-length': BODY.length });
    response.end(BODY);
  });
  // The gateway closes its connections first.
  app.keepAliveTimeout = 0;
  test.after(() => close(app));
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  return (app.address() as AddressInfo).port;
}

function close(app: Server): void {
  app.close();
  app.closeAllConnections();
}

/** The program with a channel to the test. */
async function startProbed(test: TestContext, port: number): Promise<ChildProcess> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-garbage-'));
  const file = join(storage, 'Hubfile');
  const site = siteOf(`http://localhost:${port}`, '', await startApp(test));
  await writeFile(file, `{\n\tstorage ${storage}\n\tadmin off\n}\n${site}`);
  const execArgv = [...HEAP, '--import', PROBE];
  const gateway = fork(cli, ['run', '--no-watch', '--config', file], { execArgv, silent: true });
  test.after(async () => {
    gateway.kill('SIGKILL');
    await rm(storage, { recursive: true, force: true, maxRetries: 10 });
  });
  let output = '';
  for (const stream of [gateway.stdout, gateway.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      output += chunk;
      if (output.includes('Listening on')) gateway.emit('listening');
    });
  }
  await once(gateway, 'listening');
  return gateway;
}

async function ask(gateway: ChildProcess, order: 'start' | 'stop'): Promise<number> {
  gateway.send(order);
  const [answer]: unknown[] = await once(gateway, 'message');
  return Number(answer);
}

async function makeRequests(port: number, agent: Agent, count: number): Promise<void> {
  const path = `http://127.0.0.1:${port}/`;
  const headers = { host: `localhost:${port}` };
  for (let i = 0; i < count; i += 1) {
    const [response] = await once(get(path, { agent, headers }), 'response');
    assert.equal(response.statusCode, 200);
    await once(response.resume(), 'end');
  }
}

describe('the cost of a proxied request, counted', () => {
  it('in garbage', async (test) => {
    const port = await freePort();
    const gateway = await startProbed(test, port);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    test.after(() => agent.destroy());
    await makeRequests(port, agent, WARM_UP);
    let least = Infinity;
    for (let i = 0; i < ROUNDS && least > MAX_GARBAGE_BYTES; i += 1) {
      await ask(gateway, 'start');
      await makeRequests(port, agent, COUNTED);
      least = Math.min(least, (await ask(gateway, 'stop')) / COUNTED);
    }
    assert.ok(least <= MAX_GARBAGE_BYTES, `${Math.round(least)} bytes per request`);
  });

  it('in writes, over TLS', async (test) => {
    const port = await freePort();
    const app = await startApp(test);
    const { root } = await startLibraryGateway(
      test,
      siteOf(`https://localhost:${port}`, 'tls internal', app),
    );
    const agent = new TlsAgent({ keepAlive: true, maxSockets: 1, ca: await root() });
    test.after(() => agent.destroy());
    const request = async (): Promise<void> => {
      const [response] = await once(getTls(`https://localhost:${port}/`, { agent }), 'response');
      assert.equal(response.statusCode, 200);
      await once(response.resume(), 'end');
    };
    // The gateway takes the functions of a socket when it connects to the app.
    const writes = countWrites(test, { client: port, app });
    for (let i = 0; i < 10; i += 1) await request();
    // Each is one record.
    assert.deepEqual(writes, { toClient: 10, toApp: 10 });
  });
});

/** Counts what sockets of the gateway write from now on: one call may have several chunks. */
function countWrites(
  test: TestContext,
  ports: { readonly client: number; readonly app: number },
): { toClient: number; toApp: number } {
  const counts = { toClient: 0, toApp: 0 };
  for (const name of ['_write', '_writev'] as const) {
    const write = Socket.prototype[name] as (...args: unknown[]) => void;
    Socket.prototype[name] = function (this: Socket, ...args: unknown[]) {
      if (this instanceof TLSSocket && this.localPort === ports.client) counts.toClient += 1;
      if (this.remotePort === ports.app) counts.toApp += 1;
      write.apply(this, args);
    };
    test.after(() => {
      Socket.prototype[name] = write;
    });
  }
  return counts;
}
