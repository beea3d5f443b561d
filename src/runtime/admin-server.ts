import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { ListenAddress } from '../config/config.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

export interface AdminAnswer {
  readonly status: number;
  /** Printed as JSON, but for text. */
  readonly body: unknown;
  readonly type?: string;
  /** The method that it would take (RFC 9110 §10.2.1). */
  readonly allow?: string;
  /** Runs when the answer is on its way. */
  readonly after?: () => void;
}

/** A port on which the gateway speaks of itself. */
export class AdminServer {
  readonly #option: 'admin' | 'metrics';
  readonly #address: ListenAddress;
  readonly #log: Logger;
  readonly #answer: (request: IncomingMessage) => Promise<AdminAnswer>;
  #server: Server | null = null;

  private constructor(
    option: 'admin' | 'metrics',
    address: ListenAddress,
    log: Logger,
    answer: (request: IncomingMessage) => Promise<AdminAnswer>,
  ) {
    this.#option = option;
    this.#address = address;
    this.#log = log;
    this.#answer = answer;
  }

  /**
   * @param option the global option that asks for it
   * @throws HubgateError `listen-failed`
   */
  static async open(
    option: 'admin' | 'metrics',
    address: ListenAddress,
    log: Logger,
    answer: (request: IncomingMessage) => Promise<AdminAnswer>,
  ): Promise<AdminServer> {
    const server = new AdminServer(option, address, log, answer);
    await server.resume();
    return server;
  }

  /** Where it listens, with the port that the system has chosen for 0. */
  get address(): ListenAddress {
    const bound = this.#server?.address();
    const port = typeof bound === 'object' ? bound?.port : undefined;
    return { host: this.#address.host, port: port ?? this.#address.port };
  }

  /**
   * Listens again after {@link suspend}.
   *
   * @throws HubgateError `listen-failed`
   */
  async resume(): Promise<void> {
    const server = createServer((request, response) => {
      this.#respond(request, response).catch((error: unknown) => {
        this.#log.error('The admin API failed', { error: messageOf(error) });
        response.destroy();
      });
    });
    await this.#listen(server);
    this.#server = server;
  }

  /** Leaves the port to another; what is in flight is answered. */
  suspend(): void {
    this.#server?.close();
    this.#server?.closeIdleConnections();
    this.#server = null;
  }

  /** Answers what is in flight, and no more. */
  async close(): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.suspend();
    await closed;
  }

  async #listen(server: Server): Promise<void> {
    const { host, port } = this.#address;
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host, port }, () => resolve());
      });
    } catch (cause) {
      const taken = codeOf(cause) === 'EADDRINUSE';
      const option = this.#option;
      const why = taken
        ? `another program has it, perhaps another hubgate; give each its own with the global option ${option}, or write ${option} off`
        : messageOf(cause);
      const what = option === 'admin' ? 'the admin API' : 'the listener for metrics';
      const message = `Cannot open ${what} on port ${port} of ${host}: ${why}`;
      throw new HubgateError('listen-failed', message, { cause });
    }
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, body, type, allow, after } = await this.#answer(request);
    const text = type === undefined ? `${JSON.stringify(body)}\n` : String(body);
    response.once('finish', () => after?.());
    response.writeHead(status, {
      'content-type': type ?? 'application/json',
      'content-length': Buffer.byteLength(text),
      ...(allow === undefined ? {} : { allow }),
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      // The server may be closing, and whoever asks here asks seldom.
      connection: 'close',
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }
}
