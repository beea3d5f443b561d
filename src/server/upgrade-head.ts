import type { IncomingMessage } from 'node:http';

/** Fields that only matter to an upgrade; the second is that of the HTTP/2 upgrade (RFC 7540 §3.2.1). */
const UPGRADE_FIELDS = new Set(['upgrade', 'http2-settings']);

/** Whether a request asks for the one protocol that is spoken here beside HTTP (RFC 6455 §4.1). */
export function asksForWebSocket({ method, httpVersion, headers }: IncomingMessage): boolean {
  return (
    method === 'GET' && httpVersion === '1.1' && headers.upgrade?.toLowerCase() === 'websocket'
  );
}

/** The head of a request as it came, but for the wish to upgrade. */
export function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (!UPGRADE_FIELDS.has(name.toLowerCase())) lines.push(`${name}: ${rawHeaders[i + 1]}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}
