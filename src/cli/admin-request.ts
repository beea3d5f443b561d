import { request } from 'node:http';
import type { GlobalOptions } from '../config/config.ts';
import { defaultOptions } from '../config/defaults.ts';
import { HubgateError } from '../kernel/error.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import { resolvingOf, unreachableReason, withinTime } from './unreachable.ts';

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
  const { host, port } = admin;
  // A listener on all interfaces can be reached on the local ones.
  const reachable = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  return `${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

export interface AdminAnswer {
  readonly status: number;
  readonly body: unknown;
}

/**
 * Sends a POST request to the admin API of a running gateway.
 *
 * @throws HubgateError `no-gateway` if no gateway listens there, `invalid-argument` for an invalid address
 */
export function postToAdmin(
  address: string,
  path: string,
  body: Uint8Array = Buffer.alloc(0),
  type = 'application/octet-stream',
): Promise<AdminAnswer> {
  return askAdmin(address, path, { method: 'POST', body, type });
}

/**
 * Sends a GET request to the admin API of a running gateway.
 *
 * @throws as {@link postToAdmin}
 */
export function getFromAdmin(address: string, path: string): Promise<AdminAnswer> {
  return askAdmin(address, path, { method: 'GET', body: null, type: '' });
}

/** How long a gateway may take to respond, in milliseconds; loading many sites takes a while. */
const ADMIN_TIMEOUT_MS = 120_000;

interface Question {
  readonly method: 'GET' | 'POST';
  readonly body: Uint8Array | null;
  readonly type: string;
}

function askAdmin(
  address: string,
  path: string,
  { method, body, type }: Question,
): Promise<AdminAnswer> {
  const url = parseUrl(`http://${address}${path}`);
  if (url === null || /[/?#@]/.test(address)) {
    const message = `--address is host:port, not ${JSON.stringify(address)}`;
    return Promise.reject(new HubgateError('invalid-argument', message));
  }
  return new Promise((resolve, reject) => {
    const fail = (cause: Error): void => {
      const why = unreachableReason(cause, url);
      const message = `No gateway answers on ${address}: ${why} Pass its admin address with --address`;
      reject(new HubgateError('no-gateway', message, { cause }));
    };
    const headers = body === null ? {} : { 'content-type': type, 'content-length': body.length };
    const options = { method, headers, agent: false, ...resolvingOf(url.hostname) };
    const asked = request(url, options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', fail);
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: response.statusCode ?? 0, body: parse(text) });
      });
    });
    asked.on('error', fail);
    withinTime(asked, ADMIN_TIMEOUT_MS);
    asked.end(body ?? undefined);
  });
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

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The response is not from a gateway; its content does not matter.
    return text;
  }
}
