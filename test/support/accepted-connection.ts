import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { createCertificateFiles } from './certificate-files.ts';
import type { Owner } from './http.ts';

interface AcceptedConnection {
  readonly accepted: Socket;
  readonly client: Socket;
  /** The client disappears with a reset, also if TLS is in between. */
  readonly reset: () => void;
}

/** The two ends of one connection. `onAccepted` gets that of the server before anything is read. */
export async function acceptedConnection(
  owner: Owner,
  isTls: boolean,
  onAccepted: (socket: Socket) => void = () => {},
): Promise<AcceptedConnection> {
  const { key, cert } = createCertificateFiles().site;
  const server = isTls ? createTlsServer({ key, cert }, onAccepted) : createServer(onAccepted);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const place = { port: address.port, host: '127.0.0.1' };
  const carrier = connect(place);
  const client = isTls ? connectTls({ socket: carrier, rejectUnauthorized: false }) : carrier;
  client.on('error', () => {});
  const [accepted] = (await once(server, isTls ? 'secureConnection' : 'connection')) as [Socket];
  accepted.on('error', () => {});
  owner.after(() => {
    client.destroy();
    accepted.destroy();
    server.close();
  });
  return { accepted, client, reset: () => carrier.resetAndDestroy() };
}
