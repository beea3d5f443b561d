import { parseJson, parseUrl, readBounded } from '../../../../kernel/parse.ts';
import { codeOf, messageOf } from '../../../../kernel/error.ts';
import { withoutValues } from '../../../../kernel/secret.ts';
import { AcmeError } from '../../acme-error.ts';

/** Time for one request. */
const REQUEST_MS = 15_000;
/** Bytes of a response that are read; a list of zones or records is far shorter. */
const MAX_RESPONSE = 1_048_576;
/** Characters of a response that an error shows. */
const MAX_SHOWN = 200;

interface ApiRequest {
  readonly method: string;
  readonly url: URL;
  /** As it is sent; empty without a body. */
  readonly body: string;
}

type Fields = Readonly<Record<string, string>>;

/** The fields that prove who asks; asked again for each request, because some sign it. */
export type Authorize = (request: ApiRequest) => Promise<Fields> | Fields;

interface ApiOptions {
  /** The name of the service in the configuration, for errors. */
  readonly service: string;
  /** Paths are appended to it. */
  readonly baseUrl: string;
  readonly authorize: Authorize;
  /** What must not appear in an error. */
  readonly secrets: readonly string[];
  readonly signal: AbortSignal;
}

interface SendOptions {
  /** Sent as JSON; a text is sent as it is. */
  readonly body?: unknown;
  readonly headers?: Fields;
  /** Status codes besides 2xx that are an answer and not an error. */
  readonly accept?: readonly number[];
}

export interface ApiResponse {
  readonly status: number;
  readonly text: string;
  /** The parsed text; undefined if it is not JSON. */
  readonly json: unknown;
}

/** The HTTP API of a DNS service. Redirects are refused, because credentials are for its address only. */
export class DnsApi {
  readonly #options: ApiOptions;

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  /** @throws AcmeError `acme-dns-failed` if there is no answer or an unexpected one; the reason of the signal */
  async send(method: string, path: string, options: SendOptions = {}): Promise<ApiResponse> {
    const { baseUrl, authorize } = this.#options;
    const url = parseUrl(`${baseUrl.replace(/\/+$/, '')}${path}`);
    if (url === null) throw this.error('has an invalid address');
    const { body = '' } = options;
    const sent = typeof body === 'string' ? body : JSON.stringify(body);
    const headers = new Headers(await authorize({ method, url, body: sent }));
    if (sent !== '' && typeof body !== 'string') headers.set('content-type', 'application/json');
    for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
    const response = await this.#fetch(url, { method, headers, ...(sent && { body: sent }) });
    const isExpected = response.status >= 200 && response.status < 300;
    if (isExpected || options.accept?.includes(response.status) === true) return response;
    throw this.error(`answers ${String(response.status)}: ${this.#shown(response.text)}`);
  }

  /** The answer as JSON; null for 404. */
  async find(path: string): Promise<unknown> {
    const { status, json } = await this.send('GET', path, { accept: [404] });
    return status === 404 ? null : json;
  }

  /** The name of a zone, which the API uses for it too; null if it answers with 404. */
  async zoneAt(path: string, name: string): Promise<string | null> {
    return (await this.find(path)) === null ? null : name;
  }

  /** The access token that the API gives for a form (RFC 6749 §5.1). */
  async accessToken(path: string, form: Fields): Promise<string> {
    const { json } = await this.send('POST', path, {
      body: String(new URLSearchParams(form)),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
    return textOf(memberOf(json, 'access_token')) ?? '';
  }

  error(message: string, cause?: unknown): AcmeError {
    return apiError(this.#options.service, message, cause);
  }

  async #fetch(url: URL, init: RequestInit): Promise<ApiResponse> {
    const { signal } = this.#options;
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)]);
    try {
      const response = await fetch(url, { ...init, redirect: 'error', signal: deadline });
      const text = (await readBounded(response.body, MAX_RESPONSE)).toString('utf8');
      return { status: response.status, text, json: parseJson(text) };
    } catch (cause) {
      signal.throwIfAborted();
      const { cause: inner = cause } = cause instanceof Error ? cause : {};
      const why = deadline.aborted ? 'no answer in time' : (codeOf(inner) ?? messageOf(inner));
      throw this.error(`cannot be used: ${why}`, cause);
    }
  }

  #shown(text: string): string {
    const plain = text.replace(/\s+/g, ' ').slice(0, 10 * MAX_SHOWN);
    return withoutValues(plain, this.#options.secrets).slice(0, MAX_SHOWN);
  }
}

/** The address is not shown, because it may contain names of accounts. */
export function apiError(service: string, message: string, cause?: unknown): AcmeError {
  return new AcmeError('acme-dns-failed', `The API of ${service} ${message}`, { cause });
}

/** A member of a JSON object, or an item of a list; undefined where there is none. */
export function memberOf(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>(
    (at, key) =>
      typeof at === 'object' && at !== null && Object.hasOwn(at, key)
        ? (at as Readonly<Record<string | number, unknown>>)[key]
        : undefined,
    value,
  );
}

/** The items of a JSON list; none for anything else. */
export function itemsOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A text or number of JSON as text; undefined for anything else. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}
