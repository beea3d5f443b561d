import { parseJsonObject, readBounded } from '../kernel/parse.ts';
import { addNewest, setNewest } from '../kernel/collections.ts';
import { hash } from 'node:crypto';
import { authorizationDetails } from '../auth/mint.ts';
import { decodeTokenLifetime } from '../auth/unverified-token.ts';
import type { TokenExchangeConfig } from '../config/config.ts';
import type { Expand } from '../http/exchange.ts';
import { fairShareNetwork } from '../http/rate-limits.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { withoutValues } from '../kernel/secret.ts';
import { FairQueue } from '../kernel/semaphore.ts';
import {
  compileGrants,
  grantTemplates,
  dependenceOf,
  FAILED,
  GUEST,
  responseFieldsIn,
  type TokenSource,
  UNKNOWN,
} from './token-source.ts';
import type { IssuedToken, TokenPurpose } from './token-mint.ts';

/** Longest time that a page waits for the authorization server. */
const TIMEOUT_MS = 5_000;
/** Largest response in bytes; a 64 KiB token in JSON fits. */
const MAX_ANSWER_BYTES = 128 * 1024;
/** Longest subject token, in characters. */
const MAX_SUBJECT = 64 * 1024;
/** Requests in progress at the same time. */
const MAX_IN_FLIGHT = 100;
/** Of these, the most for subject tokens that have not been exchanged before, and the most of one network. */
const MAX_UNKNOWN_IN_FLIGHT = 50;
const MAX_OF_ONE_NETWORK = 10;
/** Requests that wait for their turn. Further pages are sent without a cookie. */
const MAX_WAITING = 1_000;
/** Exchanged subject tokens, as digests; the oldest is forgotten first. */
const MAX_KNOWN = 10_000;
/**
 * After a failure, the same request is not repeated for this long; nor is any request sent to a failing
 * server.
 */
const PAUSE_MS = 10_000;
/**
 * Different requests in a row to which the server does not respond correctly. Then it counts as failing for
 * all clients of the same group. A single invalid subject token must not affect the others.
 */
const FAILURES_OF_SERVER = 3;
/** Failures that are remembered. */
const MAX_FAILURES = 10_000;
/** Networks whose results are remembered. */
const MAX_NETWORKS = 10_000;

/** Nothing listens at the endpoint, or its name leads nowhere. */
const UNREACHABLE = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH']);

const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';

export interface TokenExchangePurpose extends TokenPurpose {
  readonly fetch: typeof fetch;
  /**
   * Fills in the subject token, which may come from the client, because the authorization server verifies it.
   */
  readonly expand: Expand;
}

/**
 * `token exchange`: asks an authorization server for a token. If there is a subject token, it uses token
 * exchange (RFC 8693), otherwise it requests a token of the gateway's own (RFC 6749 §4.4) with authorization
 * details (RFC 9396). Failures are logged, and the page is sent without a cookie.
 *
 * @throws HubgateError for a payload that is not JSON
 */
export function createTokenExchange(
  config: TokenExchangeConfig,
  purpose: TokenExchangePurpose,
): TokenSource {
  const { audience: audienceFor, detailType, expand, expandIdentity, cache } = purpose;
  const { subjectToken } = config;
  const fillGrants = compileGrants(config);
  const server = new AuthorizationServer(config, purpose);
  const grants = grantTemplates(config);
  const templates = subjectToken === null ? grants : [...grants, subjectToken];
  return {
    dependence: dependenceOf(grants, subjectToken),
    responseFields: config.keepFields ? [] : responseFieldsIn(templates),
    async tokenFor(exchange, response) {
      const subject =
        subjectToken === null
          ? null
          : subjectOf(subjectToken, expand(subjectToken, exchange, response));
      if (subject === '' || (subject !== null && subject.length > MAX_SUBJECT)) return GUEST;
      const grants = fillGrants((template, encode) =>
        expandIdentity(template, exchange, response, encode),
      );
      if (grants === 'unknown') return UNKNOWN;
      if (grants === 'withheld') return GUEST;
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
      // The form contains a secret of the user, so only its digest stays in memory.
      const key = hash('sha256', form.toString(), 'base64url');
      const question = {
        key,
        form,
        subject: subject === null ? null : hash('sha256', subject, 'base64url'),
        network: fairShareNetwork(exchange.clientAddress),
      };
      const issue = async (): Promise<IssuedToken> => {
        const issued = await server.ask(question);
        const types = decodeTokenLifetime(issued.token)?.detailTypes;
        if (details.length > 0 && types?.includes(detailType) !== true) {
          exchange.log.warn(
            'The authorization server issued a token without the authorization_details of the request',
            { endpoint: config.endpoint },
          );
        }
        return issued;
      };
      try {
        const { token } = await cache.get(key, issue);
        return { kind: 'token', token };
      } catch (error) {
        const quiet = error instanceof HubgateError && error.code === 'exchange-paused';
        exchange.log[quiet ? 'debug' : 'warn']('The token exchange for a page failed', {
          endpoint: config.endpoint,
          reason: messageOf(error),
        });
        return FAILED;
      }
    },
  };
}

const AUTHORIZATION = /^\{(?:http\.request\.)?header\.authorization\}$/i;

/** The token in the value of a template: in `Authorization`, the one of the scheme Bearer; empty if there is none. */
function subjectOf(template: string, value: string): string {
  if (!AUTHORIZATION.test(template)) return value;
  const token = value.replace(/^Bearer +/i, '');
  return /\s/.test(token) ? '' : token;
}

interface Question {
  readonly key: string;
  readonly form: URLSearchParams;
  /** Digest of the subject token; null for a token of the gateway's own. */
  readonly subject: string | null;
  /** Network of the client that sends the subject token. */
  readonly network: string;
}

/**
 * A group of clients. All clients whose subject tokens have been exchanged before are one group; the others
 * are grouped by network. Any client can send a cookie that is never valid, so its failures affect only its
 * own group.
 */
class ClientGroup {
  /** Requests that have failed because of the server since its last correct response. */
  readonly failing = new Set<string>();
  /** The end of the pause for this group, by the monotonic clock. */
  pausedUntil = 0;
}

/** The token endpoint (RFC 6749 §3.2), which gets fewer requests while it fails. */
class AuthorizationServer {
  readonly #config: TokenExchangeConfig;
  readonly #purpose: TokenExchangePurpose;
  readonly #turns = new FairQueue({
    places: MAX_IN_FLIGHT,
    unknownPlaces: MAX_UNKNOWN_IN_FLIGHT,
    placesPerUnknown: MAX_OF_ONE_NETWORK,
    maxWaiting: MAX_WAITING,
  });
  /** The end of the pause for each failed request. */
  readonly #pausedUntil = new Map<string, number>();
  readonly #knownSubjects = new Set<string>();
  readonly #known = new ClientGroup();
  /** The time until which the server counts as unreachable. */
  #unreachableUntil = 0;
  readonly #unknown = new Map<string, ClientGroup>();

  constructor(config: TokenExchangeConfig, purpose: TokenExchangePurpose) {
    this.#config = config;
    this.#purpose = purpose;
  }

  /** @throws HubgateError `exchange-paused`, `exchange-failed` */
  async ask(question: Question): Promise<IssuedToken> {
    const { key, subject, network } = question;
    const isKnown = subject === null || this.#knownSubjects.has(subject);
    const group = isKnown ? this.#known : this.#groupOf(network);
    const now = this.#purpose.clock.monotonic();
    const until = Math.max(this.#unreachableUntil, group.pausedUntil);
    if (now < until || now < (this.#pausedUntil.get(key) ?? 0)) {
      throw new HubgateError('exchange-paused', 'it failed less than 10 seconds ago');
    }
    const timeout = new AbortController();
    const cancel = this.#purpose.clock.after(TIMEOUT_MS, () => timeout.abort());
    let giveBack: (() => void) | null = null;
    try {
      giveBack = await this.#turns.take(network, isKnown, timeout.signal);
      const issued = await this.#post(question, group, timeout.signal);
      if (subject !== null) addNewest(this.#knownSubjects, subject, MAX_KNOWN);
      return issued;
    } catch (error) {
      if (giveBack === null) throw refused('too many exchanges are in progress');
      if (error instanceof HubgateError) throw error;
      // If the server is unreachable, that is true for all requests.
      if (UNREACHABLE.has(codeOf(causeOf(error)) ?? '')) {
        this.#unreachableUntil = this.#purpose.clock.monotonic() + PAUSE_MS;
      }
      this.#fail(key, group);
      const reason = timeout.signal.aborted
        ? `no answer within ${TIMEOUT_MS} ms`
        : `no usable answer: ${messageOf(causeOf(error))}`;
      throw new HubgateError('exchange-failed', reason, { cause: error });
    } finally {
      cancel();
      giveBack?.();
    }
  }

  async #post(
    { key, form }: Question,
    group: ClientGroup,
    signal: AbortSignal,
  ): Promise<IssuedToken> {
    const { endpoint, clientId, clientSecret } = this.#config;
    const askedMs = this.#purpose.clock.now();
    const secret = clientSecret.reveal();
    const credentials = basicCredentials(clientId, secret);
    const response = await this.#purpose.fetch(endpoint, {
      method: 'POST',
      headers: {
        accept: 'application/json',
        authorization: `Basic ${credentials}`,
      },
      body: form,
      // A redirect would pass the client's secret, or the user's token, to another server.
      redirect: 'error',
      signal,
    });
    const text = (await readBounded(response.body, MAX_ANSWER_BYTES)).toString('utf8');
    if (response.status >= 500) {
      this.#fail(key, group);
      throw refused(`it answered ${response.status}`);
    }
    group.failing.clear();
    const answer = parseJsonObject(text);
    if (!response.ok) {
      this.#pause(key);
      // A server may repeat in its answer what it was sent.
      const sent = [form.get('subject_token') ?? '', credentials, secret];
      const texts = ['error', 'error_description'].flatMap((name) => {
        const text = answer?.[name];
        return typeof text === 'string' ? show(withoutValues(text, sent)) : [];
      });
      throw refused(`it answered ${response.status}: ${texts.join(', ') || 'no error code'}`);
    }
    const { access_token: token, expires_in: lifetime } = answer ?? {};
    const decoded = typeof token === 'string' ? decodeTokenLifetime(token) : null;
    if (typeof token !== 'string' || decoded === null) {
      this.#pause(key);
      if (answer === null) throw refused('its answer is not a JSON object');
      throw refused(
        typeof token === 'string'
          ? 'its access token is not a JWT, which the hub needs'
          : 'its answer has no access_token',
      );
    }
    const stated = typeof lifetime === 'number' ? askedMs + lifetime * 1000 : null;
    return { token, expiresAtMs: decoded.expiresAtMs ?? stated };
  }

  /** The same request is not repeated for a while; after several failures in a row, no request is sent. */
  #fail(key: string, group: ClientGroup): void {
    this.#pause(key);
    group.failing.add(key);
    if (group.failing.size < FAILURES_OF_SERVER) return;
    group.failing.clear();
    group.pausedUntil = this.#purpose.clock.monotonic() + PAUSE_MS;
  }

  #groupOf(network: string): ClientGroup {
    const group = this.#unknown.get(network) ?? new ClientGroup();
    setNewest(this.#unknown, network, group, MAX_NETWORKS);
    return group;
  }

  #pause(key: string): void {
    const untilMs = this.#purpose.clock.monotonic() + PAUSE_MS;
    setNewest(this.#pausedUntil, key, untilMs, MAX_FAILURES);
  }
}

/** RFC 6749 §2.3.1: both are form-encoded before they are joined. */
function basicCredentials(id: string, secret: string): string {
  const encode = (text: string): string => new URLSearchParams({ a: text }).toString().slice(2);
  return Buffer.from(`${encode(id)}:${encode(secret)}`).toString('base64');
}

function refused(reason: string): HubgateError {
  return new HubgateError('exchange-failed', reason);
}

/** Text from another server, in a form that is safe in a log. */
function show(text: string): string {
  return JSON.stringify(text.slice(0, 200));
}

/** fetch only reports "fetch failed"; the cause has the reason. */
function causeOf(error: unknown): unknown {
  return error instanceof Error && error.cause !== undefined ? error.cause : error;
}
