import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { AcmeOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { fileName, namesIn, readIfPresent, writePrivate } from '../storage.ts';
import type { KeyPair } from '../certificate.ts';
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { requireUrl } from '../../kernel/parse-url.ts';

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

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * The self-signed certificate that answers a TLS-ALPN-01 challenge (RFC 8737 §3): for exactly one
 * name or address, with the digest of the key authorization in a critical extension.
 */
async function challengeCertificate(
  name: string,
  keyAuthorization: string,
  now: number,
): Promise<KeyPair> {
  const digest = createHash('sha256').update(keyAuthorization).digest();
  // DER: an OCTET STRING of 32 bytes.
  const extension = Buffer.concat([Buffer.from([0x04, digest.length]), digest]);
  const [notBefore, notAfter] = [now - DAY_MS, now + DAY_MS];
  const { makeCertificate } = await import('../make-certificate.ts');
  const request = { kind: 'challenge', name, extension } as const;
  const { pem, key } = await makeCertificate(request, { notBefore, notAfter });
  return { chain: pem, key, notBefore, notAfter };
}

/**
 * The server name with which an authority asks for the TLS-ALPN-01 answer: the name itself, and
 * for an address the name of its reverse lookup (RFC 8738 §6).
 */
export function challengeName(name: string): string {
  switch (isIP(name)) {
    case 4:
      return `${name.split('.').toReversed().join('.')}.in-addr.arpa`;
    case 6:
      return `${nibbles(name).toReversed().join('.')}.ip6.arpa`;
    default:
      return name;
  }
}

/** The 32 hexadecimal digits of an IPv6 address. */
function nibbles(address: string): string[] {
  // The URL parser writes every IPv6 address with hexadecimal groups only.
  const plain = requireUrl(`http://[${address}]`).hostname.slice(1, -1);
  const [head = '', tail] = plain.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  return [...before, ...zeros, ...after].flatMap((group) => group.padStart(4, '0').split(''));
}
