import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type Agent, request } from 'node:https';
import { parseJson, readWithin, requireUrl } from '../../kernel/parse.ts';
import type { Clock } from '../../kernel/clock.ts';
import { messageOf } from '../../kernel/error.ts';
import { AcmeError } from './acme-error.ts';

/** A response in the form that the ACME library reads. */
export interface DirectoryAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Parsed JSON, or text. */
  readonly data: unknown;
}

export interface RequestOptions {
  /** A signed message, sent as JSON (RFC 8555 §6.2). */
  readonly data?: unknown;
}

export interface DirectoryConnection {
  /** Has the roots that the directory is verified with. */
  readonly agent: Agent;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Longest wait for one response of a directory. */
const REQUEST_TIMEOUT_MS = 30_000;
/** Largest response, in bytes; certificate chains have some ten thousand bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024;
/** RFC 8555 §6.5: the library reacts to it with another attempt and a new nonce. */
const BAD_NONCE = 'badNonce';

/**
 * Sends one request to an ACME directory.
 *
 * @throws AcmeError `acme-unreachable`, `acme-timeout`, or `acme-refused` for error statuses
 */
export async function requestDirectory(
  url: string,
  method: string,
  { data }: RequestOptions,
  { agent, clock, signal }: DirectoryConnection,
): Promise<DirectoryAnswer> {
  const timeout = new AbortController();
  const cancel = clock.after(REQUEST_TIMEOUT_MS, () => timeout.abort());
  try {
    const body = data === undefined ? undefined : JSON.stringify(data);
    const response = await send(url, method.toUpperCase(), body, {
      agent,
      signal: AbortSignal.any([signal, timeout.signal]),
    });
    return accepted(response, parseBody(await readBody(response), response.headers));
  } catch (cause) {
    if (cause instanceof AcmeError) throw cause;
    // The reason of the AbortSignal says why the request was aborted; the error of the request does not.
    signal.throwIfAborted();
    const { host } = requireUrl(url);
    if (timeout.signal.aborted) throw new AcmeError('acme-timeout', `${host} does not answer`);
    const message = `${host} cannot be reached: ${messageOf(cause)}`;
    throw new AcmeError('acme-unreachable', message, { cause });
  } finally {
    cancel();
  }
}

function send(
  url: string,
  method: string,
  body: string | undefined,
  options: { readonly agent: Agent; readonly signal: AbortSignal },
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const content =
      body === undefined
        ? {}
        : {
            'content-type': 'application/jose+json',
            'content-length': Buffer.byteLength(body),
          };
    const headers = { 'user-agent': 'hubgate', ...content };
    const sent = request(url, { method, headers, ...options }, resolve);
    sent.once('error', reject);
    sent.end(body);
  });
}

async function readBody(response: IncomingMessage): Promise<string> {
  const bytes = await readWithin(response, MAX_ANSWER_BYTES);
  if (bytes === null) throw new AcmeError('acme-refused', 'A response is too long');
  return bytes.toString('utf8');
}

function parseBody(text: string, headers: IncomingHttpHeaders): unknown {
  if (!/^application\/(?:problem\+)?json\b/.test(headers['content-type'] ?? '')) return text;
  // Invalid JSON stays text. Code that needs a member of it reports that the member is missing.
  return parseJson(text) ?? text;
}

function accepted({ statusCode = 0, headers }: IncomingMessage, data: unknown): DirectoryAnswer {
  const answer = { status: statusCode, headers, data };
  if (statusCode < 400) return answer;
  const { type, detail } = problemOf(data);
  if (type === BAD_NONCE) return answer;
  throw new AcmeError('acme-refused', detail ?? `The authority answered ${statusCode}`, {
    problem: type,
    retryAfterMs: retryAfter(headers['retry-after']),
  });
}

/** Reads a problem document (RFC 8555 §6.7), from a response or from a member of one. */
export function problemOf(data: unknown): {
  readonly type: string | null;
  readonly detail: string | null;
} {
  if (typeof data !== 'object' || data === null) return { type: null, detail: null };
  const type = 'type' in data && typeof data.type === 'string' ? data.type : null;
  const detail = 'detail' in data && typeof data.detail === 'string' ? data.detail : null;
  return { type: type?.replace(/^urn:ietf:params:acme:error:/, '') ?? null, detail };
}

/**
 * The milliseconds of a `Retry-After` in seconds (RFC 9110 §10.2.3). For dates, the gateway's own back-off
 * applies.
 */
function retryAfter(field: string | undefined): number | null {
  return field !== undefined && /^\d{1,7}$/.test(field) ? Number(field) * 1000 : null;
}
