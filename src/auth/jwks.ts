import { readFile } from 'node:fs/promises';
import { createPublicKey, hash, type KeyObject } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import type { JwksKeySource } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { fitsJwk, JWKS_ALGORITHMS } from './algorithms.ts';
import type { KeyHint, KeySet } from './key.ts';
import { isJsonObject, type JsonObject, parseStrictJson } from './strict-json.ts';
import { requireUrl } from '../kernel/parse-url.ts';

/** Largest document, in bytes. */
const MAX_BYTES = 1024 * 1024;
/** Keys beyond these are ignored: a token without `kid` tries them all. */
const MAX_KEYS = 100;

export interface JwksOptions {
  /** `https:`, `http:` or `file:` URL. */
  readonly uri: string;
  /** How often the set is fetched in the background. */
  readonly refreshMs: number;
  /** Shortest time between two fetches that a token asks for. */
  readonly cooldownMs: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
}

interface PublicJwk {
  readonly kid: string | null;
  readonly algorithm: string | null;
  readonly type: { readonly kty: string; readonly crv?: string };
  readonly key: KeyObject;
}

/**
 * Opens the JWK Set behind a URL (RFC 7517). A remote one is fetched in the background, so that an
 * identity provider that is down does not keep the gateway from starting; a file is read now.
 *
 * @throws HubgateError `invalid-jwks` for a file that cannot be read or holds no set
 */
export async function openJwks(options: JwksOptions): Promise<Jwks> {
  const jwks = new Jwks(options);
  await jwks.open();
  return jwks;
}

/** The keys of one issuer and role, out of a set that others may share. */
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
    find: (hint) => jwks.find(hint),
  };
}

/** A JWK Set that follows its source; whoever opened it closes it. */
export class Jwks {
  readonly #options: JwksOptions;
  readonly #closing = new AbortController();
  #keys: readonly PublicJwk[] | null = null;
  #digest = '';
  #generation = 0;
  /** The fetch under way, which all that wait share. */
  #fetching: Promise<void> | null = null;
  #lastAsked = Number.NEGATIVE_INFINITY;
  #stopRefresh: (() => void) | null = null;

  constructor(options: JwksOptions) {
    this.#options = options;
  }

  /** Grows whenever the keys change. */
  get generation(): number {
    return this.#generation;
  }

  /** @throws HubgateError `invalid-jwks`, for a file only */
  async open(): Promise<void> {
    if (this.#options.uri.startsWith('file:')) {
      this.#accept(await readJwksFile(this.#options.uri));
      return;
    }
    void this.#refresh();
    this.#scheduleRefresh();
  }

  /** The keys to try for a token. An unknown `kid` fetches the set anew, at most once per cooldown. */
  find(hint: KeyHint): readonly KeyObject[] | Promise<readonly KeyObject[]> {
    const found = this.#select(hint);
    if (found.length > 0) return found;
    // Keys that have the kid but not the algorithm would be no better after another fetch.
    const known = this.#keys?.some(({ kid }) => hint.kid === null || kid === hint.kid) ?? false;
    if (known || !this.#mayFetch()) return found;
    return this.#refresh().then(() => this.#select(hint));
  }

  close(): void {
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

  #mayFetch(): boolean {
    if (this.#options.uri.startsWith('file:') || this.#closing.signal.aborted) return false;
    if (this.#fetching !== null) return true;
    const now = this.#options.clock.monotonic();
    if (now - this.#lastAsked < this.#options.cooldownMs) return false;
    this.#lastAsked = now;
    return true;
  }

  #scheduleRefresh(): void {
    this.#stopRefresh = this.#options.clock.after(this.#options.refreshMs, () => {
      void this.#refresh();
      this.#scheduleRefresh();
    });
  }

  /** Never rejects: on a failure the last good keys stay. */
  #refresh(): Promise<void> {
    this.#fetching ??= this.#fetch().finally(() => {
      this.#fetching = null;
    });
    return this.#fetching;
  }

  async #fetch(): Promise<void> {
    const { uri, timeoutMs, clock, log, fetch } = this.#options;
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
      this.#accept(parseJwks(await readBounded(response)));
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      log.warn('A JWK Set could not be fetched; the keys known so far stay in use', {
        uri: withoutCredentials(uri),
        reason: messageOf(error),
        cause: error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : null,
        keys: this.#keys?.length ?? 0,
      });
    } finally {
      cancel();
    }
  }

  #accept({ keys, digest }: ParsedJwks): void {
    if (digest === this.#digest) return;
    this.#digest = digest;
    this.#keys = keys;
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

/** Why a file is no JWK Set that a gateway starts with; null for nothing. */
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
  const keys = document['keys'].filter(isJsonObject).slice(0, MAX_KEYS).flatMap(readJwk);
  return { keys, digest: hash('sha256', bytes) };
}

/** The public half of a signing key; nothing for what cannot verify a signature. */
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
    // One key that this engine cannot read does not make the others useless.
    return [];
  }
}

async function readBounded(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_BYTES) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function withoutCredentials(uri: string): string {
  const url = requireUrl(uri);
  return `${url.origin}${url.pathname}`;
}
