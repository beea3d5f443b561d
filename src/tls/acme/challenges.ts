import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { AcmeOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { fileName } from '../file-name.ts';
import type { KeyPair } from '../key-pair.ts';
import { namesIn, readIfPresent, writePrivate } from '../storage.ts';
import { challengeCertificate } from './challenge-certificate.ts';
import { challengeName } from './challenge-name.ts';

/** A way to prove that a name is ours. */
export type ChallengeType = FileChallengeType | 'dns-01';
/** Those that are answered from this class's files. */
export type FileChallengeType = AcmeOptions['challenges'][number];

/** What an authority wants to find under a name. */
export interface Challenge {
  readonly type: FileChallengeType;
  /** DNS name or IP address. */
  readonly name: string;
  /** Base64url (RFC 8555 §8.3). */
  readonly token: string;
  readonly keyAuthorization: string;
}

type Answer = Readonly<Record<string, unknown>>;

/** Longest time that a challenge is answered, should nobody withdraw it. */
const CHALLENGE_MS = 60 * 60 * 1000;
const TOKEN = /^[A-Za-z0-9_-]{1,256}$/;

/**
 * Answers to pending challenges, as files of the storage: whichever process or machine an authority
 * asks, it can answer, if only it shares the storage. `<storage>/acme/challenges/<type>/<name>`.
 */
export class Challenges {
  readonly #directory: string;
  readonly #clock: Clock;

  constructor(storage: string, clock: Clock) {
    this.#directory = join(storage, 'acme', 'challenges');
    this.#clock = clock;
  }

  /** Makes the answer ready, and returns what takes it away. */
  async publish({ type, name, token, keyAuthorization }: Challenge): Promise<() => Promise<void>> {
    await this.#sweep(type);
    const now = this.#clock.now();
    const expires = now + CHALLENGE_MS;
    const answer =
      type === 'http-01'
        ? { expires, keyAuthorization }
        : { expires, ...(await challengeCertificate(name, keyAuthorization, now)) };
    const file = this.#file(type, type === 'http-01' ? token : challengeName(name));
    await writePrivate(file, JSON.stringify(answer));
    return () => rm(file, { force: true });
  }

  /** The body of an HTTP-01 answer (RFC 8555 §8.3); null for tokens that are none, or not ours. */
  async keyAuthorization(token: string): Promise<string | null> {
    if (!TOKEN.test(token)) return null;
    const answer = await this.#read(this.#file('http-01', token));
    return typeof answer?.['keyAuthorization'] === 'string' ? answer['keyAuthorization'] : null;
  }

  /** The certificate of a TLS-ALPN-01 answer for a server name; null when none is pending. */
  async certificate(serverName: string): Promise<Pick<KeyPair, 'chain' | 'key'> | null> {
    const answer = await this.#read(this.#file('tls-alpn-01', serverName));
    const { chain, key } = answer ?? {};
    return typeof chain === 'string' && typeof key === 'string' ? { chain, key } : null;
  }

  #file(type: FileChallengeType, name: string): string {
    return join(this.#directory, type, type === 'http-01' ? name : fileName([name]));
  }

  async #read(file: string): Promise<Answer | null> {
    const answer = await readAnswer(file);
    return answer !== null && this.#pending(answer) ? answer : null;
  }

  #pending({ expires }: Answer): boolean {
    return Number(expires) > this.#clock.now();
  }

  /** Takes away what a process has left that ended in the middle of an order. */
  async #sweep(type: FileChallengeType): Promise<void> {
    for (const name of await namesIn(join(this.#directory, type))) {
      const file = join(this.#directory, type, name);
      // What cannot be read may be about to be written by another.
      const answer = await readAnswer(file).catch(() => null);
      if (answer !== null && !this.#pending(answer)) await rm(file, { force: true });
    }
  }
}

async function readAnswer(file: string): Promise<Answer | null> {
  const text = await readIfPresent(file);
  // Files here are written whole, by this class only; each member is checked where it is used.
  return text === null ? null : (JSON.parse(text) as Answer);
}
