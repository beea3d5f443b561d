// Decorator metadata that @peculiar/x509 reads while it loads, so this import must stay first.
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509';

/** The issuer's certificate and key, PEM. */
export interface Issuer {
  readonly pem: string;
  readonly key: string;
}

/** The kind of certificate to create. */
export type CertificateRequest =
  | { readonly kind: 'authority'; readonly subject: string; readonly by: Issuer | null }
  | { readonly kind: 'leaf'; readonly names: readonly string[]; readonly by: Issuer }
  /** `extension` is the DER of the digest of the key authorization (RFC 8737 §3). */
  | { readonly kind: 'challenge'; readonly name: string; readonly extension: Uint8Array };

/** Milliseconds since the epoch. */
export interface Validity {
  readonly notBefore: number;
  readonly notAfter: number;
}

/** A certificate with its private key (PKCS #8), PEM with a trailing line break. */
export interface Made {
  readonly pem: string;
  readonly key: string;
}

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
/** id-pe-acmeIdentifier (RFC 8737 §6.1). */
const ACME_IDENTIFIER = '1.3.6.1.5.5.7.1.31';

/**
 * Creates a key and a certificate for it. This is the only file that loads @peculiar/x509, which takes longer
 * than the rest of a start. Import it only when a certificate has to be created.
 */
export async function makeCertificate(
  request: CertificateRequest,
  validity: Validity,
): Promise<Made> {
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await sign(request, validity, keys);
  const key = await webcrypto.subtle.exportKey('pkcs8', keys.privateKey);
  return {
    pem: `${certificate.toString('pem')}\n`,
    key: `${PemConverter.encode(key, 'PRIVATE KEY')}\n`,
  };
}

async function sign(
  request: CertificateRequest,
  { notBefore, notAfter }: Validity,
  keys: webcrypto.CryptoKeyPair,
): Promise<X509Certificate> {
  const common = {
    notBefore: new Date(notBefore),
    notAfter: new Date(notAfter),
    signingAlgorithm: ALGORITHM,
  };
  const extensions = extensionsOf(request);
  if (request.kind === 'challenge') {
    return X509CertificateGenerator.createSelfSigned({
      ...common,
      keys,
      name: 'CN=ACME challenge',
      extensions,
    });
  }
  extensions.push(await SubjectKeyIdentifierExtension.create(keys.publicKey));
  const subject = request.kind === 'authority' ? request.subject : '';
  if (request.by === null) {
    return X509CertificateGenerator.createSelfSigned({
      ...common,
      keys,
      name: subject,
      extensions,
    });
  }
  const issuer = new X509Certificate(request.by.pem);
  extensions.push(await AuthorityKeyIdentifierExtension.create(issuer.publicKey));
  const der = PemConverter.decodeFirst(request.by.key);
  return X509CertificateGenerator.create({
    ...common,
    subject,
    issuer: issuer.subject,
    publicKey: keys.publicKey,
    signingKey: await webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign']),
    extensions,
  });
}

function extensionsOf(request: CertificateRequest): Extension[] {
  switch (request.kind) {
    case 'authority':
      return [
        new BasicConstraintsExtension(true, request.by === null ? 1 : 0, true),
        new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      ];
    case 'leaf':
      return [
        new BasicConstraintsExtension(false, undefined, true),
        new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
        new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
        new SubjectAlternativeNameExtension(request.names.map(generalName), true),
      ];
    case 'challenge':
      return [
        new SubjectAlternativeNameExtension([generalName(request.name)]),
        new Extension(ACME_IDENTIFIER, true, request.extension),
      ];
  }
}

function generalName(value: string): { readonly type: 'dns' | 'ip'; readonly value: string } {
  return { type: isIP(value) === 0 ? 'dns' : 'ip', value };
}
