import { isIP } from 'node:net';

export type BindAddress =
  /** An interface of this machine, by its address or name. The port is that of the site's address. */
  | { readonly kind: 'host'; readonly host: string }
  /** A Unix socket. It serves all addresses of the site, whatever their port. */
  | { readonly kind: 'unix'; readonly path: string; readonly mode: number }
  /** A listening socket that the parent process has opened. It serves all addresses as well. */
  | { readonly kind: 'fd'; readonly fd: number };

export type UnixAddress = Extract<BindAddress, { readonly kind: 'unix' }>;

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** The default mode of a Unix socket: only its owner has access. */
const DEFAULT_SOCKET_MODE = 0o600;
/** Longest path of a socket in bytes, limited by the system's `sun_path`. */
const MAX_PATH_BYTES = 107;
/** Standard input, output and error come before the descriptors that are passed in. */
const FIRST_DESCRIPTOR = 3;

const BIND_FORMS = 'an IP address or a host name without port, unix//path/to/socket, or fd/3';
export const UNIX_FORM = `unix//path/to/socket or unix//path/to/socket|0660, with a path of at most ${MAX_PATH_BYTES} bytes and a mode that lets the owner write`;

/** The forms that a text may have, for a message about one that has none. */
export function bindForms(text: string): string {
  return text.startsWith('unix/') ? UNIX_FORM : BIND_FORMS;
}

/**
 * Parses `127.0.0.1`, `[::1]`, `::1`, `localhost`; `unix//run/hubgate.sock`, `unix/relative.sock`, with the
 * socket's mode as `unix//run/hubgate.sock|0660`; `fd/3`. Returns null for anything else.
 */
export function parseBindAddress(text: string): BindAddress | null {
  if (text.startsWith('unix/')) return parseUnixAddress(text);
  if (text.startsWith('fd/')) {
    const fd = Number(text.slice('fd/'.length));
    const isGood = /^fd\/[1-9]\d{0,5}$/.test(text) && fd >= FIRST_DESCRIPTOR;
    return isGood ? { kind: 'fd', fd } : null;
  }
  // Caddy's names of networks: an address says which it is.
  const [, network = '', address = text] = /^(tcp[46]?)\/(.*)$/.exec(text) ?? [];
  const host = address.replace(/^\[(.*:.*)\]$/, '$1');
  if (/[46]$/.test(network) && isIP(host) !== Number(network.at(-1))) return null;
  const isHost = isIP(host) !== 0 || /^[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/.test(host);
  return isHost ? { kind: 'host', host } : null;
}

/** The text that {@link parseBindAddress} parses to this value. */
export function bindAddressText(bind: BindAddress): string {
  switch (bind.kind) {
    case 'host':
      return bind.host;
    case 'unix': {
      const mode = bind.mode === DEFAULT_SOCKET_MODE ? '' : `|0${bind.mode.toString(8)}`;
      return `unix/${bind.path}${mode}`;
    }
    case 'fd':
      return `fd/${bind.fd}`;
  }
}

/** An address on which a server listens. */
export interface ListenPlace {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** 0 lets the system choose. Ignored for Unix sockets and descriptors. */
  readonly port: number;
}

/** The place of the admin API or of the listener for metrics. */
export function placeOf(address: ListenAddress | { readonly socket: UnixAddress }): ListenPlace {
  if ('socket' in address) return { bind: address.socket, port: 0 };
  return { bind: { kind: 'host', host: address.host }, port: address.port };
}

/** `localhost:2029`, `[::1]:2029`, or as {@link bindAddressText}. */
export function placeText({ bind, port }: ListenPlace): string {
  if (bind.kind !== 'host') return bindAddressText(bind);
  return `${bind.host.includes(':') ? `[${bind.host}]` : bind.host}:${port}`;
}

/** The same for a Unix socket only. Its owner must be able to write to it, because connecting is writing. */
export function parseUnixAddress(text: string): UnixAddress | null {
  const [, path = '', mode] = /^unix\/([^|\p{Cc}]+)(?:\|(0?[2367][0-7]{2}))?$/u.exec(text) ?? [];
  // For other programs, a name that begins with @ is not a file. Nothing would restrict who connects to it.
  if (path === '' || /^@|\/$/.test(path) || Buffer.byteLength(path) > MAX_PATH_BYTES) return null;
  return {
    kind: 'unix',
    path,
    mode: mode === undefined ? DEFAULT_SOCKET_MODE : Number.parseInt(mode, 8),
  };
}
