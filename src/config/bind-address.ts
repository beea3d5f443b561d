import { isIP } from 'node:net';
import type { BindAddress } from './config.ts';

/** The default mode of a Unix socket: only its owner has access. */
const DEFAULT_SOCKET_MODE = 0o600;
/** Longest path of a socket in bytes, limited by the system's `sun_path`. */
const MAX_PATH_BYTES = 107;
/** Standard input, output and error come before the descriptors that are passed in. */
const FIRST_DESCRIPTOR = 3;

export const BIND_FORMS =
  'an IP address or a host name without port, unix//path/to/socket, or fd/3';

/**
 * Parses `127.0.0.1`, `[::1]`, `::1`, `localhost`; `unix//run/hubgate.sock`, `unix/relative.sock`, with the
 * socket's mode as `unix//run/hubgate.sock|0660`; `fd/3`. Returns null for anything else.
 */
export function parseBindAddress(text: string): BindAddress | null {
  if (text.startsWith('unix/')) return parseUnix(text.slice('unix/'.length));
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

function parseUnix(text: string): BindAddress | null {
  const [, path = '', mode] = /^([^|\p{Cc}]+)(?:\|(0?[0-7]{3}))?$/u.exec(text) ?? [];
  if (path === '' || path.endsWith('/') || Buffer.byteLength(path) > MAX_PATH_BYTES) return null;
  return {
    kind: 'unix',
    path,
    mode: mode === undefined ? DEFAULT_SOCKET_MODE : Number.parseInt(mode, 8),
  };
}
