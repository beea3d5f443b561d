import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type KeyPair, renewalTime, type SiteCertificates } from './certificate.ts';
import type { CertificateStore } from './certificate-store.ts';
import type { LocalAuthority } from './local-authority.ts';

export interface LocalCertificatesOptions {
  readonly authority: LocalAuthority;
  readonly store: CertificateStore;
  /** Names of the configuration: only for these are certificates stored, as clients choose others. */
  readonly hosts: ReadonlySet<string>;
  readonly clock: Clock;
  readonly log: Logger;
}

interface IssuedCertificate {
  readonly names: readonly string[];
  readonly pair: Promise<KeyPair>;
  /** Milliseconds since the epoch; null until it is signed. */
  notAfter: number | null;
}

/** The name of the local authority in the storage. */
const LOCAL = 'local';
/** Names for which a site without a name of its own has been contacted. */
const MAX_ISSUED = 1000;

/**
 * Certificates of the local authority, issued when a client asks for them and renewed in the last
 * third of their life. Those of the configuration's names outlive a restart.
 */
export function localCertificates(options: LocalCertificatesOptions): SiteCertificates {
  const issued = new Map<string, IssuedCertificate>();
  const certificateFor: SiteCertificates['certificateFor'] = async (names) => {
    let pair = await issued.get(names.join(' '))?.pair;
    if (pair === undefined || options.clock.now() >= renewalTime(pair)) {
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
    const fresh = present !== null && clock.now() < renewalTime(present);
    if (fresh && (await authority.hasSigned(present.chain))) return present;
  }
  const pair = await authority.issue(names);
  log.debug('Issued a certificate of the local authority', { names });
  if (stored) {
    await store.write(LOCAL, names, pair).catch((error: unknown) => {
      // It serves as well from memory; only a restart will issue another.
      log.warn('A certificate cannot be stored', { names, error: messageOf(error) });
    });
  }
  return pair;
}

function remember(issued: Map<string, IssuedCertificate>, entry: IssuedCertificate): void {
  const id = entry.names.join(' ');
  issued.delete(id);
  issued.set(id, entry);
  entry.pair.then(
    ({ notAfter }) => {
      entry.notAfter = notAfter;
    },
    () => {
      if (issued.get(id) === entry) issued.delete(id);
    },
  );
  for (const oldest of issued.keys()) {
    if (issued.size <= MAX_ISSUED) return;
    issued.delete(oldest);
  }
}
