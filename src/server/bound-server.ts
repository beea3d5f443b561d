import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { connect, type ListenOptions, type Server } from 'node:net';
import { bindAddressText } from '../config/bind-address.ts';
import type { BindAddress } from '../config/config.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/** The address that a server listens on. */
export interface ListenPlace {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** 0 lets the system choose. Ignored for Unix sockets and descriptors. */
  readonly port: number;
}

type UnixAddress = Extract<BindAddress, { kind: 'unix' }>;

/**
 * Begins to listen. The file of a Unix socket is removed when the server closes. A file that a dead process
 * has left is replaced.
 *
 * @throws HubgateError `listen-failed`; its message has the fix for the usual causes
 */
export async function bindServer(server: Server, place: ListenPlace): Promise<void> {
  const { bind, port } = place;
  try {
    if (bind.kind === 'unix') await bindUnix(server, bind);
    // A descriptor is a socket that already listens.
    else if (bind.kind === 'fd') await listen(server, { fd: bind.fd });
    else await listen(server, { ...(bind.host === '' ? {} : { host: bind.host }), port });
  } catch (cause) {
    throw new HubgateError('listen-failed', advice(place, cause), { cause });
  }
}

async function bindUnix(server: Server, address: UnixAddress): Promise<void> {
  try {
    await listenWithMode(server, address);
  } catch (error) {
    if (codeOf(error) !== 'EADDRINUSE' || !(await isAbandoned(address.path))) throw error;
    unlinkSync(address.path);
    await listenWithMode(server, address);
  }
  chmodSync(address.path, address.mode);
}

async function listenWithMode(server: Server, { path, mode }: UnixAddress): Promise<void> {
  // `listen` creates the file before it returns, so the file never has a wider mode.
  const before = process.umask(0o777 & ~mode);
  const listening = listen(server, { path });
  process.umask(before);
  await listening;
}

function listen(server: Server, options: ListenOptions | { readonly fd: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Whether the file of a socket exists while no process listens on it. */
async function isAbandoned(path: string): Promise<boolean> {
  if (!lstatSync(path).isSocket()) return false;
  return new Promise((resolve) => {
    const probe = connect({ path });
    probe.once('connect', () => {
      probe.destroy();
      resolve(false);
    });
    probe.once('error', (error) => resolve(codeOf(error) === 'ECONNREFUSED'));
  });
}

function advice({ bind, port }: ListenPlace, cause: unknown): string {
  const where = describe(bind, port);
  switch (codeOf(cause)) {
    case 'EADDRINUSE':
      return bind.kind === 'unix'
        ? `Cannot listen on ${where}: another program listens there, or the file is not a socket; stop that program or choose another path`
        : `Cannot listen on ${where}: another program uses it; stop that program or choose another port`;
    case 'EACCES':
      return bind.kind === 'unix'
        ? `Cannot listen on ${where}: the directory does not let this user create files`
        : `Cannot listen on ${where}: ports below 1024 need a privilege; set http_port and https_port, or give the node binary cap_net_bind_service`;
    case 'EADDRNOTAVAIL':
      return `Cannot listen on ${where}: this machine does not have that address`;
    case 'EBADF':
    case 'EINVAL':
    case 'ENOTSOCK':
    case 'ERR_INVALID_FD_TYPE':
      return `Cannot listen on ${where}: it is not a listening socket; the program that starts the gateway must pass one`;
    default:
      return `Cannot listen on ${where}: ${messageOf(cause)}`;
  }
}

function describe(bind: BindAddress, port: number): string {
  if (bind.kind !== 'host') return bindAddressText(bind);
  return `port ${port}${bind.host === '' ? '' : ` of ${bind.host}`}`;
}
