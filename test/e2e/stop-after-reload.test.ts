import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startLibraryGateway } from '../support/gateway.ts';
import { send } from '../support/http.ts';

/** Resolves when nobody listens there. */
async function refused(port: number): Promise<void> {
  for (let isOpen = true; isOpen; ) {
    const socket = connect(port, 'localhost');
    isOpen = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
  }
}

describe('a stop after a reload that removed a port', () => {
  it('waits for the requests of that port', async (test) => {
    let asked: (response: ServerResponse) => void = () => {};
    const asking = new Promise<ServerResponse>((resolve) => {
      asked = resolve;
    });
    const app = createServer((_request, response) => asked(response));
    app.listen(0, '127.0.0.1');
    await once(app, 'listening');
    test.after(() => app.close());
    const [kept, taken] = [await freePort(), await freePort()];
    const site = (port: number): string =>
      `http://localhost:${port} {\n\treverse_proxy 127.0.0.1:${(app.address() as AddressInfo).port}\n}\n`;
    const { gateway, reload } = await startLibraryGateway(test, site(kept) + site(taken));
    const answer = send(`http://localhost:${taken}/`);
    const response = await asking;
    await reload(site(kept));
    let isStopped = false;
    const stopped = gateway.stop().then(() => {
      isStopped = true;
    });
    // The other port is closed: all that a stop cuts would be cut.
    await refused(kept);
    await new Promise((turn) => setImmediate(turn));
    assert.equal(isStopped, false);
    response.end('whole');
    assert.equal((await answer).body, 'whole');
    await stopped;
  });
});
