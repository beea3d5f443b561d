import type { IncomingMessage } from 'node:http';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
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
/** Longest wait of a timer. */
const MAX_RETRY_MS = 2 ** 31 - 1;
/** Most characters that are kept of an event that is not complete. */
const MAX_EVENT_LENGTH = 64 * 1024 * 1024;

/**
 * Parses a `text/event-stream` (WHATWG HTML §9.2.6), chunk by chunk. The position moves with each event that is
 * yielded. An id without data, which no hub sends, does not move it.
 */
export async function* parseEventStream(
  chunks: AsyncIterable<Buffer>,
  position: StreamPosition,
): AsyncGenerator<ReceivedEvent> {
  const decoder = new TextDecoder('utf-8');
  const events: EventSourceMessage[] = [];
  const parser = createParser({
    maxBufferSize: MAX_EVENT_LENGTH,
    onEvent: (event) => void events.push(event),
    onRetry: (ms) => {
      position.retryMs = Math.min(Math.max(ms, MIN_RETRY_MS), MAX_RETRY_MS);
    },
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') throw error;
    },
  });
  for await (const chunk of chunks) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    for (const { id = position.lastEventId, event: type = 'message', data } of events.splice(0)) {
      position.lastEventId = id;
      yield { id, type, data };
    }
  }
}
