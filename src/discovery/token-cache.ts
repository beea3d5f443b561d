import { hash } from 'node:crypto';
import type { TokenExchangeConfig, TokenMintConfig } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';

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
    this.#entries.set(key, entry);
    this.#evict();
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

  #evict(): void {
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= MAX_ENTRIES) return;
      this.#entries.delete(oldest);
    }
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
