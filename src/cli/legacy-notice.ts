import { readsLegacyTokens } from '../auth/verify.ts';
import type { Config, HubConfig } from '../config/config.ts';
import { allHubs, siteAddressText } from '../config/sites.ts';
import { profiles } from '../hub/profile.ts';
import type { Logger } from '../kernel/log.ts';

/** Says which hubs speak with clients of 0.x, and what they take from them. */
export function announceLegacy(log: Logger, config: Config): void {
  for (const { site, hub } of allHubs(config)) {
    if (hub.protocolVersionCompatibility === null) continue;
    log.info('Clients of 0.x are understood', {
      site: site.addresses.map(siteAddressText).join(', '),
      deprecated_claim: readsLegacyTokens ? 'on' : 'off',
      accepts: acceptedBy(hub).join(', ') || 'nothing',
    });
  }
}

function acceptedBy({ profile, legacyForms }: HubConfig): readonly string[] {
  const { legacyClaim, legacyCookieName } = profiles[profile];
  const { strings, topics, templates } = legacyForms;
  const tokens = [
    `claim ${legacyClaim}`,
    'query authorization',
    `cookie ${legacyCookieName}`,
    ...(strings ? ['strings'] : []),
  ];
  return [
    ...(readsLegacyTokens ? tokens : []),
    ...(topics ? ['topics'] : []),
    ...(templates ? ['templates'] : []),
  ];
}
