import { addNewest } from '../kernel/collections.ts';
import { readBounded, requireUrl } from '../kernel/parse.ts';
import { readFile } from 'node:fs/promises';
import { createPublicKey, hash, type KeyObject } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import type { JwksKeySource } from '../config/config.ts';
import { type Clock, wait } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf, ignore } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { fitsJwk, JWKS_ALGORITHMS, type KeyHint, type KeySet } from './key.ts';
import { isJsonObject, type JsonObject, parseStrictJson } from './unverified-token.ts';
import { withoutSecretParts } from '../kernel/secret.ts';

/** Largest document, in bytes. */
const MAX_BYTES = 1024 * 1024;
/** Keys for signatures. Further ones are ignored, because a token without `kid` tries all of them. */
const MAX_KEYS = 100;
/** Members of a set that are looked at. */
const MAX_MEMBERS = 1_000;
/** Shortest time between two fetches for a `kid` that was never seen before, and after a failure, in milliseconds. */
const NEW_KID_INTERVAL_MS = 5_000;
/** Tokens with such a `kid` that wait for the next fetch. Further ones are told to try again. */
const MAX_WAITING = 10_000;
/** Remembered values of `kid` that were not found; the oldest is forgotten first. */
const MAX_IN_VAIN = 1_000;
/** How often a file is read again, in milliseconds. */
const FILE_REFRESH_MS = 10_000;

export interface JwksOptions {
  /** `https:`, `http:` or `file:` URL. */
  readonly uri: string;
  /** How often the set is fetched in the background, in milliseconds. */
  readonly refreshMs: number;
  /** Shortest time between two fetches for a `kid` that was not found before, in milliseconds. */
  readonly cooldownMs: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/** The keys to try; null if too many tokens wait for the set, so that nobody knows yet. */
type Found = readonly KeyObject[] | null;

interface PublicJwk {
  readonly kid: string | null;
  readonly algorithm: string | null;
  readonly type: { readonly kty: string; readonly crv?: string };
  readonly key: KeyObject;
}

/**
 * Opens the JWK Set at a URL (RFC 7517). A remote set is fetched in the background, so that the gateway can
 * start while an identity provider is down. A file is read now, and again every {@link FILE_REFRESH_MS}.
 *
 * @param known a set of the same URL that is open with other options; its keys are used until a fetch succeeds
 * @throws HubgateError `invalid-jwks` for a file that cannot be read or contains no set
 */
export async function openJwks(options: JwksOptions, known: Jwks | null = null): Promise<Jwks> {
  const jwks = new Jwks(options, known);
  await jwks.open();
  return jwks;
}

/** The keys of one issuer and role in a set that others may share. */
export function jwksKeySet(jwks: Jwks, source: Pick<JwksKeySource, 'uri' | 'algorithms'>): KeySet {
  for (const name of source.algorithms) {
    if (JWKS_ALGORITHMS.includes(name)) continue;
    throw new HubgateError(
      'unsupported-algorithm',
      `a JWK Set cannot verify "${name.slice(0, 40)}"; use some of ${JWKS_ALGORITHMS.join(', ')}`,
    );
  }
  const algorithms = source.algorithms.length === 0 ? JWKS_ALGORITHMS : source.algorithms;
  return {
    identity: hash('sha256', JSON.stringify(['jwks', source.uri, algorithms])),
    algorithms,
    get generation() {
      return jwks.generation;
    },
    get fault() {
      return jwks.fault;
    },
    find: (hint) => jwks.find(hint),
  };
}

/** A JWK Set that follows its source. The code that opens it must close it. */
export class Jwks {
  readonly #options: JwksOptions;
  readonly #closing = new AbortController();
  #keys: readonly PublicJwk[] | null = null;
  #digest = '';
  #generation = 0;
  /** The fetch in progress, shared by all tokens that wait. */
  #fetching: Promise<void> | null = null;
  /** The wait for the next fetch for a `kid` that was never seen before, shared by all tokens that wait. */
  #nextForNew: Promise<void> | null = null;
  #waiting = 0;
  #lastForNew = Number.NEGATIVE_INFINITY;
  #lastForOthers = Number.NEGATIVE_INFINITY;
  /** The values of `kid` in tokens that were not in the set when it was fetched for them. */
  readonly #inVain = new Set<string>();
  #stopRefresh: (() => void) | null = null;
  #fault: string | null = null;

  constructor(options: JwksOptions, known: Jwks | null) {
    this.#options = options;
    if (known === null) return;
    this.#keys = known.#keys;
    this.#digest = known.#digest;
  }

  get uri(): string {
    return this.#options.uri;
  }

  /** Increases whenever the keys change. */
  get generation(): number {
    return this.#generation;
  }

  /** Why the last fetch has failed; null if it has not. */
  get fault(): string | null {
    return this.#fault;
  }

  /** @throws HubgateError `invalid-jwks`, for a file only */
  async open(): Promise<void> {
    if (this.#isFile) await this.reopen();
    else void this.#refresh();
    this.#scheduleRefresh();
  }

  /**
   * Reads a file again when a new configuration names it.
   *
   * @throws HubgateError `invalid-jwks`
   */
  async reopen(): Promise<void> {
    if (this.#isFile) this.#accept(await readJwksFile(this.#options.uri));
  }

  /**
   * The keys to try for a token. An unknown `kid` causes another fetch, from one of two budgets. Any client
   * can send a token with an invented `kid`, and must not use up the fetch that detects a rotation. A `kid`
   * that was never seen waits for the next fetch if there has just been one. A `kid` that was not found
   * before causes at most one fetch per cooldown. A fetch in progress may have begun before the key was
   * added, so a `kid` that it does not find is looked for once more.
   */
  find(hint: KeyHint): Found | Promise<Found> {
    const underWay = this.#fetching;
    if (!this.#needsFetch(hint)) return this.#select(hint);
    if (underWay === null) return this.#fetchFor(hint);
    return underWay.then(() =>
      this.#fault === null && this.#needsFetch(hint) ? this.#fetchFor(hint) : this.#select(hint),
    );
  }

  #needsFetch(hint: KeyHint): boolean {
    if (this.#closing.signal.aborted || this.#select(hint).length > 0) return false;
    // Another fetch would not help if the set has the `kid`, but with another algorithm.
    const known = this.#keys?.some(({ kid }) => hint.kid === null || kid === hint.kid) ?? false;
    return !known;
  }

  /** The keys after a fetch that begins now, or that began since the token was read. */
  #fetchFor(hint: KeyHint): Found | Promise<Found> {
    const name = hint.kid ?? '';
    // While the set cannot be fetched, nobody knows whether a `kid` is still in vain.
    const isInVain = this.#inVain.has(name) && this.#fault === null;
    const fetched = isInVain ? this.#fetchForOthers() : this.#fetchForNew();
    if (fetched === null) return isInVain ? [] : null;
    return fetched.then(() => {
      const keys = this.#select(hint);
      if (keys.length === 0 && this.#fault === null) addNewest(this.#inVain, name, MAX_IN_VAIN);
      return keys;
    });
  }

  /** Tokens whose key is not known then, and those that wait for it, may be valid: the next request finds out. */
  close(): void {
    this.#fault ??= 'it is no longer fetched, because of a reload or a stop';
    this.#stopRefresh?.();
    this.#closing.abort();
  }

  #select({ alg, kid }: KeyHint): readonly KeyObject[] {
    return (this.#keys ?? [])
      .filter((key) => kid === null || key.kid === kid)
      .filter((key) => key.algorithm === null || key.algorithm === alg)
      .filter((key) => fitsJwk(alg, key.type))
      .map(({ key }) => key);
  }

  get #isFile(): boolean {
    return this.#options.uri.startsWith('file:');
  }

  /** Returns null within the cooldown. */
  #fetchForOthers(): Promise<void> | null {
    if (this.#fetching !== null) return this.#fetching;
    const now = this.#options.clock.monotonic();
    if (now - this.#lastForOthers < this.#options.cooldownMs) return null;
    this.#lastForOthers = now;
    return this.#refresh();
  }

  /** Returns null if too many tokens wait. */
  #fetchForNew(): Promise<void> | null {
    if (this.#fetching !== null) return this.#fetching;
    const { clock, cooldownMs } = this.#options;
    const interval = Math.min(NEW_KID_INTERVAL_MS, cooldownMs);
    const waitMs = this.#lastForNew + interval - clock.monotonic();
    if (waitMs <= 0) {
      this.#lastForNew = clock.monotonic();
      return this.#refresh();
    }
    if (this.#waiting >= MAX_WAITING) return null;
    this.#waiting += 1;
    this.#nextForNew ??= wait(waitMs, clock, this.#closing.signal)
      .catch(ignore)
      .then(() => {
        this.#nextForNew = null;
        this.#waiting = 0;
        this.#lastForNew = clock.monotonic();
        return this.#closing.signal.aborted ? undefined : this.#refresh();
      });
    return this.#nextForNew;
  }

  /** After a failure, the next fetch is soon, so that a withdrawn key is not accepted for much longer. */
  #scheduleRefresh(failures = 0): void {
    const { refreshMs } = this.#options;
    const everyMs = this.#isFile ? Math.min(refreshMs, FILE_REFRESH_MS) : refreshMs;
    const soonMs = failures === 0 ? everyMs : NEW_KID_INTERVAL_MS * 2 ** (failures - 1);
    this.#stopRefresh = this.#options.clock.after(Math.min(everyMs, soonMs), () => {
      void this.#refresh().then(() => {
        if (!this.#closing.signal.aborted) {
          this.#scheduleRefresh(this.#fault === null ? 0 : failures + 1);
        }
      });
    });
  }

  /** Never rejects: after a failure, the last good keys stay. */
  #refresh(): Promise<void> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = null;
    });
    return this.#fetching;
  }

  async #fetch(): Promise<void> {
    try {
      this.#accept(
        this.#isFile ? await readJwksFile(this.#options.uri) : await this.#fetchRemote(),
      );
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      // A file is read so often that its fault would fill the log.
      if (this.#isFile && this.#fault !== null) return;
      const { uri, log } = this.#options;
      const reason = withoutSecretParts(messageOf(error));
      const cause =
        error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : null;
      this.#fault = cause === null ? reason : `${reason}: ${cause}`;
      const effect =
        this.#keys === null
          ? 'no token of this issuer can be verified yet'
          : 'the known keys stay in use';
      log.warn(`A JWK Set could not be fetched; ${effect}`, {
        uri: this.#isFile ? uri : withoutCredentials(uri),
        reason,
        cause,
        keys: this.#keys?.length ?? 0,
      });
    }
  }

  async #fetchRemote(): Promise<ParsedJwks> {
    const { uri, timeoutMs, clock, fetch } = this.#options;
    const timeout = new AbortController();
    const cancel = clock.after(timeoutMs, () => timeout.abort(new Error('it took too long')));
    try {
      const response = await fetch(uri, {
        headers: { accept: 'application/jwk-set+json, application/json' },
        redirect: 'error',
        signal: AbortSignal.any([timeout.signal, this.#closing.signal]),
      });
      if (!response.ok) {
        await response.body?.cancel();
        throw new Error(`it answered ${response.status}`);
      }
      return parseJwks(await readBounded(response.body, MAX_BYTES));
    } finally {
      cancel();
    }
  }

  #accept({ keys, digest }: ParsedJwks): void {
    this.#fault = null;
    if (digest === this.#digest) return;
    this.#digest = digest;
    this.#keys = keys;
    for (const { kid } of keys) this.#inVain.delete(kid ?? '');
    this.#generation += 1;
  }
}

interface ParsedJwks {
  readonly keys: readonly PublicJwk[];
  readonly digest: string;
}

async function readJwksFile(uri: string): Promise<ParsedJwks> {
  try {
    const { host } = requireUrl(uri);
    if (host !== '') throw new Error('only local files can be read');
    const bytes = await readFile(fileURLToPath(uri));
    if (bytes.length > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
    return parseJwks(bytes);
  } catch (error) {
    const reason = codeOf(error) ?? messageOf(error);
    const message = `jwks_uri ${uri.slice(0, 200)} cannot be used: ${reason}`;
    throw new HubgateError('invalid-jwks', message, { cause: error });
  }
}

/** Describes why a file cannot be used as a JWK Set at the start; null if it can. */
export function jwksFault(bytes: Uint8Array): string | null {
  try {
    if (bytes.length > MAX_BYTES) return `it is larger than ${MAX_BYTES} bytes`;
    parseJwks(bytes);
    return null;
  } catch (thrown) {
    return messageOf(thrown);
  }
}

function parseJwks(bytes: Uint8Array): ParsedJwks {
  const document = parseStrictJson(bytes);
  if (!isJsonObject(document) || !Array.isArray(document['keys'])) {
    throw new Error('it is not a JWK Set: {"keys": […]}');
  }
  const members = document['keys'].filter(isJsonObject).slice(0, MAX_MEMBERS);
  const keys = members.flatMap(readJwk).slice(0, MAX_KEYS);
  return { keys, digest: hash('sha256', bytes) };
}

/** The public half of a signing key; empty for a key that cannot verify a signature. */
function readJwk(jwk: JsonObject): readonly PublicJwk[] {
  const { kty, crv, kid, alg, use, key_ops: operations } = jwk;
  if (use !== undefined && use !== 'sig') return [];
  if (Array.isArray(operations) && !operations.includes('verify')) return [];
  if (typeof kty !== 'string' || !['RSA', 'EC', 'OKP'].includes(kty)) return [];
  const { n, e, x, y } = jwk;
  const members = Object.entries({ kty, crv, n, e, x, y }).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  try {
    return [
      {
        kid: typeof kid === 'string' ? kid : null,
        algorithm: typeof alg === 'string' ? alg : null,
        type: typeof crv === 'string' ? { kty, crv } : { kty },
        key: createPublicKey({ key: Object.fromEntries(members), format: 'jwk' }),
      },
    ];
  } catch {
    // A key that this runtime cannot read does not invalidate the others.
    return [];
  }
}

function withoutCredentials(uri: string): string {
  const url = requireUrl(uri);
  return `${url.origin}${url.pathname}`;
}
