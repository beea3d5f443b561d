import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * A port of the loopback interface that nobody else is given for a minute, so that a program which
 * is still to be started finds it free: a connection is closed on it from this side first, and
 * while that waits in TIME_WAIT the system hands the port to nobody who asks for any one, whether
 * to listen on or to connect from, but lets those listen who name it.
 */
export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const client = connect(port, '127.0.0.1').resume();
  const [served] = await accepted;
  served.end();
  await once(client, 'end'); // Its own end follows by itself, second.
  await Promise.all([once(served.resume(), 'close'), once(client, 'close')]);
  server.close();
  await once(server, 'close');
  return port;
}
