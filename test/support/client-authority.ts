import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A certificate with its key, PEM, as `node:tls` takes them. */
export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
}

/** A throwaway authority that vouches for clients, and for servers of a name. */
export interface ClientAuthority {
  /** Its own certificate: a trust pool. */
  readonly file: string;
  issue(
    name: string,
    purpose?: 'clientAuth' | 'serverAuth',
    more?: { readonly subject?: string; readonly names?: string },
  ): TestCertificate;
}

const EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** Makes an authority whose files are `<directory>/<name>.*`. */
export function createClientAuthority(directory: string, name: string): ClientAuthority {
  const openssl = (...args: readonly string[]): void => {
    execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' });
  };
  openssl(
    ...['req', '-x509', ...EC_KEY, '-days', '2', '-subj', `/CN=${name}`],
    ...['-addext', 'keyUsage=critical,keyCertSign'],
    ...['-keyout', `${name}.key`, '-out', `${name}.crt`],
  );
  return {
    file: join(directory, `${name}.crt`),
    issue(client, purpose = 'clientAuth', { subject = `/CN=${client}`, names } = {}) {
      openssl(
        ...['req', '-x509', ...EC_KEY, '-days', '2', '-subj', subject],
        ...['-CA', `${name}.crt`, '-CAkey', `${name}.key`],
        ...['-addext', 'basicConstraints=critical,CA:false'],
        ...['-addext', `extendedKeyUsage=${purpose}`],
        ...(names === undefined ? [] : ['-addext', names]),
        ...(purpose === 'serverAuth' ? ['-addext', `subjectAltName=DNS:${client}`] : []),
        ...['-keyout', `${client}.key`, '-out', `${client}.crt`],
      );
      const read = (end: string): string =>
        readFileSync(join(directory, `${client}.${end}`), 'utf8');
      return { cert: read('crt'), key: read('key') };
    },
  };
}
