import { hash } from 'node:crypto';
import { signingKey } from '../auth/key.ts';
import { issueToken } from '../auth/mint.ts';
import type { TokenMintConfig, TokenExchangeConfig } from '../config/config.ts';
import type { Exchange } from '../http/exchange.ts';
import { setNewest } from '../kernel/collections.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import {
  compileGrants,
  grantTemplates,
  dependenceOf,
  type ExpandIdentity,
  FAILED,
  GUEST,
  responseFieldsIn,
  type TokenSource,
  UNKNOWN,
} from './token-source.ts';

/** What a token source needs to know about the hub. */
export interface TokenPurpose {
  /** `aud` for the URL with which this client contacts the hub. */
  readonly audience: (exchange: Exchange) => string;
  /** `type` of the hub's authorization details. */
  readonly detailType: string;
  readonly expandIdentity: ExpandIdentity;
  readonly clock: Clock;
  /** Only for this source, although it may be older than the source. */
  readonly cache: TokenCache;
}

/**
 * `token mint`: the gateway signs tokens in the app's name.
 *
 * @throws HubgateError for a key that cannot sign, a payload that is not JSON
 */
export function createTokenMint(config: TokenMintConfig, purpose: TokenPurpose): TokenSource {
  const { audience: audienceFor, detailType, expandIdentity, clock, cache } = purpose;
  const key = signingKey(config.key, config.algorithm);
  const fillGrants = compileGrants(config);
  const templates = grantTemplates(config);
  return {
    dependence: dependenceOf(templates),
    responseFields: config.keepFields ? [] : responseFieldsIn(templates),
    async tokenFor(exchange, response) {
      const grants = fillGrants((template, encode) =>
        expandIdentity(template, exchange, response, encode),
      );
      if (grants === 'unknown') return UNKNOWN;
      if (grants === 'withheld') return GUEST;
      const audience = audienceFor(exchange);
      const issue = async () => {
        const issuedAtMs = clock.now();
        const expiresAtMs = issuedAtMs + config.ttlMs;
        const { token } = await issueToken({
          key,
          keyId: config.keyId,
          issuer: config.issuer,
          audience,
          issuedAtMs,
          expiresAtMs,
          detailType,
          ...grants,
        });
        return { token, expiresAtMs };
      };
      try {
        const { token } = await cache.get(JSON.stringify([audience, grants]), issue);
        return { kind: 'token', token };
      } catch (error) {
        exchange.log.error('A token could not be created', { error: messageOf(error) });
        return FAILED;
      }
    },
  };
}

/** Tokens that are remembered. */
const MAX_ENTRIES = 10_000;

export interface IssuedToken {
  readonly token: string;
  /** null if the token has no expiry; it is then used once. */
  readonly expiresAtMs: number | null;
}

interface Entry {
  readonly issued: Promise<IssuedToken>;
  reuseUntilMs: number;
}

/**
 * Tokens by their purpose. A token is reused until half of its life has passed. So it costs one signature, or
 * one request to another server, per half-life, and every recipient has at least that long to use it.
 * Requests that arrive while it is being created get the same token.
 */
export class TokenCache {
  readonly #clock: Clock;
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @throws the errors of `issue`, which are not remembered */
  get(key: string, issue: () => Promise<IssuedToken>): Promise<IssuedToken> {
    const present = this.#entries.get(key);
    this.#entries.delete(key);
    if (present !== undefined && this.#clock.now() < present.reuseUntilMs) {
      this.#entries.set(key, present);
      return present.issued;
    }
    const entry: Entry = { issued: issue(), reuseUntilMs: Number.POSITIVE_INFINITY };
    setNewest(this.#entries, key, entry, MAX_ENTRIES);
    entry.issued.then(
      ({ expiresAtMs }) => {
        const now = this.#clock.now();
        entry.reuseUntilMs = expiresAtMs === null ? now : now + (expiresAtMs - now) / 2;
      },
      () => {
        if (this.#entries.get(key) === entry) this.#entries.delete(key);
      },
    );
    return entry.issued;
  }
}

/**
 * The name of a cache that outlives a configuration. Everything that can change the result of a source is in
 * it, or in the keys of the entries: audience, grants and subject token. It is a digest, because it contains
 * a secret.
 *
 * @param detailType `type` of the hub's authorization details
 */
export function tokenCacheName(
  source: TokenMintConfig | TokenExchangeConfig,
  detailType: string,
): string {
  const secret = source.kind === 'mint' ? source.key : source.clientSecret;
  const rest = Object.entries(source).filter(([, value]) => value !== secret);
  const all = [detailType, rest, secret.isText, secret.reveal()];
  return hash('sha256', JSON.stringify(all), 'base64url');
}
