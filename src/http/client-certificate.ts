import { createHash, type X509Certificate } from 'node:crypto';
import { parseUrl } from '../kernel/parse-url.ts';

/** What a member of a list of alternative names is called there. */
const LISTS: Readonly<Record<string, string>> = {
  dns_names: 'DNS',
  emails: 'email',
  ips: 'IP Address',
  uris: 'URI',
};

/** A kind and a name; one with a comma or a quote in it is written as JSON. */
const ALTERNATIVE_NAME = /([^:,]+):("(?:[^"\\]|\\.)*"|[^,]*)(?:, |$)/gy;

/** The certificate by which a client has proven who it is, verified in the handshake of its connection. */
export class ClientCertificate {
  readonly #certificate: X509Certificate;
  /** At most one value for each placeholder of the configuration. */
  readonly #values = new Map<string, string>();

  constructor(certificate: X509Certificate) {
    this.#certificate = certificate;
  }

  /** SHA-256 of the certificate, in hexadecimal digits. */
  get fingerprint(): string {
    return this.value('fingerprint');
  }

  /** What `{tls_client_…}` reads, by what stands behind the last "_"; empty where the certificate has no such thing. */
  value(name: string): string {
    const known = this.#values.get(name);
    if (known !== undefined) return known;
    const value = this.#read(name);
    this.#values.set(name, value);
    return value;
  }

  #read(name: string): string {
    const certificate = this.#certificate;
    switch (name) {
      case 'subject':
        return distinguishedName(certificate.subject);
      case 'issuer':
        return distinguishedName(certificate.issuer);
      case 'serial':
        return BigInt(`0x${certificate.serialNumber}`).toString();
      case 'fingerprint':
        return createHash('sha256').update(certificate.raw).digest('hex');
      case 'certificate_der_base64':
        return certificate.raw.toString('base64');
      default:
        return alternativeName(certificate.subjectAltName ?? '', name);
    }
  }
}

/**
 * A name as RFC 4514 writes it: the last part first. Node gives a line for each part, in which the characters that
 * mean something are escaped already.
 */
function distinguishedName(lines: string | undefined): string {
  // A certificate need not have a subject.
  return (lines ?? '')
    .split('\n')
    .filter(Boolean)
    .map((part) => part.replaceAll(' + ', '+'))
    .toReversed()
    .join(',');
}

/** @param name `san.emails.0`, say */
function alternativeName(names: string, name: string): string {
  const [, list = '', index = ''] = name.split('.');
  const kind = LISTS[list];
  const found = [...names.matchAll(ALTERNATIVE_NAME)].flatMap(([, one, value = '']) =>
    one === kind ? unquoted(value) : [],
  );
  const value = found[Number(index)] ?? '';
  return list === 'ips' && value.includes(':') ? shortAddress(value) : value;
}

function unquoted(value: string): string {
  if (!value.startsWith('"')) return value;
  try {
    const text: unknown = JSON.parse(value);
    return typeof text === 'string' ? text : '';
  } catch {
    return '';
  }
}

/** An IPv6 address as RFC 5952 writes it. */
function shortAddress(address: string): string {
  return parseUrl(`http://[${address}]`)?.hostname.slice(1, -1) ?? '';
}
