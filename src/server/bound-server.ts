import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { connect, createServer, type ListenOptions, type Server, type ServerOpts } from 'node:net';
import { bindAddressText, type ListenPlace } from '../config/bind-address.ts';
import type { UnixAddress } from '../config/config.ts';
import { codeOf, HubgateError, messageOf, ignore } from '../kernel/error.ts';

/** A listener that a global option configures. */
export interface ListenerOption {
  readonly option: 'admin' | 'metrics';
  readonly what: string;
}

/**
 * Servers on sockets that the gateway has inherited. A server that closes also closes its descriptor, which nobody
 * could open again. So each one stays open until the gateway stops, whether a configuration uses it or not. Several
 * workers share the descriptor of the main process, which node:cluster closes when the last of them has closed it or has
 * ended. `WorkerPool` reports that.
 */
export class InheritedSockets {
  readonly #servers = new Map<number, Server>();

  /** The server of a descriptor, for {@link bindServer}. It closes connections that nobody else listens for. */
  serverOf(fd: number, options: ServerOpts): Server {
    const present = this.#servers.get(fd);
    if (present !== undefined) return present;
    const server = createServer(options, (socket) => {
      if (server.listenerCount('connection') === 1) socket.destroy();
    });
    // Without a listener, a failure would end the process.
    server.on('error', ignore);
    server.once('listening', () => this.#servers.set(fd, server));
    return server;
  }

  /** Leaves further connections to the process that inherits the sockets next. */
  close(): void {
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
  }
}

/**
 * Begins to listen. The file of a Unix socket is removed when the server closes. A file that a dead process
 * has left is replaced.
 *
 * @throws HubgateError `listen-failed`; its message has the fix for the usual causes
 */
export async function bindServer(
  server: Server,
  place: ListenPlace,
  own?: ListenerOption,
): Promise<void> {
  const { bind, port } = place;
  try {
    if (bind.kind === 'unix') await bindUnix(server, bind);
    // A descriptor is a socket that already listens.
    else if (bind.kind === 'fd') {
      if (!server.listening) await listen(server, { fd: bind.fd });
    } else await listen(server, { ...(bind.host === '' ? {} : { host: bind.host }), port });
  } catch (cause) {
    server.close();
    const what = own === undefined ? 'listen' : `open ${own.what}`;
    const message = `Cannot ${what} on ${describe(place)}: ${advice(place, cause, own)}`;
    throw new HubgateError('listen-failed', message, { cause });
  }
}

async function bindUnix(server: Server, address: UnixAddress): Promise<void> {
  try {
    await listenWithMode(server, address);
  } catch (error) {
    if (codeOf(error) !== 'EADDRINUSE') throw error;
    await removeAbandoned(address.path);
    await listenWithMode(server, address);
  }
  chmodSync(address.path, address.mode);
}

async function listenWithMode(server: Server, { path, mode }: UnixAddress): Promise<void> {
  // `listen` creates the file before it returns, so no other user ever has more access. The owner keeps theirs
  // for now, because threads may be creating files as well.
  const before = process.umask(0o077 & ~mode);
  const listening = listen(server, { path });
  process.umask(before);
  await listening;
}

/**
 * Connections that wait until the process accepts them, as far as the system allows (`net.core.somaxconn` of Linux).
 * Beyond them, the system drops the handshakes of TCP, and a client tries again after a second or more. All subscribers
 * come back at once after a restart.
 */
export const BACKLOG = 4_096;

function listen(server: Server, options: ListenOptions | { readonly fd: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ backlog: BACKLOG, ...options }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Removes the file of a socket on which no process listens. */
async function removeAbandoned(path: string): Promise<void> {
  const before = lstatSync(path, { throwIfNoEntry: false });
  if (before?.isSocket() === false)
    throw new Error('the file is not a socket; choose another path');
  const isAbandoned = await new Promise<boolean>((resolve) => {
    const probe = connect({ path });
    probe.once('connect', () => {
      probe.destroy();
      resolve(false);
    });
    probe.once('error', (error) => resolve(codeOf(error) === 'ECONNREFUSED'));
  });
  // Another process that starts may have replaced the file in the meantime.
  const now = lstatSync(path, { throwIfNoEntry: false });
  if (isAbandoned && now?.ino === before?.ino && now?.ctimeMs === before?.ctimeMs) unlinkSync(path);
}

function advice({ bind }: ListenPlace, cause: unknown, own?: ListenerOption): string {
  const isUnix = bind.kind === 'unix';
  switch (codeOf(cause)) {
    case 'EADDRINUSE':
      return own === undefined
        ? `another program uses it; stop that program or choose another ${isUnix ? 'path' : 'port'}`
        : `another program uses it, perhaps another hubgate; give each its own address with the global option ${own.option}, or write ${own.option} off`;
    case 'EACCES':
      return isUnix
        ? 'the directory does not exist, or does not let this user create files'
        : 'ports below 1024 need a privilege; set http_port and https_port, or give the node binary cap_net_bind_service';
    case 'EADDRNOTAVAIL':
      return 'this machine does not have that address';
    case 'EBADF':
    case 'EINVAL':
    case 'ENOTSOCK':
    case 'ERR_INVALID_FD_TYPE':
      return 'it is not a listening socket; the program that starts the gateway must pass one';
    default:
      return messageOf(cause);
  }
}

function describe({ bind, port }: ListenPlace): string {
  if (bind.kind !== 'host') return bindAddressText(bind);
  return `port ${port}${bind.host === '' ? '' : ` of ${bind.host}`}`;
}
