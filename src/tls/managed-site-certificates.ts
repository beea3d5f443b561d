import type { SiteCertificates } from './certificate.ts';
import type { IssuedCertificate } from './acme/issuance.ts';
import type { ManagedCertificate } from './acme/managed-certificate.ts';

/** The certificate of one host, got by ACME: always the one of its name. */
export function managedCertificates(managed: ManagedCertificate): SiteCertificates {
  const presented = ({ pair }: IssuedCertificate) => ({ cert: pair.chain, key: pair.key });
  return {
    certificateFor: async () => presented(managed.require()),
    fallbackFor: async () => (managed.current === null ? null : presented(managed.current)),
    inUse() {
      if (managed.current === null) return [];
      const { authority, pair } = managed.current;
      return [{ names: [managed.name], authority, notAfter: pair.notAfter }];
    },
  };
}
