import { randomUUID } from 'node:crypto';
import { signingKey } from '../auth/key.ts';
import { mintToken } from '../auth/mint.ts';
import type { TokenMintConfig } from '../config/config.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { compileGrants, grantTemplates } from './grant-template.ts';
import type { TokenCache } from './token-cache.ts';
import {
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
        const { token } = await mintToken({
          key,
          keyId: config.keyId,
          issuer: config.issuer,
          audience,
          subject: null,
          clientId: null,
          newId: () => `urn:uuid:${randomUUID()}`,
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
