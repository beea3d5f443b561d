import type { HeaderOperation, SiteConfig } from './config.ts';

/**
 * What `basic_auth` and the client's certificate have established, and what another service has answered, under all
 * their names.
 */
const IDENTITY =
  /\{(?:(?:http\.)?auth\.user\.id|tls_client_[^{}]+|http\.request\.tls\.client\.[^{}]+|rp\.header\.[^{}]+|http\.reverse_proxy\.header\.[^{}]+)\}/;

/** The request fields that operations fill with what the gateway has found out about the user. */
export function identityFieldsIn(operations: readonly HeaderOperation[]): string[] {
  return operations.flatMap((one) =>
    (one.kind === 'set' || one.kind === 'add' || one.kind === 'default') && IDENTITY.test(one.value)
      ? [one.name]
      : [],
  );
}

/** Whether a site verifies the certificates of its clients, so that they prove who a client is. */
export function verifiesClients({ tls }: Pick<SiteConfig, 'tls'>): boolean {
  const mode = tls.clientAuth?.mode;
  return mode === 'verify_if_given' || mode === 'require_and_verify';
}
