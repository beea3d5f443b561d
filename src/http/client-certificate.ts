import { hash, type X509Certificate } from 'node:crypto';
import { parseJson, parseUrl } from '../kernel/parse.ts';

/** The names that Node uses in the list of alternative names for each kind of member. */
const LISTS: Readonly<Record<string, string>> = {
  dns_names: 'DNS',
  emails: 'email',
  ips: 'IP Address',
  uris: 'URI',
};

/** A kind and a name. A name with a comma or a quote is written as JSON. */
const ALTERNATIVE_NAME = /([^:,]+):("(?:[^"\\]|\\.)*"|[^,]*)(?:, |$)/gy;

/**
 * The certificate with which a client has proven its identity, verified in the handshake of its connection.
 */
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

  /**
   * The value of `{tls_client_…}`, by the part of its name after the last "_"; empty if the certificate has
   * no such value.
   */
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
        return hash('sha256', certificate.raw, 'hex');
      case 'certificate_der_base64':
        return certificate.raw.toString('base64');
      default:
        return alternativeName(certificate.subjectAltName ?? '', name);
    }
  }
}

/**
 * A name in the format of RFC 4514: the last part first. Node returns a line for each part, with special
 * characters already escaped.
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

/** @param name for example `san.emails.0` */
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
  const text = parseJson(value);
  return typeof text === 'string' ? text : '';
}

/** An IPv6 address in the format of RFC 5952. */
function shortAddress(address: string): string {
  return parseUrl(`http://[${address}]`)?.hostname.slice(1, -1) ?? '';
}
