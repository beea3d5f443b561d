import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import { type AddressInfo, connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';
import { runCommand, startProcess } from '../support/process.ts';

/** Longer than Node waits for one of several addresses by default: 250 ms, and 500 ms since Node 26. */
const BUSY_MS = 600;

/**
 * Preloaded in a process, it keeps the process busy after each beginning of a connection. The connection is
 * established meanwhile, but the process sees its timers first.
 */
const BUSY = `
  import { subscribe } from 'node:diagnostics_channel';
  import dns from 'node:dns';
  import { syncBuiltinESMExports } from 'node:module';
  const lookup = dns.lookup;
  dns.lookup = (host, options, done) => {
    if (host !== 'app.test') return lookup(host, options, done);
    const addresses = [{ address: '127.0.0.1', family: 4 }, { address: '::1', family: 6 }];
    process.nextTick(() => options.all ? done(null, addresses) : done(null, '127.0.0.1', 4));
  };
  syncBuiltinESMExports();
  const stayBusy = () => {
    const end = Date.now() + ${BUSY_MS};
    while (Date.now() < end);
  };
  subscribe('net.client.socket', ({ socket }) => {
    socket.once('connectionAttempt', () => setImmediate(stayBusy));
  });
`;
const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(BUSY)}` };

describe('a process that is busy while it connects to a name with an IPv4 and an IPv6 address', () => {
  for (const workers of [1, 2]) {
    it(`proxies nevertheless (workers ${workers})`, async (test) => {
      const upstream = createServer((_request, response) => response.end('reached'));
      test.after(() => upstream.close());
      upstream.listen(0, '127.0.0.1');
      await once(upstream, 'listening');
      const { port } = upstream.address() as AddressInfo;
      const origin = `http://127.0.0.1:${await freePort()}`;
      const sites = `${origin} {\n\treverse_proxy app.test:${port}\n}\n`;
      await startGateway(test, sites, `\tworkers ${workers}\n`, env);
      const { status, body } = await send(origin);
      assert.deepEqual({ status, body }, { status: 200, body: 'reached' });
    });
  }

  it('finds out what answers on the port of the admin API', async (test) => {
    const other = createServer((_request, response) => response.writeHead(404).end());
    test.after(() => other.close());
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const { stderr } = await runCommand(['stop', '--address', `localhost:${port}`], env);
    assert.match(stderr, /status 404\) is not the admin API of hubgate/);
  });
});

/** Names the first of two addresses; the other one is 127.0.0.1. */
function naming(first: string): NodeJS.ProcessEnv {
  const code = `
    import dns from 'node:dns';
    import { syncBuiltinESMExports } from 'node:module';
    const lookup = dns.lookup;
    dns.lookup = (host, options, done) => {
      if (host !== 'app.test') return lookup(host, options, done);
      const addresses = ['${first}', '127.0.0.1'].map((address) => ({ address, family: 4 }));
      process.nextTick(() => options.all ? done(null, addresses) : done(null, '${first}', 4));
    };
    syncBuiltinESMExports();
  `;
  return { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(code)}` };
}

/** Occupies a port in such a way that the system answers no further connection. */
async function silence(test: TestContext, host: string, port: number): Promise<void> {
  const code = `
    const server = require('node:net').createServer();
    server.listen({ host: '${host}', port: ${port}, backlog: 1 }, () => console.log('listens'));
  `;
  const silent = startProcess(test, ['-e', code]);
  await silent.says('listens');
  silent.child.kill('SIGSTOP');
  for (let i = 0; i < 2; i += 1) {
    const waiting = connect(port, host).on('error', () => {});
    test.after(() => waiting.destroy());
    await once(waiting, 'connect');
  }
}

describe('an upstream whose first address does not respond', () => {
  for (const [kind, options] of [
    ['HTTP/1.1', ''],
    ['HTTP/2', 'versions h2c'],
  ] as const) {
    it(`is reached at the next one within a short dial_timeout (${kind})`, async (test) => {
      const port = await freePort();
      await silence(test, '127.0.0.2', port);
      const upstream =
        kind === 'HTTP/2'
          ? createHttp2Server((_request, response) => void response.end('reached'))
          : createServer((_request, response) => void response.end('reached'));
      test.after(() => upstream.close());
      upstream.listen(port, '127.0.0.1');
      await once(upstream, 'listening');
      const origin = `http://127.0.0.1:${await freePort()}`;
      const transport = `transport http {\n\t\t\tdial_timeout 1s\n\t\t\t${options}\n\t\t}`;
      const sites = `${origin} {\n\treverse_proxy app.test:${port} {\n\t\t${transport}\n\t}\n}\n`;
      await startGateway(test, sites, undefined, naming('127.0.0.2'));
      const { status, body } = await send(origin);
      assert.deepEqual({ status, body }, { status: 200, body: 'reached' });
    });
  }
});
