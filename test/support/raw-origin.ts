import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import type { Owner } from './http.ts';

/** An upstream that keeps every byte it is sent, and answers when its bytes look like a whole message. */
export interface RawOrigin {
  readonly port: number;
  /** What each connection has brought, as byte strings. */
  readonly connections: readonly { readonly bytes: string; readonly closed: boolean }[];
  /** Resolves when the condition holds. */
  until(condition: () => boolean): Promise<void>;
}

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** Starts one on loopback. `answers` says whether what has come since the last answer is to be answered. */
export async function startRawOrigin(
  test: Owner,
  answers: (bytes: string) => boolean,
): Promise<RawOrigin> {
  const connections: { bytes: string; closed: boolean }[] = [];
  const sockets = new Set<Socket>();
  let waiting: (() => void)[] = [];
  const wake = (): void => {
    const woken = waiting;
    waiting = [];
    for (const each of woken) each();
  };
  const server = createServer((socket) => {
    const connection = { bytes: '', closed: false };
    connections.push(connection);
    sockets.add(socket);
    let answered = 0;
    socket.on('data', (chunk: Buffer) => {
      connection.bytes += chunk.toString('latin1');
      if (answers(connection.bytes.slice(answered))) {
        answered = connection.bytes.length;
        socket.write(ANSWER);
      }
      wake();
    });
    // A gateway that gives up a request resets its connection.
    socket.on('error', () => {});
    socket.on('close', () => {
      connection.closed = true;
      sockets.delete(socket);
      wake();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    connections,
    async until(condition) {
      while (!condition()) await new Promise<void>((resolve) => waiting.push(resolve));
    },
  };
}
