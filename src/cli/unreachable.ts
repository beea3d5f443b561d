import type { ClientRequest } from 'node:http';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { LookupFunction } from 'node:net';

/** How long a server may take for the head of its response, in milliseconds. */
export const ANSWER_TIMEOUT_MS = 30_000;

/**
 * Aborts a request with `no-answer` if the response does not begin in time, because any service may be
 * listening there.
 */
export function withinTime(request: ClientRequest, timeoutMs: number): void {
  const timer = setTimeout(() => {
    request.destroy(new HubgateError('no-answer', `No answer within ${timeoutMs / 1000} s`));
  }, timeoutMs);
  request.once('response', () => clearTimeout(timer));
  request.once('close', () => clearTimeout(timer));
}

/** Explains why a host did not respond, with what to check instead of the socket's error. */
export function unreachableReason(cause: unknown, { protocol, hostname, port }: URL): string {
  const where = `port ${port || (protocol === 'https:' ? '443' : '80')}`;
  const text = messageOf(cause);
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
      return `${where} of ${hostname} accepted the connection but sent nothing (${text}); is it another service?`;
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
      if (!/certificate|self.signed/i.test(text)) return text;
      return `${text}; pass the authority's certificate with --cacert (a local gateway has it in its storage, pki/local/root.crt)`;
  }
}

/**
 * How a connection resolves the name of a host. Names below `localhost` are always this machine, whatever the
 * system's resolver returns. Other names are left to the system.
 *
 * @see RFC 6761 §6.3
 */
export function resolvingOf(host: string): { readonly lookup?: LookupFunction } {
  return /(?:^|\.)localhost\.?$/i.test(host) ? { lookup: lookUpLoopback } : {};
}

const lookUpLoopback: LookupFunction = (_host, { all }, callback) => {
  if (all !== true) return callback(null, '127.0.0.1', 4);
  return callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};
