// Decorator metadata that @peculiar/x509 reads while it loads: this import must stay first.
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import { join } from 'node:path';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  type Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509';
import type { Clock } from '../kernel/clock.ts';
import { type Logger, silentLogger } from '../kernel/log.ts';
import type { CertificateInUse } from './certificate-in-use.ts';
import type { KeyPair } from './key-pair.ts';
import { readIfPresent, writePrivate } from './storage.ts';
import { StorageLock } from './storage-lock.ts';

interface Signer {
  readonly certificate: X509Certificate;
  readonly key: webcrypto.CryptoKey;
  readonly pem: string;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const ROOT_MS = 3650 * DAY_MS;
const INTERMEDIATE_MS = 365 * DAY_MS;
const LEAF_MS = 7 * DAY_MS;
/** For clients whose clocks are behind. */
const BACKDATE_MS = 60 * 60 * 1000;
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

/**
 * An authority of this machine for names that no public one certifies: a root that the operator
 * may trust, and an intermediate that signs short-lived leaves. Its files lie in
 * `<storage>/pki/local`, 0600.
 */
export class LocalAuthority {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  #signer: Promise<Signer> | undefined;
  /** The root and the intermediate, once they are loaded. */
  #own: readonly Signer[] = [];

  constructor(storage: string, clock: Clock, log: Logger = silentLogger) {
    this.#directory = join(storage, 'pki', 'local');
    this.#clock = clock;
    this.#log = log;
  }

  /** File of the root certificate, for clients that shall trust it. */
  get rootFile(): string {
    return join(this.#directory, 'root.crt');
  }

  /** Its own certificates, as far as they have been loaded. */
  certificates(): readonly CertificateInUse[] {
    return this.#own.map(({ certificate }) => ({
      names: certificate.subjectName.getField('CN'),
      authority: 'local',
      notAfter: certificate.notAfter.getTime(),
    }));
  }

  /** Makes the root and the intermediate where they are missing or about to expire. */
  async prepare(): Promise<void> {
    await this.#intermediate();
  }

  /** Signs a leaf for DNS names (wildcards too) and IP addresses. */
  async issue(names: readonly string[]): Promise<KeyPair> {
    const signer = await this.#intermediate();
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
    const now = this.#clock.now();
    const notAfter = Math.min(now + LEAF_MS, signer.certificate.notAfter.getTime());
    const certificate = await this.#sign(signer, keys.publicKey, '', notAfter, [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(
        names.map((name) => ({
          type: isIP(name) === 0 ? ('dns' as const) : ('ip' as const),
          value: name,
        })),
        true,
      ),
    ]);
    return {
      chain: `${certificate.toString('pem')}\n${signer.pem}`,
      key: await exportKey(keys.privateKey),
      notBefore: now,
      notAfter,
    };
  }

  /** Whether a chain is of the present intermediate. */
  async hasSigned(chain: string): Promise<boolean> {
    const { certificate } = await this.#intermediate();
    return new X509Certificate(chain).verify({ publicKey: certificate, signatureOnly: true });
  }

  #intermediate(): Promise<Signer> {
    this.#signer ??= this.#loadIntermediate();
    const current = this.#signer;
    // A failure (a full disk, say) is not remembered; nor is a signer that has grown old.
    return current.then(
      (signer) => {
        if (this.#fresh(signer.certificate)) return signer;
        this.#signer = undefined;
        return this.#intermediate();
      },
      (error: unknown) => {
        if (this.#signer === current) this.#signer = undefined;
        throw error;
      },
    );
  }

  async #loadIntermediate(): Promise<Signer> {
    const present = await this.#readBoth();
    if (present !== null) return present;
    // Processes that share the storage must not each make a root: clients would trust one of them.
    const file = join(this.#directory, 'lock');
    return StorageLock.during(file, this.#clock, this.#log, async () => {
      const made = await this.#readBoth();
      if (made !== null) return made;
      const root = (await this.#read('root')) ?? (await this.#make('root', ROOT_MS, null));
      const signer = await this.#make('intermediate', INTERMEDIATE_MS, root);
      this.#own = [root, signer];
      return signer;
    });
  }

  /** The intermediate, when it is fresh and the root's; else null. */
  async #readBoth(): Promise<Signer | null> {
    const [root, signer] = [await this.#read('root'), await this.#read('intermediate')];
    const usable =
      root !== null &&
      signer !== null &&
      this.#fresh(signer.certificate) &&
      (await signer.certificate.verify({ publicKey: root.certificate, signatureOnly: true }));
    if (!usable) return null;
    this.#own = [root, signer];
    return signer;
  }

  async #make(
    name: 'root' | 'intermediate',
    lifetimeMs: number,
    by: Signer | null,
  ): Promise<Signer> {
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
    const year = new Date(this.#clock.now()).getUTCFullYear();
    const subject = `CN=hubgate local ${name} ${year}, O=hubgate`;
    const notAfter = this.#clock.now() + lifetimeMs;
    const extensions = [
      new BasicConstraintsExtension(true, by === null ? 1 : 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
    ];
    const certificate =
      by === null
        ? await X509CertificateGenerator.createSelfSigned({
            keys,
            name: subject,
            notBefore: new Date(this.#clock.now() - BACKDATE_MS),
            notAfter: new Date(notAfter),
            signingAlgorithm: ALGORITHM,
            extensions: [...extensions, await SubjectKeyIdentifierExtension.create(keys.publicKey)],
          })
        : await this.#sign(by, keys.publicKey, subject, notAfter, extensions);
    const pem = `${certificate.toString('pem')}\n`;
    // The key first: a certificate whose key is missing would be useless.
    await writePrivate(join(this.#directory, `${name}.key`), await exportKey(keys.privateKey));
    await writePrivate(join(this.#directory, `${name}.crt`), pem);
    return { certificate, key: keys.privateKey, pem };
  }

  async #sign(
    by: Signer,
    publicKey: webcrypto.CryptoKey,
    subject: string,
    notAfter: number,
    extensions: Extension[],
  ): Promise<X509Certificate> {
    return X509CertificateGenerator.create({
      subject,
      issuer: by.certificate.subject,
      publicKey,
      signingKey: by.key,
      signingAlgorithm: ALGORITHM,
      notBefore: new Date(this.#clock.now() - BACKDATE_MS),
      notAfter: new Date(notAfter),
      extensions: [
        ...extensions,
        await SubjectKeyIdentifierExtension.create(publicKey),
        await AuthorityKeyIdentifierExtension.create(by.certificate.publicKey),
      ],
    });
  }

  async #read(name: string): Promise<Signer | null> {
    const pem = await readIfPresent(join(this.#directory, `${name}.crt`));
    const key = await readIfPresent(join(this.#directory, `${name}.key`));
    if (pem === null || key === null) return null;
    const der = PemConverter.decodeFirst(key);
    return {
      certificate: new X509Certificate(pem),
      key: await webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign']),
      pem,
    };
  }

  /** In the last third of its life a certificate is replaced. */
  #fresh(certificate: X509Certificate): boolean {
    const end = certificate.notAfter.getTime();
    return end - this.#clock.now() > (end - certificate.notBefore.getTime()) / 3;
  }
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  return `${PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')}\n`;
}
