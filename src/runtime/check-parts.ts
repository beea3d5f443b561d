import { JWKS_ALGORITHMS } from '../auth/algorithms.ts';
import { staticKeySet } from '../auth/key.ts';
import { LEGACY_CURE, readsLegacyTokens } from '../auth/verify.ts';
import type { Config, HubConfig, KeySource } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { HubgateError } from '../kernel/error.ts';
import { checkCertificates } from './check-certificates.ts';
import { checkDiscovery } from './check-discovery.ts';

/**
 * What only the parts of a gateway can tell of a configuration, without opening any: whether its
 * keys can be used, its tokens are good for its hubs, and its names can get certificates.
 */
export function checkParts(config: Config, report: Report): void {
  for (const { hub } of config.sites) {
    if (hub === null) continue;
    checkHubKeys(hub, report);
    checkLegacyReader(hub, report);
  }
  checkDiscovery(config, report);
  checkCertificates(config, report);
}

/** Whether a hub's keys can be used. */
export function checkHubKeys({ issuers, legacy }: HubConfig, report: Report): void {
  for (const { publisher, subscriber } of [...issuers, legacy]) {
    if (publisher !== null) checkKeySource(publisher, report);
    if (subscriber !== null) checkKeySource(subscriber, report);
  }
}

function checkLegacyReader(hub: HubConfig, report: Report): void {
  if (hub.protocolVersionCompatibility === null || readsLegacyTokens) return;
  report(
    hub,
    {
      severity: 'warning',
      code: 'legacy-not-loaded',
      message: 'tokens of 0.x clients will be refused: this process does not read them',
      hint: LEGACY_CURE,
    },
    { field: 'protocolVersionCompatibility' },
  );
}

function checkKeySource(source: KeySource, report: Report): void {
  if (source.kind === 'jwt') {
    attempt(source, report, () => staticKeySet(source));
    return;
  }
  for (const algorithm of source.algorithms) {
    if (JWKS_ALGORITHMS.includes(algorithm)) continue;
    report(source, {
      severity: 'error',
      code: 'unsupported-algorithm',
      message: `a JWK Set cannot verify "${algorithm.slice(0, 40)}"`,
      hint: `use some of ${JWKS_ALGORITHMS.join(', ')}`,
    });
  }
}

function attempt(about: object, report: Report, use: () => unknown): void {
  try {
    use();
  } catch (error) {
    if (!(error instanceof HubgateError)) throw error;
    report(about, { severity: 'error', code: error.code, message: error.message });
  }
}
