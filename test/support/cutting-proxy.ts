import { connect, createServer, type Socket } from 'node:net';
import type { Owner } from './http.ts';

/** Passes bytes on, until it is told to cut. */
export interface CuttingProxy {
  readonly origin: string;
  /** How many connections have been opened. */
  readonly opened: number;
  /** Breaks off every connection, as a network does that fails. */
  cut(): void;
}

/** A TCP relay in front of an origin, so that a test can cut connections that are not its own. */
export async function startCuttingProxy(owner: Owner, origin: string): Promise<CuttingProxy> {
  const target = new URL(origin);
  const sockets = new Set<Socket>();
  let opened = 0;
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  const server = createServer((client) => {
    opened += 1;
    const upstream = connect(Number(target.port), target.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      // A cut shows as an error on both sides: that is its purpose.
      socket.on('error', () => {});
      socket.once('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  owner.after(() => {
    cut();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    origin: `http://127.0.0.1:${address.port}`,
    get opened() {
      return opened;
    },
    cut,
  };
}
