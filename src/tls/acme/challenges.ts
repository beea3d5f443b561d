import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { AcmeOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import { fileName, namesIn, readIfPresent, writePrivate } from '../storage.ts';
import type { KeyPair } from '../certificate.ts';
import { createHash } from 'node:crypto';
import { AcmeError } from './acme-error.ts';
import { isIP } from 'node:net';
import { requireUrl } from '../../kernel/parse.ts';

/** A way to prove control of a name. */
export type ChallengeType = FileChallengeType | 'dns-01';
/** The types that are answered from the files of this class. */
export type FileChallengeType = AcmeOptions['challenges'][number];

/** A challenge: what an authority expects to find under a name. */
export interface Challenge {
  readonly type: FileChallengeType;
  /** DNS name or IP address. */
  readonly name: string;
  /** Base64url (RFC 8555 §8.3). */
  readonly token: string;
  readonly keyAuthorization: string;
}

type Answer = Readonly<Record<string, unknown>>;

/** Longest time for which a challenge is answered if nothing withdraws it. */
const CHALLENGE_MS = 60 * 60 * 1000;
/** With the suffix of a file that is being written, it is a file name, which has at most 255 characters. */
const TOKEN = /^[A-Za-z0-9_-]{1,240}$/;

/**
 * Responses to pending challenges, as files in the storage: `<storage>/acme/challenges/<type>/<name>`. An
 * authority can ask any process or machine that shares the storage.
 */
export class Challenges {
  readonly #directory: string;
  readonly #clock: Clock;

  constructor(storage: string, clock: Clock) {
    this.#directory = join(storage, 'acme', 'challenges');
    this.#clock = clock;
  }

  /**
   * Stores the response. The returned function removes it.
   *
   * @throws AcmeError `acme-refused` if the token is not base64url
   */
  async publish({ type, name, token, keyAuthorization }: Challenge): Promise<() => Promise<void>> {
    // It becomes a file name (RFC 8555 §8.3).
    if (!TOKEN.test(token))
      throw new AcmeError('acme-refused', 'The token of a challenge is malformed');
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

  /** The body of an HTTP-01 response (RFC 8555 §8.3); null for an invalid or unknown token. */
  async keyAuthorization(token: string): Promise<string | null> {
    if (!TOKEN.test(token)) return null;
    const answer = await this.#read(this.#file('http-01', token));
    return typeof answer?.['keyAuthorization'] === 'string' ? answer['keyAuthorization'] : null;
  }

  /** The certificate of a TLS-ALPN-01 response for a server name; null if no challenge is pending. */
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

  /** Removes the files of a process that ended in the middle of an order. */
  async #sweep(type: FileChallengeType): Promise<void> {
    for (const name of await namesIn(join(this.#directory, type))) {
      const file = join(this.#directory, type, name);
      // Another process may be writing a file that cannot be read yet.
      const answer = await readAnswer(file).catch(() => null);
      if (answer !== null && !this.#pending(answer)) await rm(file, { force: true });
    }
  }
}

async function readAnswer(file: string): Promise<Answer | null> {
  const text = await readIfPresent(file);
  // Only this class writes these files, and always as a whole. Each member is checked where it is used.
  return text === null ? null : (JSON.parse(text) as Answer);
}

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Creates the self-signed certificate that answers a TLS-ALPN-01 challenge (RFC 8737 §3). It is for exactly
 * one name or address and has the digest of the key authorization in a critical extension.
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
 * The server name with which an authority asks for the TLS-ALPN-01 response: the name itself, or for an
 * address the name of its reverse lookup (RFC 8738 §6).
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
