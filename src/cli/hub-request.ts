import type { IncomingMessage } from 'node:http';
import { HubgateError } from '../kernel/error.ts';
import { readInput } from './config-source.ts';
import { sendRequest, unreachableReason } from './admin-request.ts';

/** How long a hub may take for the head of its response, in milliseconds. */
const ANSWER_TIMEOUT_MS = 30_000;

/** How to reach a hub. */
export interface HubAccess {
  readonly hub: URL;
  readonly token: string | null;
  /** PEM file of an authority to trust. */
  readonly caFile: string | null;
  /** Whether any certificate is accepted. */
  readonly insecure: boolean;
}

export interface HubRequest {
  readonly method: 'GET' | 'POST';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal;
  /** How long the head of the response may take, in milliseconds. @default 30 s */
  readonly timeoutMs?: number;
}

/**
 * Sends a request to a hub and resolves to the response when its head has arrived.
 *
 * @throws HubgateError `hub-unreachable`; its message has the fix for an unknown certificate
 */
export async function requestHub(access: HubAccess, request: HubRequest): Promise<IncomingMessage> {
  const options = {
    method: request.method,
    signal: request.signal,
    headers: {
      ...request.headers,
      ...(access.token === null ? {} : { authorization: `Bearer ${access.token}` }),
    },
    ...(access.caFile === null ? {} : { ca: readInput(access.caFile) }),
    rejectUnauthorized: !access.insecure,
  };
  try {
    const { url, body, timeoutMs = ANSWER_TIMEOUT_MS } = request;
    return await sendRequest(url, options, body ?? undefined, timeoutMs);
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

/** A server-sent event as it was received. */
export interface ReceivedEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** The state of a stream apart from its events. */
export interface StreamPosition {
  /** Last event id, for the next connection. */
  lastEventId: string;
  /** Milliseconds to wait before the next connection; null if the stream has not sent a value. */
  retryMs: number | null;
}

/** Shortest wait that a stream can ask for. Without it, a client could reconnect in a tight loop. */
const MIN_RETRY_MS = 100;
/** Longest line that is kept while its end has not arrived. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

/** Parses a `text/event-stream` (WHATWG HTML §9.2.6), chunk by chunk. */
export async function* parseEventStream(
  chunks: AsyncIterable<Buffer>,
  position: StreamPosition,
): AsyncGenerator<ReceivedEvent> {
  const decoder = new TextDecoder('utf-8');
  let buffered = '';
  let data: string[] = [];
  let type = '';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    const mayEnd = /[\r\n]/.test(text) || buffered.endsWith('\r');
    buffered += text;
    if (buffered.length > MAX_LINE_LENGTH) throw new RangeError('A line of the stream is too long');
    // A long line is not searched again with each of its chunks.
    if (!mayEnd) continue;
    // A carriage return at the very end may be the first half of CRLF, so it waits for the next chunk.
    const lines = buffered.split(/\r\n|\r(?!$)|\n/);
    buffered = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) {
          yield { id: position.lastEventId, type: type || 'message', data: data.join('\n') };
        }
        data = [];
        type = '';
        continue;
      }
      const [field, value] = parseField(line);
      if (field === 'data') data.push(value);
      else if (field === 'event') type = value;
      else if (field === 'id' && !value.includes('\0')) position.lastEventId = value;
      else if (field === 'retry' && /^\d{1,9}$/.test(value)) {
        position.retryMs = Math.max(Number(value), MIN_RETRY_MS);
      }
    }
  }
}

function parseField(line: string): [field: string, value: string] {
  const colon = line.indexOf(':');
  if (colon === -1) return [line, ''];
  const value = line.slice(colon + 1);
  return [line.slice(0, colon), value.startsWith(' ') ? value.slice(1) : value];
}
