import { readFileSync } from 'node:fs';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { HubgateError } from '../kernel/error.ts';
import { ANSWER_TIMEOUT_MS, resolvingOf, unreachableReason, withinTime } from './unreachable.ts';

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
  /** How long the head of the answer may take, in milliseconds. @default 30 s */
  readonly timeoutMs?: number;
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
    ...resolvingOf(request.url.hostname),
  };
  try {
    return await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = send(request.url, options, resolve);
      outgoing.once('error', reject);
      withinTime(outgoing, request.timeoutMs ?? ANSWER_TIMEOUT_MS);
      outgoing.end(request.body ?? undefined);
    });
  } catch (cause) {
    const why = unreachableReason(cause, request.url);
    throw new HubgateError('hub-unreachable', `Cannot reach ${access.hub.href}: ${why}`, { cause });
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
