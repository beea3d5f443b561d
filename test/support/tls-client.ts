import { once } from 'node:events';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';

/** What came of one connection. */
export interface TlsVisit {
  /** Statuses of the answers, in the order of the requests. */
  readonly statuses: readonly number[];
  /** The session to resume; null when the server gave none. */
  readonly session: Buffer | null;
  readonly resumed: boolean;
}

/**
 * Asks for `/` of each host in turn over one connection, HTTP/1.1. Fewer statuses than hosts tell
 * that the server closed it.
 */
export async function visit(
  options: ConnectionOptions,
  hosts: readonly string[],
): Promise<TlsVisit> {
  const client = new TlsClient(options);
  const statuses: number[] = [];
  for (const host of hosts) {
    const status = await client.get(host);
    if (status === null) break;
    statuses.push(status);
  }
  return { statuses, ...(await client.close()) };
}

/** An HTTP/1.1 connection that stays. */
export class TlsClient {
  readonly #socket: TLSSocket;
  #text = '';
  #session: Buffer | null = null;
  #resumed = false;
  #closed = false;
  #wake: () => void = () => {};

  constructor(options: ConnectionOptions) {
    this.#socket = connect({ host: '127.0.0.1', ALPNProtocols: ['http/1.1'], ...options });
    this.#socket
      .on('secureConnect', () => {
        this.#resumed = this.#socket.isSessionReused();
      })
      .on('session', (session) => {
        this.#session = session;
      })
      .on('data', (chunk: Buffer) => {
        this.#text += chunk.toString('latin1');
        this.#wake();
      })
      // A refused handshake shows as an error here or there; that it ended is what counts.
      .on('error', () => this.#socket.destroy())
      .on('close', () => {
        this.#closed = true;
        this.#wake();
      });
  }

  /** The status; null when the connection ended instead. */
  async get(host: string): Promise<number | null> {
    this.#text = '';
    this.#socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    while (!/\r\n\r\n[^]/.test(this.#text)) {
      if (this.#closed) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return Number(/^HTTP\/1\.1 (\d{3})/.exec(this.#text)?.[1]);
  }

  async close(): Promise<Pick<TlsVisit, 'session' | 'resumed'>> {
    if (!this.#closed) {
      const closed = once(this.#socket, 'close');
      this.#socket.end();
      await closed;
    }
    return { session: this.#session, resumed: this.#resumed };
  }
}
