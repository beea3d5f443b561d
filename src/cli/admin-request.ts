import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest, type RequestOptions as HttpsOptions } from 'node:https';
import { type ListenPlace, parseUnixAddress, placeOf, placeText } from '../config/bind-address.ts';
import type { GlobalOptions } from '../config/config.ts';
import { defaultOptions } from '../config/shape-options.ts';
import { ConfigError } from '../config/problem.ts';
import { parseJson, parseUrl } from '../kernel/parse.ts';
import { HubgateError, messageOf, codeOf } from '../kernel/error.ts';
import { isTaken, overlap, resume } from '../runtime/open-ports.ts';
import type { Logger } from '../kernel/log.ts';
import { type AdminControls, openAdmin, openMetrics } from '../runtime/admin.ts';
import type { AdminServer } from '../runtime/admin-server.ts';
import type { LookupFunction } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Command } from 'commander';
import type { GatewayFlags } from './config-source.ts';
import { configIfAny } from './read-config.ts';

/**
 * The address at which `reload` and `stop` look for a gateway: the given one, else the one in the
 * configuration, else the default.
 *
 * @throws HubgateError `admin-off` if the configuration turns the admin API off
 */
export function adminAddressOf(
  configured: string | undefined,
  options: Pick<GlobalOptions, 'admin'> = defaultOptions,
): string {
  if (configured !== undefined) return configured;
  const { admin } = options;
  if (admin === 'off') {
    const message = 'The configuration says "admin off"; pass the admin address with --address';
    throw new HubgateError('admin-off', message);
  }
  if ('socket' in admin) return `unix/${admin.socket.path}`;
  // A listener on all interfaces can be reached on the local ones.
  const host = admin.host === '0.0.0.0' || admin.host === '::' ? 'localhost' : admin.host;
  return placeText(placeOf({ ...admin, host }));
}

/** The same, with the configuration only if it is needed and there is one. */
export function gatewayAddress(flags: GatewayFlags, command: Command): string {
  if (flags.address !== undefined) return flags.address;
  try {
    return adminAddressOf(undefined, configIfAny(flags, command)?.options);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const advice = `${flags.config} does not say where the gateway is; pass its admin address with --address`;
    throw new HubgateError(error.code, `${advice}\n${error.message}`, { cause: error });
  }
}

export interface AdminAnswer {
  readonly status: number;
  readonly body: unknown;
  /** Names the process that has answered; null if what answers is not a gateway. */
  readonly instance: string | null;
}

/**
 * Sends a POST request to the admin API of a running gateway.
 *
 * @param address `host:port`, or `unix//path`
 * @throws HubgateError `no-gateway` if no gateway listens there, `invalid-argument` for an invalid address
 */
export function postToAdmin(
  address: string,
  path: string,
  body: Uint8Array = Buffer.alloc(0),
  type = 'application/octet-stream',
): Promise<AdminAnswer> {
  const headers = { 'content-type': type, 'content-length': body.length };
  return askAdmin(address, path, { method: 'POST', headers }, body);
}

/**
 * Sends a GET request to the admin API of a running gateway.
 *
 * @throws as {@link postToAdmin}
 */
export function getFromAdmin(address: string, path: string): Promise<AdminAnswer> {
  return askAdmin(address, path, { method: 'GET' });
}

/** How long a gateway may take to respond, in milliseconds; loading many sites takes a while. */
const ADMIN_TIMEOUT_MS = 120_000;

async function askAdmin(
  address: string,
  path: string,
  head: RequestOptions,
  body?: Uint8Array,
): Promise<AdminAnswer> {
  const socket = parseUnixAddress(address);
  const url = parseUrl(`http://${socket === null ? address : 'localhost'}${path}`);
  if (url === null || (socket === null && /[/?#@]/.test(address))) {
    const message = `--address is host:port or unix//path/to/socket, not ${JSON.stringify(address)}`;
    throw new HubgateError('invalid-argument', message);
  }
  const route = socket === null ? {} : { socketPath: socket.path };
  try {
    const options = { ...head, agent: false, ...route };
    const response = await sendRequest(url, options, body, ADMIN_TIMEOUT_MS);
    const { statusCode = 0, headers } = response;
    const instance = String(headers['hubgate-instance'] ?? '') || null;
    return { status: statusCode, body: parseJson(await text(response)), instance };
  } catch (cause) {
    const why = socket === null ? unreachableReason(cause, url) : unreachableSocket(cause);
    const message = `No gateway answers on ${address}: ${why} Pass its admin address with --address`;
    throw new HubgateError('no-gateway', message, { cause });
  }
}

/** Whether the admin API has done what was requested. Another service may respond with 200 as well. */
export function isDone({ status, body }: AdminAnswer): boolean {
  return status === 200 && typeof body === 'object' && body !== null;
}

/** The meaning of an unsuccessful response: a refusal by the admin API, or another service. */
export function refusalText(address: string, { status, body }: AdminAnswer): string {
  if (typeof body === 'object' && body !== null && 'error' in body)
    return `The gateway on ${address} answered ${status}: ${String(body.error)}`;
  return `What answers on ${address} (status ${status}) is not the admin API of hubgate; pass its address with --address`;
}

type Options = Pick<GlobalOptions, 'admin' | 'metrics'>;

interface Port {
  /** Ports with equal keys need not be opened again. */
  readonly key: string;
  readonly wanted: ListenPlace;
  readonly server: AdminServer;
}

/** The admin API and the listener for metrics, across reloads. */
export class AdminPorts {
  readonly #controls: AdminControls;
  readonly #log: Logger;
  #ports: readonly Port[] = [];

  constructor(controls: AdminControls, log: Logger) {
    this.#controls = controls;
    this.#log = log;
  }

  /** Where the admin API and the metrics are, as far as they are on. */
  get places(): readonly { readonly isAdmin: boolean; readonly place: ListenPlace }[] {
    return this.#ports.map(({ key, server: { place } }) => ({
      isAdmin: key.startsWith('admin'),
      place,
    }));
  }

  /**
   * Opens the ports of a configuration. If an old listener has one of these ports, the port is taken from it
   * now, and `discard` gives it back. Exactly one of the functions is called, once.
   *
   * @throws HubgateError `listen-failed`; nothing has changed then
   */
  async prepare(options: Options): Promise<{ commit(): void; discard(): Promise<void> }> {
    const before = this.#ports;
    const after: Port[] = [];
    const suspended: Port[] = [];
    const discard = async (): Promise<void> => {
      await Promise.all(
        after.filter((one) => !before.includes(one)).map(({ server }) => server.close()),
      );
      for (const { server } of suspended) await resume(server, this.#log);
    };
    try {
      const wanted = this.#wanted(options);
      const leaving = before.filter(({ key }) => wanted.every((one) => one.key !== key));
      for (const { key, place, open } of wanted) {
        const present = before.find((one) => one.key === key);
        if (present !== undefined) after.push(present);
        else {
          const inTheWay = leaving.filter(({ wanted: its }) => overlap(its, place));
          const server = await open().catch((error: unknown) => {
            if (inTheWay.length === 0 || !isTaken(error)) throw error;
            for (const one of inTheWay) one.server.suspend();
            suspended.push(...inTheWay);
            return open();
          });
          after.push({ key, wanted: place, server });
        }
      }
    } catch (error) {
      await discard();
      throw error;
    }
    return {
      commit: () => {
        this.#ports = after;
        for (const one of before) if (!after.includes(one)) void one.server.close();
      },
      discard,
    };
  }

  /** The ports that `prepare` would open, and those that would be closed. */
  changes(options: Options): { readonly opened: string[]; readonly closed: string[] } {
    const wanted = this.#wanted(options);
    const missing = wanted.filter(({ key }) => this.#ports.every((one) => one.key !== key));
    const leaving = this.#ports.filter(({ key }) => wanted.every((one) => one.key !== key));
    return {
      opened: missing.map(({ key, place }) => textOf(key, place)),
      closed: leaving.map(({ key, wanted: place }) => textOf(key, place)),
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.#ports.map(({ server }) => server.close()));
  }

  #wanted({ admin, metrics }: Options) {
    const port = (
      name: string,
      address: Parameters<typeof placeOf>[0],
      open: () => Promise<AdminServer>,
    ) => ({ key: `${name} ${JSON.stringify(address)}`, place: placeOf(address), open });
    const [controls, log] = [this.#controls, this.#log];
    return [
      ...(admin === 'off' ? [] : [port('admin', admin, () => openAdmin(admin, controls, log))]),
      ...(metrics === 'off'
        ? []
        : [port('metrics', metrics, () => openMetrics(metrics, controls, log))]),
    ];
  }
}

function textOf(key: string, place: ListenPlace): string {
  return `${key.split(' ', 1)[0]} ${placeText(place)}`;
}

/**
 * Sends a request, and resolves to the response when its head has arrived. If that takes longer than `timeoutMs`, it
 * fails with `ETIMEDOUT` if there is no connection yet, else with `no-answer`, because any service may be listening
 * there.
 */
export function sendRequest(
  url: URL,
  options: RequestOptions & Pick<HttpsOptions, 'ca' | 'rejectUnauthorized'>,
  body: Uint8Array | string | undefined,
  timeoutMs: number,
): Promise<IncomingMessage> {
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const request = send(url, { ...options, ...resolvingOf(url.hostname) }, resolve);
    const timer = setTimeout(() => {
      const code = request.socket?.connecting === false ? 'no-answer' : 'ETIMEDOUT';
      request.destroy(new HubgateError(code, `No answer within ${timeoutMs / 1000} s`));
    }, timeoutMs);
    request.once('response', () => clearTimeout(timer));
    request.once('close', () => clearTimeout(timer));
    request.on('error', reject);
    request.end(body);
  });
}

/** Explains why a host did not respond, with what to check instead of the socket's error. */
export function unreachableReason(cause: unknown, { protocol, hostname, port }: URL): string {
  const where = `port ${port || (protocol === 'https:' ? '443' : '80')}`;
  const said = messageOf(cause);
  switch (codeOf(cause)) {
    case 'ECONNREFUSED':
      return `nothing listens on ${where} of ${hostname}; is the gateway running, and is that its port?`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `no address found for ${hostname}; is the name spelled right, and is there a network?`;
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `${hostname} does not answer on ${where}; does a firewall block it?`;
    case 'no-answer':
      return `${where} of ${hostname} accepted the connection but sent nothing (${said}); is it another service?`;
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return `${where} does not speak TLS; does the URL begin with http:// instead?`;
    case 'ECONNRESET':
    case 'HPE_INVALID_CONSTANT':
      return `${where} closed the connection without an HTTP response; does it use TLS (https://), or is it another service?`;
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `the certificate is not for ${hostname}; is the name spelled right, and does the Hubfile have a site with that name?`;
    default:
      if (!/certificate|self.signed/i.test(said)) return said;
      return `${said}; pass the authority's certificate with --cacert (a local gateway has it in its storage, pki/local/root.crt)`;
  }
}

/** The same for a Unix socket. */
function unreachableSocket(cause: unknown): string {
  switch (codeOf(cause)) {
    case 'ENOENT':
      return 'there is no such file; is the gateway running, and is the path absolute?';
    case 'ECONNREFUSED':
      return 'nothing listens on it; is the gateway running?';
    case 'EACCES':
      return 'this user may not connect to it; run the command as the user of the gateway or as root.';
    default:
      return `${messageOf(cause)}; is it another service?`;
  }
}

/**
 * How a connection resolves the name of a host. Names below `localhost` are always this machine, whatever the
 * system's resolver returns. Other names are left to the system.
 *
 * @see RFC 6761 §6.3
 */
function resolvingOf(host: string): { readonly lookup?: LookupFunction } {
  return /(?:^|\.)localhost\.?$/i.test(host) ? { lookup: lookUpLoopback } : {};
}

const lookUpLoopback: LookupFunction = (_host, { all }, callback) => {
  if (all !== true) return callback(null, '127.0.0.1', 4);
  return callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};
