import { isIP } from 'node:net';
import type {
  AcmeIssuerConfig,
  AcmeOptions,
  CertificateIssuer,
  GlobalOptions,
  OnDemandOptions,
  TlsConfig,
} from '../config/config.ts';
import { defaultAcmeIssuer } from '../config/shape-config.ts';
import { defaultOptions } from '../config/shape-options.ts';
import { type UnplacedProblem, error, warning } from '../config/problem.ts';

/** The origin of the certificate for a name. */
export type CertificateOrigin =
  | { readonly kind: 'files'; readonly certFile: string; readonly keyFile: string }
  /** The local authority. `warning` is set if the operator may expect another one. */
  | { readonly kind: 'local'; readonly warning?: UnplacedProblem }
  /** Asked one after the other. Each has at least one directory. */
  | { readonly kind: 'acme'; readonly authorities: readonly (AcmeOptions | 'local')[] }
  /** For the names that clients ask for, under these conditions. */
  | {
      readonly kind: 'on-demand';
      readonly authorities: readonly (AcmeOptions | 'local')[];
      readonly onDemand: OnDemandOptions;
    }
  /** The configuration asks for a certificate that cannot be obtained. */
  | { readonly kind: 'none'; readonly error: UnplacedProblem };

/** Names that no public authority certifies. The same is true for names with one label. */
const LOCAL_NAME = /(?:^|\.)(?:localhost|local|internal|home\.arpa)$/;
const WITHOUT_ASK: CertificateOrigin = {
  kind: 'none',
  error: error(
    'on-demand-without-ask',
    'on_demand needs a service that decides which names may have certificates',
    'configure it in the global options: on_demand_tls { ask http://localhost:3000/may-have-tls }',
  ),
};
const WILDCARD_HINT =
  'wildcard names need the DNS challenge: write dns <provider> in tls, or acme_dns; or give certificate files: tls <cert> <key>';

/**
 * Decides where the certificate of an HTTPS host of a site comes from. It depends first on the site's `tls`,
 * then on `local_certs`, then on whether public authorities certify such a name at all.
 *
 * @param host DNS name, wildcard or IP address; empty for any
 */
export function certificateOrigin(
  host: string,
  tls: Pick<TlsConfig, 'source' | 'dns' | 'onDemand'>,
  options: Pick<GlobalOptions, 'acme' | 'localCerts' | 'onDemand'>,
): CertificateOrigin {
  if (!tls.onDemand) return originOf(host, tls, options);
  if (options.onDemand === null) return WITHOUT_ASK;
  // Clients can ask for any name here, and none of these names is a wildcard.
  const name = host === '' || host.startsWith('*.') ? `any.${host.slice(2) || 'example'}` : host;
  const origin = originOf(name, tls, options);
  const { onDemand } = options;
  switch (origin.kind) {
    case 'acme':
      return { kind: 'on-demand', authorities: origin.authorities, onDemand };
    case 'local':
      return { kind: 'on-demand', authorities: ['local'], onDemand };
    default:
      return origin;
  }
}

function originOf(
  host: string,
  { source, dns }: Pick<TlsConfig, 'source' | 'dns'>,
  { acme, localCerts }: Pick<GlobalOptions, 'acme' | 'localCerts'>,
): CertificateOrigin {
  const proof = dns ?? acme.dns;
  switch (source.kind) {
    case 'files':
      return source;
    case 'internal':
      return { kind: 'local' };
    case 'acme':
      return byIssuers(host, [{ kind: 'acme', ...defaultAcmeIssuer, email: source.email }], {
        ...acme,
        dns: proof,
      });
    case 'issuers':
      return byIssuers(host, source.issuers, { ...acme, dns: proof });
    case 'auto': {
      // A provider in a site's `tls` selects ACME for it, as in Caddy.
      if (dns === null && (localCerts || !isPublicName(host))) return { kind: 'local' };
      if (host === '') return { kind: 'local' };
      if (host.startsWith('*.') && proof === null) {
        return { kind: 'local', warning: localWildcard(host) };
      }
      return { kind: 'acme', authorities: [withDefaults({ ...acme, dns: proof })] };
    }
  }
}

/** Of several issuers, only those that can certify the name remain. */
function byIssuers(
  host: string,
  issuers: readonly CertificateIssuer[],
  acme: AcmeOptions,
): CertificateOrigin {
  const authorities = issuers
    .map((issuer) => (issuer.kind === 'internal' ? 'local' : authorityWith(issuer, acme)))
    .filter(
      (one) => one === 'local' || (host !== '' && !(host.startsWith('*.') && one.dns === null)),
    );
  if (authorities.length > 0 && authorities.every((one) => one === 'local'))
    return { kind: 'local' };
  if (authorities.length > 0) return { kind: 'acme', authorities };
  if (host === '') return none('acme-any-host', 'no certificate for a site without a host');
  return none('acme-wildcard', `no certificate for ${host}`);
}

/** If an issuer has a directory of its own, the global key of an external account does not apply to it. */
function authorityWith(
  { directory, email, rootFile, externalAccount, challenges, dns }: AcmeIssuerConfig,
  acme: AcmeOptions,
): AcmeOptions {
  const place =
    directory === null ? {} : { directories: [directory], staging: null, externalAccount: null };
  return withDefaults({
    ...acme,
    ...place,
    ...(externalAccount === null ? {} : { externalAccount }),
    email: email ?? acme.email,
    rootFile: rootFile ?? acme.rootFile,
    challenges: challenges ?? acme.challenges,
    dns: dns ?? acme.dns,
  });
}

/** Whether a public authority certifies such a name. */
export function isPublicName(host: string): boolean {
  return isIP(host) === 0 && host.includes('.') && !LOCAL_NAME.test(host);
}

/** Without a directory, the default one is meant. */
function withDefaults(acme: AcmeOptions): AcmeOptions {
  const { directories } = acme;
  return directories.length > 0 ? acme : { ...acme, directories: defaultOptions.acme.directories };
}

function none(code: 'acme-wildcard' | 'acme-any-host', message: string): CertificateOrigin {
  const hint =
    code === 'acme-wildcard' ? WILDCARD_HINT : 'give the site a host name, or use tls internal';
  return { kind: 'none', error: error(code, `ACME issues ${message}`, hint) };
}

function localWildcard(host: string): UnplacedProblem {
  const message = `${host} gets a certificate of the gateway's local authority, which browsers do not trust by default`;
  return warning('local-certificate', message, WILDCARD_HINT);
}
