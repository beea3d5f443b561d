import { hkdfSync } from 'node:crypto';
import { isHmac, signingKey, staticKeySet } from '../auth/key.ts';
import type { HubConfig, StaticKeySource } from '../config/config.ts';
import type { Playground } from '../hub-http/endpoint.ts';
import { Secret } from '../kernel/secret.ts';
import type { TrustedIssuer } from '../auth/issuer.ts';

const ISSUER = 'urn:hubgate:playground';
const KEY_BYTES = 32;

/**
 * What the playground signs with and is verified with: a key of its own, so that its tokens end
 * with the option. It is made of the hub's secret and of a salt, which all workers have; null
 * without a subscriber's HMAC secret.
 *
 * @param salt null for who cannot know it: another process
 */
export function playgroundIssuer(
  config: HubConfig,
  salt: string | null,
): (TrustedIssuer & { readonly signer: NonNullable<Playground['signer']> }) | null {
  if (salt === null || !config.playground || config.issuers.length !== 1) return null;
  const [issuer] = config.issuers;
  if (issuer?.subscriber?.kind !== 'jwt') return null;
  const { key, algorithm } = issuer.subscriber;
  if (!isHmac(algorithm ?? 'HS256') || key.reveal() === '') return null;
  const { publisher } = issuer;
  const mayPublish = publisher?.kind === 'jwt' && publisher.key.bytes().equals(key.bytes());
  const bytes = new Uint8Array(hkdfSync('sha256', key.bytes(), salt, ISSUER, KEY_BYTES));
  const source: StaticKeySource = {
    kind: 'jwt',
    key: new Secret(Buffer.from(bytes).toString('base64url')),
    algorithm: null,
  };
  const keys = staticKeySet(source);
  return {
    id: ISSUER,
    publisher: mayPublish ? keys : null,
    subscriber: keys,
    own: true,
    signer: { issuer: ISSUER, key: signingKey(source.key, null), mayPublish },
  };
}
