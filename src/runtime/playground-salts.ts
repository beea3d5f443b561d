import { randomBytes } from 'node:crypto';
import type { Config } from '../config/config.ts';
import { allHubs, type HubOfSite } from '../config/sites.ts';
import { hubPath, siteName } from './hub-place.ts';

const SALT_BYTES = 32;

/** By hub. */
export type Salts = Readonly<Record<string, string>>;

/**
 * What the playgrounds' keys are made with: random, and the same for as long as a hub has the option.
 * So its tokens end with it, and do not come back with it.
 */
export class PlaygroundSalts {
  #kept: Salts = {};

  /** Those of the configuration in force, and new ones for what it has not. */
  for(config: Config): Salts {
    return Object.fromEntries(
      allHubs(config).flatMap((one) => {
        if (!one.hub.playground) return [];
        const name = saltName(one);
        return [[name, this.#kept[name] ?? randomBytes(SALT_BYTES).toString('base64url')]];
      }),
    );
  }

  /** These are of the configuration in force now. */
  keep(salts: Salts): void {
    this.#kept = salts;
  }
}

/** Whose salt it is; a hub under another address is another playground. */
export function saltName({ site, hub, further }: HubOfSite): string {
  return `${siteName(site)} ${hubPath(hub)}${further ? ` ${hub.name}` : ''}`;
}
