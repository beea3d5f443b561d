import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { setNewest } from '../kernel/collections.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import { type Logger, silentLogger } from '../kernel/log.ts';
import {
  type CertificateInUse,
  isFresh,
  type KeyPair,
  type SiteCertificates,
} from './certificate.ts';
import type { CertificateRequest, Issuer, Made } from './make-certificate.ts';
import { readIfPresent, writePrivate } from './storage.ts';
import { StorageLock } from './storage-lock.ts';
import { type CertificateStore, LOCAL } from './certificate-store.ts';

/** The root or the intermediate. */
interface Signer extends Issuer {
  readonly certificate: X509Certificate;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const ROOT_MS = 3650 * DAY_MS;
const INTERMEDIATE_MS = 365 * DAY_MS;
const LEAF_MS = 7 * DAY_MS;
/** How long a valid intermediate is used before the next attempt to renew it. */
const RETRY_MS = 60 * 1000;
/** For clients whose clocks are slow. */
const BACKDATE_MS = 60 * 60 * 1000;

/**
 * An authority of this machine for names that no public one certifies: a root that the operator may trust,
 * and an intermediate that signs short-lived leaves. Its files are in `<storage>/pki/local`, 0600.
 */
export class LocalAuthority {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  #signer: Promise<Signer> | undefined;
  /** The time before which a valid intermediate that could not be renewed is not renewed; monotonic. */
  #retryAtMs = Number.NEGATIVE_INFINITY;
  /** The root and the intermediate, once they are loaded. */
  #own: readonly Signer[] = [];

  constructor(storage: string, clock: Clock, log: Logger = silentLogger) {
    this.#directory = join(storage, 'pki', 'local');
    this.#clock = clock;
    this.#log = log;
  }

  /** File of the root certificate, for clients that are to trust it. */
  get rootFile(): string {
    return join(this.#directory, 'root.crt');
  }

  /** The certificates of the authority itself that have been loaded so far. */
  certificates(): readonly CertificateInUse[] {
    return this.#own.map(({ certificate }) => ({
      names: [commonNameOf(certificate)],
      authority: LOCAL,
      notAfter: Date.parse(certificate.validTo),
    }));
  }

  /** Creates the root if it is missing, and the intermediate if it is missing or about to expire. */
  async prepare(): Promise<void> {
    await this.#intermediate();
  }

  /** Signs a leaf for DNS names (wildcards too) and IP addresses. */
  async issue(names: readonly string[]): Promise<KeyPair> {
    const signer = await this.#intermediate();
    const now = this.#clock.now();
    const notAfter = Math.min(now + LEAF_MS, Date.parse(signer.certificate.validTo));
    const made = await this.#request({ kind: 'leaf', names, by: signer }, notAfter);
    const notBefore = now - BACKDATE_MS;
    return { chain: `${made.pem}${signer.pem}`, key: made.key, notBefore, notAfter };
  }

  /** Whether the present intermediate has signed a chain. */
  async hasSigned(chain: string): Promise<boolean> {
    const { certificate } = await this.#intermediate();
    return new X509Certificate(chain).verify(certificate.publicKey);
  }

  #intermediate(): Promise<Signer> {
    this.#signer ??= this.#loadIntermediate();
    const current = this.#signer;
    // Neither a failure (for example a full disk) nor a signer that is about to expire is kept.
    return current.then(
      (signer) => {
        if (this.#fresh(signer.certificate)) return signer;
        if (this.#clock.monotonic() < this.#retryAtMs && this.#valid(signer.certificate))
          return signer;
        if (this.#signer === current) this.#signer = undefined;
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
    if (present !== null && this.#fresh(present.certificate)) return present;
    try {
      return await this.#renewIntermediate();
    } catch (error) {
      if (present === null) throw error;
      this.#retryAtMs = this.#clock.monotonic() + RETRY_MS;
      const { validTo } = present.certificate;
      const fields = { error: messageOf(error), validTo };
      this.#log.warn('The intermediate of the local authority cannot be renewed', fields);
      return present;
    }
  }

  #renewIntermediate(): Promise<Signer> {
    // Processes that share the storage must not create a root each, because clients would trust only one of
    // them.
    const lock = new StorageLock(join(this.#directory, 'lock.d'), this.#clock, this.#log);
    return lock.during(async () => {
      const made = await this.#readBoth();
      if (made !== null && this.#fresh(made.certificate)) return made;
      const root = (await this.#read('root')) ?? (await this.#make('root', ROOT_MS, null));
      const signer = await this.#make('intermediate', INTERMEDIATE_MS, root);
      this.#own = [root, signer];
      return signer;
    });
  }

  /** The intermediate if it is valid and signed by the root; else null. */
  async #readBoth(): Promise<Signer | null> {
    const [root, signer] = [await this.#read('root'), await this.#read('intermediate')];
    const usable =
      root !== null &&
      signer !== null &&
      this.#valid(signer.certificate) &&
      signer.certificate.verify(root.certificate.publicKey);
    if (!usable) return null;
    this.#own = [root, signer];
    return signer;
  }

  async #make(
    name: 'root' | 'intermediate',
    lifetimeMs: number,
    by: Signer | null,
  ): Promise<Signer> {
    const year = new Date(this.#clock.now()).getUTCFullYear();
    const subject = `CN=hubgate local ${name} ${year}, O=hubgate`;
    const notAfter = this.#clock.now() + lifetimeMs;
    const { pem, key } = await this.#request({ kind: 'authority', subject, by }, notAfter);
    // The key is written first, because a certificate without its key would be useless.
    await writePrivate(join(this.#directory, `${name}.key`), key);
    await writePrivate(join(this.#directory, `${name}.crt`), pem);
    return { certificate: new X509Certificate(pem), pem, key };
  }

  /** Imports the library only now. If all certificates are still valid, the gateway starts without it. */
  async #request(request: CertificateRequest, notAfter: number): Promise<Made> {
    const { makeCertificate } = await import('./make-certificate.ts');
    return makeCertificate(request, { notBefore: this.#clock.now() - BACKDATE_MS, notAfter });
  }

  /** @throws HubgateError `authority-damaged` if the files contain something else */
  async #read(name: string): Promise<Signer | null> {
    const certFile = join(this.#directory, `${name}.crt`);
    const keyFile = join(this.#directory, `${name}.key`);
    const pem = await readIfPresent(certFile);
    const key = await readIfPresent(keyFile);
    if (pem === null || key === null) return null;
    const certificate = parsed(certFile, () => new X509Certificate(pem));
    const privateKey = parsed(keyFile, () => createPrivateKey(key));
    if (!certificate.checkPrivateKey(privateKey)) {
      throw damaged(keyFile, `it is not the key of ${certFile}`);
    }
    return { certificate, pem, key };
  }

  #valid({ validFrom, validTo }: X509Certificate): boolean {
    const now = this.#clock.now();
    return Date.parse(validFrom) <= now && now < Date.parse(validTo);
  }

  #fresh({ validFrom, validTo }: X509Certificate): boolean {
    const dates = { notBefore: Date.parse(validFrom), notAfter: Date.parse(validTo) };
    return isFresh(dates, this.#clock.now());
  }
}

function commonNameOf({ subject }: X509Certificate): string {
  return /^CN=(.*)$/m.exec(subject)?.[1] ?? subject;
}

function parsed<T extends X509Certificate | KeyObject>(file: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw damaged(file, messageOf(cause), cause);
  }
}

function damaged(file: string, why: string, cause?: unknown): HubgateError {
  return new HubgateError(
    'authority-damaged',
    `The local authority cannot use ${file}: ${why}. Restore it from a backup, or remove the ` +
      'directory for a new authority, which clients then have to trust again',
    { cause },
  );
}

export interface LocalCertificatesOptions {
  readonly authority: LocalAuthority;
  readonly store: CertificateStore;
  /**
   * Names of the configuration. Only their certificates are stored, because clients choose the other names.
   */
  readonly hosts: ReadonlySet<string>;
  readonly clock: Clock;
  readonly log: Logger;
}

interface IssuedCertificate {
  readonly names: readonly string[];
  readonly pair: Promise<KeyPair>;
  /** Milliseconds since the epoch; null until the certificate is signed. */
  notAfter: number | null;
}

/** Names under which clients have contacted a site without a name of its own. */
const MAX_ISSUED = 1000;

/**
 * Certificates of the local authority, issued when a client asks for them and renewed in the last third of
 * their life. Those for names of the configuration outlive a restart.
 */
export function localCertificates(options: LocalCertificatesOptions): SiteCertificates {
  const issued = new Map<string, IssuedCertificate>();
  const certificateFor: SiteCertificates['certificateFor'] = async (names) => {
    let pair = await issued.get(names.join(' '))?.pair;
    if (pair === undefined || !isFresh(pair, options.clock.now())) {
      const pending = findOrIssue(names, options);
      remember(issued, { names, pair: pending, notAfter: null });
      pair = await pending;
    }
    return { cert: pair.chain, key: pair.key };
  };
  return {
    certificateFor,
    fallbackFor: certificateFor,
    inUse: () =>
      [...issued.values()].flatMap(({ names, notAfter }) =>
        notAfter === null ? [] : [{ names, authority: LOCAL, notAfter }],
      ),
  };
}

async function findOrIssue(
  names: readonly string[],
  { authority, store, hosts, clock, log }: LocalCertificatesOptions,
): Promise<KeyPair> {
  const stored = names.every((name) => hosts.has(name));
  if (stored) {
    const present = await store.read(LOCAL, names);
    const fresh = present !== null && isFresh(present, clock.now());
    if (fresh && (await authority.hasSigned(present.chain))) return present;
  }
  const pair = await authority.issue(names);
  log.debug('Issued a certificate of the local authority', { names });
  if (stored) {
    await store.write(LOCAL, names, pair).catch((error: unknown) => {
      // The certificate in memory is as good. Only a restart will issue another one.
      log.warn('A certificate cannot be stored', { names, error: messageOf(error) });
    });
  }
  return pair;
}

function remember(issued: Map<string, IssuedCertificate>, entry: IssuedCertificate): void {
  const id = entry.names.join(' ');
  setNewest(issued, id, entry, MAX_ISSUED);
  entry.pair.then(
    ({ notAfter }) => {
      entry.notAfter = notAfter;
    },
    () => {
      if (issued.get(id) === entry) issued.delete(id);
    },
  );
}
