import { readFileSync } from 'node:fs';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { LookupFunction } from 'node:net';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/** How to reach a hub. */
export interface HubAccess {
  readonly hub: URL;
  readonly token: string | null;
  /** PEM file of an authority to trust. */
  readonly caFile: string | null;
  /** Accepts any certificate. */
  readonly insecure: boolean;
}

export interface HubRequest {
  readonly method: 'GET' | 'POST';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal;
}

/**
 * Sends a request to a hub and resolves to the response when its head has arrived.
 *
 * @throws HubgateError `hub-unreachable`, saying what to do about an unknown certificate
 */
export async function requestHub(access: HubAccess, request: HubRequest): Promise<IncomingMessage> {
  const send = request.url.protocol === 'https:' ? httpsRequest : httpRequest;
  const options = {
    method: request.method,
    signal: request.signal,
    headers: {
      ...request.headers,
      ...(access.token === null ? {} : { authorization: `Bearer ${access.token}` }),
    },
    ...(access.caFile === null ? {} : { ca: readFileSync(access.caFile) }),
    rejectUnauthorized: !access.insecure,
    // RFC 6761 §6.3: such names are this machine, whatever the system's resolver makes of them.
    ...(isLoopbackName(request.url.hostname) ? { lookup: lookUpLoopback } : {}),
  };
  try {
    return await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = send(request.url, options, resolve);
      outgoing.once('error', reject);
      outgoing.end(request.body ?? undefined);
    });
  } catch (cause) {
    const why = reasonOf(cause, request.url);
    throw new HubgateError('hub-unreachable', `Cannot reach ${access.hub.href}: ${why}`, { cause });
  }
}

function isLoopbackName(host: string): boolean {
  return /(?:^|\.)localhost\.?$/i.test(host);
}

const lookUpLoopback: LookupFunction = (_host, { all }, callback) => {
  if (all !== true) return callback(null, '127.0.0.1', 4);
  return callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};

/** What to check, rather than what the socket says. */
function reasonOf(cause: unknown, { protocol, hostname, port }: URL): string {
  const where = `port ${port || (protocol === 'https:' ? '443' : '80')}`;
  const text = messageOf(cause);
  switch (codeOf(cause)) {
    case 'ECONNREFUSED':
      return `nothing listens on ${where} of ${hostname}; is the gateway running, and is that its port?`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `no address is known for ${hostname}; is the name spelled right, and is there a network?`;
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `${hostname} does not answer on ${where}; is a firewall between?`;
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return `${where} does not speak TLS; does the URL begin with http:// instead?`;
    case 'ECONNRESET':
    case 'HPE_INVALID_CONSTANT':
      return `${where} closed the connection without an answer in HTTP; does it speak TLS (https://), or is it another service?`;
    default:
      if (!/certificate|self.signed/i.test(text)) return text;
      return `${text}; name the authority with --cacert (a local gateway keeps it in its storage, pki/local/root.crt)`;
  }
}

/** The whole body of a response as text, at most `maxBytes`. */
export async function readText(response: IncomingMessage, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    length += chunk.length;
    if (length > maxBytes) break;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
