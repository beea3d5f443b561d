import type { TlsConfig } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import type { Report } from '../config/problem.ts';
import { isCipher, isCurve } from '../tls/cipher-names.ts';
import { TLS12_CIPHERS } from '../tls/handshake-policy.ts';

const CURVES = ['X25519', 'secp256r1', 'secp384r1', 'secp521r1'];

/** Whether OpenSSL knows the suites and curves that a site names. */
export function checkHandshake(tls: TlsConfig, report: Report): void {
  for (const name of tls.ciphers.filter((one) => !isCipher(one))) {
    report(tls, unknown('cipher suite', name, TLS12_CIPHERS), { field: 'ciphers' });
  }
  for (const name of tls.curves.filter((one) => !isCurve(one))) {
    report(tls, unknown('curve', name, CURVES), { field: 'curves' });
  }
}

function unknown(what: string, name: string, known: readonly string[]) {
  const nearest = nearestName(name, known);
  return {
    severity: 'error',
    code: 'tls-unusable',
    message: `this Node's OpenSSL knows no ${what} ${name.slice(0, 80)}`,
    hint: nearest === undefined ? `for example ${known.join(' ')}` : `did you mean ${nearest}?`,
  } as const;
}
