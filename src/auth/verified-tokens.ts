import type { KeySet } from './key.ts';

/** Bytes of tokens that are remembered; what is kept of each is about as large as the token. */
const MAX_BYTES = 16 * 1024 * 1024;
/** Counted for each entry beside the bytes of its token. */
const ENTRY_BYTES = 512;

interface Entry<T> {
  readonly token: T;
  readonly bytes: number;
  readonly keys: KeySet;
  readonly generation: number;
  readonly expiresAtMs: number | null;
}

/** Tokens that have been verified, by digest: accepting one again costs a look-up. */
export class VerifiedTokens<T extends { readonly expiresAtMs: number | null }> {
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry<T>>();
  #bytes = 0;

  /** The token, unless it has expired or the keys have changed since. */
  get(digest: string, nowMs: number): T | undefined {
    const entry = this.#entries.get(digest);
    if (entry === undefined) return undefined;
    this.#entries.delete(digest);
    const isExpired = entry.expiresAtMs !== null && nowMs >= entry.expiresAtMs;
    if (isExpired || entry.generation !== entry.keys.generation) {
      this.#bytes -= entry.bytes;
      return undefined;
    }
    this.#entries.set(digest, entry);
    return entry.token;
  }

  /** @param generation of the keys before the token was verified with them */
  add(digest: string, token: T, length: number, keys: KeySet, generation: number): void {
    const bytes = length + ENTRY_BYTES;
    const previous = this.#entries.get(digest);
    if (previous !== undefined) this.#bytes -= previous.bytes;
    this.#entries.delete(digest);
    this.#entries.set(digest, { token, bytes, keys, generation, expiresAtMs: token.expiresAtMs });
    this.#bytes += bytes;
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= MAX_BYTES) break;
      this.#entries.delete(oldest);
      this.#bytes -= entry.bytes;
    }
  }
}
