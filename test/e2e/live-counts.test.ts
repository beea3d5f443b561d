import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { Agent, createServer, get } from 'node:http';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { queryObjects, setFlagsFromString } from 'node:v8';
import { runInNewContext, runInThisContext } from 'node:vm';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { signToken } from '../support/hub-server.ts';
import { cli, startProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temporary-directory.ts';

setFlagsFromString('--expose-gc');

setFlagsFromString('--allow-natives-syntax');
/** Whether V8 keeps the properties of an object by its shape. */
const isShaped: (object: object) => boolean = runInThisContext(
  '(object) => %HasFastProperties(object)',
);

/** The sockets of this process. */
function openSockets(): net.Socket[] {
  const { _getActiveHandles: handles } = process as unknown as {
    _getActiveHandles(): readonly unknown[];
  };
  return handles().filter((handle) => handle instanceof net.Socket);
}

/** How many objects made by these there are now, garbage apart. */
async function living(): Promise<Record<'promises' | 'functions' | 'controllers', number>> {
  for (let i = 0; i < 3; i += 1) {
    await turn();
    runInNewContext('gc')();
  }
  const count = (made: Function): number => queryObjects(made, { format: 'count' });
  return {
    promises: count(Promise),
    functions: count(Function),
    controllers: count(AbortController),
  };
}

/** A stream at the hub, once its head is here. */
async function connect(test: TestContext, port: number): Promise<net.Socket> {
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
  test.after(() => socket.destroy());
  socket.write(`GET /.well-known/hub?match=a HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
  await says(socket, ':\n');
  return socket;
}

function says(socket: net.Socket, text: string): Promise<void> {
  return new Promise((resolve) => {
    let said = '';
    const hear = (some: string): void => {
      said += some;
      if (!said.includes(text)) return;
      socket.off('data', hear);
      resolve();
    };
    socket.on('data', hear);
  });
}

async function perConnection(test: TestContext, port: number): ReturnType<typeof living> {
  for (let i = 0; i < 20; i += 1) await connect(test, port);
  const before = await living();
  for (let i = 0; i < 200; i += 1) await connect(test, port);
  const after = await living();
  const each = (name: keyof typeof after): number => (after[name] - before[name]) / 200;
  return {
    promises: each('promises'),
    functions: each('functions'),
    controllers: each('controllers'),
  };
}

const KEY = 'a publisher key of more than 32 bytes, for tests';

const HUB = `hub {
		issuer https://a.example {
			publisher {
				jwt "${KEY}"
			}
		}
		anonymous
		cookie_name hub
	}`;

describe('the cost of the live path, counted', () => {
  it('of a waiting stream, beyond its two sockets', async (test) => {
    const port = await freePort();
    await startLibraryGateway(test, `http://localhost:${port} {\n\t${HUB}\n}\n`);
    const bare = net.createServer((socket) => void socket.once('data', () => socket.write(':\n')));
    bare.listen(0, '127.0.0.1');
    await once(bare, 'listening');
    test.after(() => bare.close());
    const address = bare.address();
    assert.ok(address !== null && typeof address !== 'string');
    const streams = await perConnection(test, port);
    const sockets = await perConnection(test, address.port);
    // The connection's own listeners and the send buffer's; no frame that waits, no request, no signal.
    assert.equal(Math.round(streams.promises - sockets.promises), 0);
    assert.equal(Math.round(streams.controllers - sockets.controllers), 0);
    const closures = streams.functions - sockets.functions;
    assert.ok(closures <= 2, `${closures} closures`);
  });

  it('of a connection after its request: its socket keeps its object shape', async (test) => {
    const port = await freePort();
    await startLibraryGateway(test, `http://localhost:${port} {\n\t${HUB}\n\trespond hello\n}\n`);
    await connect(test, port);
    const idle = net.connect(port, '127.0.0.1').setEncoding('latin1');
    test.after(() => idle.destroy());
    idle.write(`GET / HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`);
    await says(idle, 'hello');
    await turn();
    const accepted = openSockets().filter(({ localPort }) => localPort === port);
    assert.equal(accepted.length, 2);
    // One that loses a property becomes a hash table, slower to use and three times as large.
    for (const socket of accepted) assert.ok(isShaped(socket));
  });

  it('of an event, in promises: as many for 200 streams as for one', async (test) => {
    const port = await freePort();
    await startLibraryGateway(test, `http://localhost:${port} {\n\t${HUB}\n}\n`);
    const token = await signToken(KEY, {
      iss: 'https://a.example',
      aud: `http://localhost:${port}/.well-known/hub`,
      authorization_details: [
        { type: 'urn:hub:authorization-detail', actions: ['publish'], topics: [{ match: '*' }] },
      ],
    });
    const sockets: net.Socket[] = [];
    let promises = 0;
    const hook = createHook({
      init(_id, type) {
        if (type === 'PROMISE') promises += 1;
      },
    });
    const publish = async (id: string): Promise<number> => {
      const received = sockets.map((socket) => says(socket, `id: ${id}`));
      const before = promises;
      const { status } = await fetch(`http://localhost:${port}/.well-known/hub`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
        body: new URLSearchParams({ topic: 'a', id }),
      });
      assert.equal(status, 200);
      for (const one of received) await one;
      return promises - before;
    };
    sockets.push(await connect(test, port));
    await publish('warm');
    hook.enable();
    test.after(() => hook.disable());
    const one = await publish('first');
    while (sockets.length < 200) sockets.push(await connect(test, port));
    const all = await publish('second');
    // The test itself makes one for each socket.
    const own = sockets.length - 1;
    assert.ok(all - one - own < 20, `${one} for one, ${all - own} for ${sockets.length}`);
  });

  it('of a proxied request, in system calls', {
    skip: process.platform !== 'linux' && 'only Linux counts them for anybody to read',
  }, async (test) => {
    const app = createServer((_request, response) => {
      response.setHeader('Content-Length', 1024);
      response.end(Buffer.alloc(1024, 'x'));
    }).listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const address = app.address();
    assert.ok(address !== null && typeof address !== 'string');
    const [directory, port] = [await temporaryDirectory(test), await freePort()];
    const file = join(directory, 'Hubfile');
    await writeFile(
      file,
      `{\n\tadmin off\n\tstorage ${directory}\n}\nhttp://localhost:${port} {\n\t${HUB}\n\treverse_proxy localhost:${address.port}\n}\n`,
    );
    const gateway = startProcess(test, [cli, 'run', '--config', file]);
    await gateway.says('Listening on');
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    test.after(() => agent.destroy());
    const ask = async (): Promise<void> => {
      const [response] = await once(get(`http://localhost:${port}/`, { agent }), 'response');
      response.resume();
      await once(response, 'end');
    };
    const calls = (): readonly number[] => {
      const io = readFileSync(`/proc/${gateway.child.pid}/io`, 'utf8');
      return ['syscr', 'syscw'].map((name) => Number(new RegExp(`${name}: (\\d+)`).exec(io)?.[1]));
    };
    for (let i = 0; i < 50; i += 1) await ask();
    const before = calls();
    for (let i = 0; i < 500; i += 1) await ask();
    const after = calls();
    const each = after.map((count, index) => Math.round((count - (before[index] ?? 0)) / 500));
    assert.deepEqual(each, [2, 2], 'one read and one write on either side');
  });
});
