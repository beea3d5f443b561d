import { readFileSync } from 'node:fs';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { HubgateError, messageOf } from '../kernel/error.ts';

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
  };
  try {
    return await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = send(request.url, options, resolve);
      outgoing.once('error', reject);
      outgoing.end(request.body ?? undefined);
    });
  } catch (cause) {
    const text = messageOf(cause);
    const advice = /certificate|self.signed/i.test(text)
      ? '; name the authority with --cacert (a local gateway keeps it in its storage, pki/local/root.crt)'
      : '';
    throw new HubgateError('hub-unreachable', `Cannot reach ${access.hub.href}: ${text}${advice}`, {
      cause,
    });
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
