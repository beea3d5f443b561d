import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type ListenPlace, placeOf } from '../config/bind-address.ts';
import type { AdminOptions, ListenAddress } from '../config/config.ts';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { bindServer, type ListenerOption } from '../server/bound-server.ts';
import { isIP, type Socket } from 'node:net';

export interface AdminAnswer {
  readonly status: number;
  /** Printed as JSON, unless it is text. */
  readonly body: unknown;
  readonly type?: string;
  /** The allowed method (RFC 9110 §10.2.1). */
  readonly allow?: string;
  /** Seconds after which the request may succeed. */
  readonly retryAfter?: string;
  /** Runs when the response is on its way. */
  readonly after?: () => void;
}

/** Names the process in all answers, so that a client notices when another one answers on the same address. */
const INSTANCE = randomUUID();
/** How long a listener that closes waits for the rest of a request. */
const REQUEST_MS = 2_000;
/** How long it waits until an answer has been sent. */
const ANSWER_MS = 10_000;

interface AdminServerOptions extends ListenerOption {
  readonly address: ListenAddress | AdminOptions;
  readonly log: Logger;
  readonly answer: (request: IncomingMessage) => Promise<AdminAnswer>;
  /** @default the clock of the system */
  readonly clock?: Clock;
}

/** A port or a Unix socket for status and administration of the gateway. */
export class AdminServer {
  readonly #options: AdminServerOptions;
  #server: Server | null = null;
  /** The open connections with their requests; null if there is none yet. */
  readonly #connections = new Map<Socket, IncomingMessage | null>();

  private constructor(options: AdminServerOptions) {
    this.#options = options;
  }

  /** @throws HubgateError `listen-failed` */
  static async open(options: AdminServerOptions): Promise<AdminServer> {
    const server = new AdminServer(options);
    await server.resume();
    return server;
  }

  /** Where it listens, with the port that the system has chosen for 0. */
  get place(): ListenPlace {
    const bound = this.#server?.address();
    const port = typeof bound === 'object' ? bound?.port : undefined;
    const place = placeOf(this.#options.address);
    return { ...place, port: port ?? place.port };
  }

  /**
   * Listens again after {@link suspend}.
   *
   * @throws HubgateError `listen-failed`
   */
  async resume(): Promise<void> {
    const server = createServer((request, response) => {
      this.#connections.set(request.socket, request);
      this.#respond(request, response).catch((error: unknown) => {
        this.#options.log.error('The admin API failed', { error: messageOf(error) });
        response.destroy();
      });
    });
    await bindServer(server, placeOf(this.#options.address), this.#options);
    server.on('connection', (socket) => {
      this.#connections.set(socket, null);
      socket.once('close', () => this.#connections.delete(socket));
    });
    // Without a listener, a connection that cannot be accepted would end the process.
    server.on('error', (error) =>
      this.#options.log.error('A listener failed', { error: messageOf(error) }),
    );
    this.#server = server;
  }

  /** Releases the address for another listener. Requests in progress get their responses. */
  suspend(): void {
    // The request that replaces this listener waits for the load that it has begun.
    void this.#close(Number.POSITIVE_INFINITY);
  }

  /** Accepts no more, and finishes requests in progress. */
  close(): Promise<void> {
    return this.#close(ANSWER_MS);
  }

  async #close(answerMs: number): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    this.#server = null;
    const { clock = systemClock } = this.#options;
    const closing = [...this.#connections.keys()];
    await new Promise<void>((resolve) => {
      // Node has no time limits for the connections of a server that closes.
      const cancels = [
        clock.after(REQUEST_MS, () => {
          for (const socket of closing)
            if (this.#connections.get(socket)?.complete !== true) socket.destroy();
        }),
      ];
      if (Number.isFinite(answerMs)) {
        cancels.push(clock.after(answerMs, () => server.closeAllConnections()));
      }
      server.close(() => {
        for (const cancel of cancels) cancel();
        resolve();
      });
      server.closeIdleConnections();
    });
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, body, type, allow, retryAfter, after } = await this.#options.answer(request);
    const text = type === undefined ? `${JSON.stringify(body)}\n` : String(body);
    response.once('finish', () => after?.());
    response.writeHead(status, {
      'content-type': type ?? 'application/json',
      'content-length': Buffer.byteLength(text),
      ...(allow === undefined ? {} : { allow }),
      ...(retryAfter === undefined ? {} : { 'retry-after': retryAfter }),
      'hubgate-instance': INSTANCE,
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      // The server may be closing, and requests here are rare.
      connection: 'close',
    });
    response.end(request.method === 'HEAD' ? undefined : text);
  }
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
const ANY_INTERFACE = ['0.0.0.0', '::'];

/**
 * The reason why a request may not come from the operator; null if it may. A page in the operator's browser
 * must not administer the gateway. So `Host` must be a name of the listener or one of `origins`; otherwise a
 * foreign name that was rebound to it would be accepted. No name leads to a Unix socket, except through a
 * proxy, whose names may be in `origins`. If the browser states the origin of the request, that must be the
 * listener as well.
 */
export function adminRefusal(
  { headers }: Pick<IncomingMessage, 'headers'>,
  admin: AdminOptions,
): string | null {
  const { host = '', origin } = headers;
  if (!isOwnHost(host.toLowerCase(), admin)) {
    return `the admin API does not have the name ${JSON.stringify(host.slice(0, 80))}; name it: admin … { origins <host> }`;
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return FOREIGN;
  if (origin === undefined || origin.toLowerCase() === `http://${host.toLowerCase()}`) return null;
  return FOREIGN;
}

const FOREIGN = 'pages of other origins may not use the admin API';

/** The port may be mapped, so only the name counts, except for an entry of `origins` with a port. */
function isOwnHost(host: string, admin: AdminOptions): boolean {
  const { origins } = admin;
  const name = host.replace(/:\d{1,5}$/, '');
  if (LOOPBACK.includes(name) || origins.includes(name) || origins.includes(host)) return true;
  if ('socket' in admin) return origins.length === 0;
  const { host: own } = admin;
  if (name === bracketed(own.toLowerCase())) return true;
  // Rebinding needs a name; an address of this machine cannot be rebound.
  return ANY_INTERFACE.includes(own) && isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
}

function bracketed(host: string): string {
  return isIP(host) === 6 ? `[${host}]` : host;
}
