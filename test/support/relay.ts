import { connect, createServer, type Socket } from 'node:net';
import type { Owner } from './http.ts';

/** What a connection has sent and its target has not got. */
interface HeldRequests {
  readonly bytes: number;
  /** Passes it on as the last of its connection. */
  arrive(): void;
}

/** A TCP relay that can lose answers, be cut and be healed. */
export interface Relay {
  readonly port: number;
  /** Bytes that its targets have answered so far. */
  readonly answered: number;
  /** From now on nothing comes back from the target; what is sent to it still arrives. */
  loseAnswers(): void;
  /** The same for one connection alone, counted from 0 in the order in which they came. */
  loseAnswersOf(connection: number): void;
  /** Holds what one connection sends from now on, even if the connection is lost meanwhile. */
  holdRequestsOf(connection: number): HeldRequests;
  /** Breaks off every connection; new ones are refused until it is healed. */
  cut(): void;
  /** Answers wait from now on, on connections that stay open. */
  pause(): void;
  resume(): void;
  heal(): void;
}

export async function startRelay(owner: Owner, targetPort: number): Promise<Relay> {
  const sockets = new Set<Socket>();
  const targets = new Set<Socket>();
  const links: { readonly client: Socket; readonly target: Socket }[] = [];
  let answered = 0;
  let answers = true;
  let silent = -1;
  let open = true;
  let isPaused = false;
  const server = createServer((client) => {
    if (!open) {
      client.resetAndDestroy();
      return;
    }
    const connection = links.length;
    const target = connect(targetPort, '127.0.0.1');
    links.push({ client, target });
    targets.add(target);
    if (isPaused) target.pause();
    target.once('close', () => targets.delete(target));
    for (const socket of [client, target]) {
      sockets.add(socket);
      // A cut shows as an error on both sides: that is its purpose.
      socket.on('error', () => {});
      socket.once('close', () => {
        sockets.delete(socket);
        client.destroy();
        target.destroy();
      });
    }
    client.on('data', (chunk) => target.write(chunk));
    target.on('data', (chunk) => {
      answered += chunk.length;
      if (answers && connection !== silent) client.write(chunk);
    });
  });
  const cut = (): void => {
    open = false;
    for (const socket of sockets) socket.resetAndDestroy();
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  owner.after(() => {
    cut();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    get answered() {
      return answered;
    },
    loseAnswers() {
      answers = false;
    },
    loseAnswersOf(connection) {
      silent = connection;
    },
    holdRequestsOf(connection) {
      const link = links[connection];
      if (link === undefined) throw new Error(`there is no connection ${connection}`);
      const { client, target } = link;
      const chunks: Buffer[] = [];
      client.removeAllListeners('data').on('data', (chunk) => chunks.push(chunk));
      client.removeAllListeners('close').once('close', () => sockets.delete(client));
      sockets.delete(target);
      return {
        get bytes() {
          return Buffer.concat(chunks).length;
        },
        arrive: () => void target.end(Buffer.concat(chunks)),
      };
    },
    cut,
    pause() {
      isPaused = true;
      for (const target of targets) target.pause();
    },
    resume() {
      isPaused = false;
      for (const target of targets) target.resume();
    },
    heal() {
      answers = true;
      silent = -1;
      open = true;
    },
  };
}
