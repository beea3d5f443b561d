import { createSecureContext } from 'node:tls';

/** Suites of TLS 1.3; their names are the same everywhere. */
const TLS13 = new Set([
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_128_CCM_SHA256',
  'TLS_AES_128_CCM_8_SHA256',
]);

const STANDARD =
  /^TLS_(?:(ECDHE)_(ECDSA|RSA)|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA\d*)|(CHACHA20_POLY1305)(?:_SHA256)?)$/;

/** A suite as OpenSSL calls it, where it is written with the name of the standard, as in a Caddyfile. */
export function openSslCipher(name: string): string {
  const [all, exchange, signature, bits, mode, digest] = STANDARD.exec(name) ?? [];
  if (all === undefined) return name;
  const agreed = exchange === undefined ? '' : `${exchange}-${signature}-`;
  if (bits === undefined) return `${agreed}CHACHA20-POLY1305`;
  return `${agreed}AES${bits}${mode === 'GCM' ? '-GCM' : ''}-${digest}`;
}

/** Whether a suite, by either name, can be used. */
export function isCipher(name: string): boolean {
  if (TLS13.has(name)) return true;
  const openSsl = openSslCipher(name);
  return !openSsl.startsWith('TLS_') && isAccepted({ ciphers: openSsl });
}

/** Whether a group for the key exchange can be used. */
export function isCurve(name: string): boolean {
  return isAccepted({ ecdhCurve: name });
}

function isAccepted(options: Parameters<typeof createSecureContext>[0]): boolean {
  try {
    createSecureContext(options);
    return true;
  } catch {
    // OpenSSL says only that nothing fits.
    return false;
  }
}
