import { hash } from 'node:crypto';
import { authorizationDetails } from '../auth/mint.ts';
import { decodeTokenLifetime } from '../auth/token-lifetime.ts';
import type { TokenExchangeConfig } from '../config/config.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import { compileGrants, grantTemplates } from './grant-template.ts';
import { type IssuedToken, TokenCache } from './token-cache.ts';
import type { TokenPurpose } from './token-mint.ts';
import { requestFieldsOf, type TokenSource } from './token-source.ts';

/** Longest time that a page waits for the authorization server. */
const TIMEOUT_MS = 5_000;
/** Bytes of an answer; a 64 KiB token in JSON fits. */
const MAX_ANSWER_BYTES = 128 * 1024;
/** Longest subject token, in characters. */
const MAX_SUBJECT = 64 * 1024;
/** Questions under way at a time; the pages beyond them go without a cookie. */
const MAX_IN_FLIGHT = 100;
/** After a failure the same is not asked again for this long; nor anything of a server that is away. */
const PAUSE_MS = 10_000;
/** Failures that are remembered. */
const MAX_FAILURES = 10_000;

const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';

export interface TokenExchangePurpose extends TokenPurpose {
  readonly fetch: typeof fetch;
}

/**
 * `token exchange`: asks an authorization server, by token exchange (RFC 8693) when there is a
 * subject token to exchange, else for a token of the gateway's own (RFC 6749 §4.4) with
 * authorization details (RFC 9396). Whatever fails is logged, and the page goes without a cookie.
 *
 * @throws HubgateError for a payload that is no JSON
 */
export function createTokenExchange(
  config: TokenExchangeConfig,
  purpose: TokenExchangePurpose,
): TokenSource {
  const { audience: audienceFor, detailType, expand, clock } = purpose;
  const { subjectToken } = config;
  const fillGrants = compileGrants(config);
  const server = new AuthorizationServer(config, purpose);
  const cache = new TokenCache(clock);
  const templates = grantTemplates(config);
  return {
    requestFields: requestFieldsOf(
      subjectToken === null ? templates : [...templates, subjectToken],
    ),
    async tokenFor(exchange, response) {
      const subject = subjectToken === null ? null : expand(subjectToken, exchange, response);
      if (subject === '' || (subject !== null && subject.length > MAX_SUBJECT)) return null;
      const grants = fillGrants((template, encode) => expand(template, exchange, response, encode));
      if (grants === null) return null;
      const details = authorizationDetails(grants, detailType);
      const form = new URLSearchParams({ resource: audienceFor(exchange) });
      if (details.length > 0) form.set('authorization_details', JSON.stringify(details));
      if (subject === null) {
        form.set('grant_type', 'client_credentials');
      } else {
        form.set('grant_type', TOKEN_EXCHANGE);
        form.set('subject_token', subject);
        form.set('subject_token_type', ACCESS_TOKEN);
        form.set('requested_token_type', ACCESS_TOKEN);
      }
      // The form holds a secret of the user, so only its digest stays in memory.
      const key = hash('sha256', form.toString(), 'base64url');
      try {
        return (await cache.get(key, () => server.ask(key, form))).token;
      } catch (error) {
        const quiet = error instanceof HubgateError && error.code === 'exchange-paused';
        exchange.log[quiet ? 'debug' : 'warn']('No token was got for the page', {
          endpoint: config.endpoint,
          reason: messageOf(error),
        });
        return null;
      }
    },
  };
}

/** The token endpoint (RFC 6749 §3.2), spared while it fails. */
class AuthorizationServer {
  readonly #config: TokenExchangeConfig;
  readonly #purpose: TokenExchangePurpose;
  /** Until when what failed is not asked again; the endpoint itself by the key ''. */
  readonly #pausedUntil = new Map<string, number>();
  #inFlight = 0;

  constructor(config: TokenExchangeConfig, purpose: TokenExchangePurpose) {
    this.#config = config;
    this.#purpose = purpose;
  }

  /** @throws HubgateError `exchange-paused`, `exchange-failed` */
  async ask(key: string, form: URLSearchParams): Promise<IssuedToken> {
    if (this.#isPaused('') || this.#isPaused(key)) {
      throw new HubgateError('exchange-paused', 'it failed a moment ago');
    }
    if (this.#inFlight >= MAX_IN_FLIGHT) {
      throw new HubgateError('exchange-failed', `${MAX_IN_FLIGHT} questions are under way`);
    }
    this.#inFlight += 1;
    const timeout = new AbortController();
    const cancel = this.#purpose.clock.after(TIMEOUT_MS, () => timeout.abort());
    try {
      return await this.#post(key, form, timeout.signal);
    } catch (error) {
      if (error instanceof HubgateError) throw error;
      this.#pause('');
      const reason = timeout.signal.aborted
        ? `no answer within ${TIMEOUT_MS} ms`
        : `it cannot be reached: ${reasonOf(error)}`;
      throw new HubgateError('exchange-failed', reason, { cause: error });
    } finally {
      cancel();
      this.#inFlight -= 1;
    }
  }

  async #post(key: string, form: URLSearchParams, signal: AbortSignal): Promise<IssuedToken> {
    const { endpoint, clientId, clientSecret } = this.#config;
    const askedMs = this.#purpose.clock.now();
    const response = await this.#purpose.fetch(endpoint, {
      method: 'POST',
      headers: {
        accept: 'application/json',
        authorization: basic(clientId, clientSecret.reveal()),
      },
      body: form,
      // It would carry the client's secret, or the user's token, to somebody else.
      redirect: 'error',
      signal,
    });
    const answer = parseObject(await readBounded(response));
    if (!response.ok) {
      this.#pause(response.status >= 500 ? '' : key);
      const code = typeof answer['error'] === 'string' ? answer['error'] : 'no error code';
      throw new HubgateError('exchange-failed', `it answered ${response.status}: ${show(code)}`);
    }
    const { access_token: token, expires_in: lifetime } = answer;
    const decoded = typeof token === 'string' ? decodeTokenLifetime(token) : null;
    if (typeof token !== 'string' || decoded === null) {
      this.#pause(key);
      throw new HubgateError('exchange-failed', 'it gave no access token that is a JWT');
    }
    const stated = typeof lifetime === 'number' ? askedMs + lifetime * 1000 : null;
    return { token, expiresAtMs: decoded.expiresAtMs ?? stated };
  }

  #isPaused(key: string): boolean {
    const until = this.#pausedUntil.get(key);
    return until !== undefined && this.#purpose.clock.monotonic() < until;
  }

  #pause(key: string): void {
    this.#pausedUntil.delete(key);
    this.#pausedUntil.set(key, this.#purpose.clock.monotonic() + PAUSE_MS);
    for (const oldest of this.#pausedUntil.keys()) {
      if (this.#pausedUntil.size <= MAX_FAILURES) return;
      this.#pausedUntil.delete(oldest);
    }
  }
}

/** RFC 6749 §2.3.1: both are form-encoded before they are joined. */
function basic(id: string, secret: string): string {
  const encode = (text: string): string => new URLSearchParams({ a: text }).toString().slice(2);
  return `Basic ${Buffer.from(`${encode(id)}:${encode(secret)}`).toString('base64')}`;
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw new Error(`more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The members of a JSON object; none for anything else. */
function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    // Whoever answers something else has given no token either.
    return {};
  }
}

/** What another server wrote, as a log may show it. */
function show(text: string): string {
  return JSON.stringify(text.slice(0, 100));
}

/** fetch says only "fetch failed"; the cause says why. */
function reasonOf(error: unknown): string {
  return error instanceof Error && error.cause !== undefined
    ? messageOf(error.cause)
    : messageOf(error);
}
