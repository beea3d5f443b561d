import { hkdfSync, randomBytes } from 'node:crypto';
import type { Config, HubConfig, StaticKeySource } from '../config/config.ts';
import { allHubs, type HubOfSite } from '../config/sites.ts';
import { hubPath, siteName } from './history-names.ts';
import { isHmac, signingKey, staticKeySet } from '../auth/key.ts';
import type { Playground } from '../hub-http/endpoint.ts';
import { Secret } from '../kernel/secret.ts';
import type { TrustedIssuer } from '../auth/issuer.ts';

const SALT_BYTES = 32;

/** By hub. */
export type Salts = Readonly<Record<string, string>>;

/**
 * The salts for the playgrounds' keys: random, and constant for as long as a hub has the option. So the
 * tokens become invalid when the option is removed, and stay invalid if it is added again.
 */
export class PlaygroundSalts {
  #kept: Salts = {};

  /** The salts of the active configuration, and new ones for hubs that do not have one yet. */
  for(config: Config): Salts {
    return Object.fromEntries(
      allHubs(config).flatMap((one) => {
        if (!one.hub.playground) return [];
        const name = saltName(one);
        return [[name, this.#kept[name] ?? randomBytes(SALT_BYTES).toString('base64url')]];
      }),
    );
  }

  /** Stores the salts of the configuration that is now active. */
  keep(salts: Salts): void {
    this.#kept = salts;
  }
}

/** The name of the hub's salt; a hub with another address is another playground. */
export function saltName({ site, hub, further }: HubOfSite): string {
  return `${siteName(site)} ${hubPath(hub)}${further ? ` ${hub.name}` : ''}`;
}

const ISSUER = 'urn:hubgate:playground';
const KEY_BYTES = 32;

/**
 * The issuer of the playground, which signs and verifies with a key of its own, so that its tokens end with
 * the option. The key is derived from the hub's secret and a salt that all workers share; null without an
 * HMAC secret for subscribers.
 *
 * @param salt null in another process, which cannot know it
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
