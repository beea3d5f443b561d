import { type Check, inspectToken } from '../auth/inspect.ts';
import { describeGranted } from '../auth/authorization-details.ts';
import { readsLegacyTokens } from '../auth/verify.ts';
import type { Config, HubConfig } from '../config/config.ts';
import { allHubs } from '../config/sites.ts';
import { profiles } from '../hub/profile.ts';
import { systemClock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { silentLogger } from '../kernel/log.ts';
import { Scope } from '../kernel/scope.ts';
import { Scheduler } from '../kernel/scheduler.ts';
import { hubPath, originOf } from '../runtime/history-names.ts';
import { createKeySets, openVerification } from '../runtime/hub-setup.ts';
import { type ConfigSource, environmentOf } from './config-source.ts';
import { readConfig } from './read-config.ts';

export interface InspectFlags extends ConfigSource {
  readonly url?: string;
  readonly action?: 'publish' | 'subscribe';
  readonly topic?: string;
}

export interface Inspection {
  /** What the token was checked for. */
  readonly action: 'publish' | 'subscribe';
  readonly checks: readonly Check[];
  /** Lines about what the token grants, verified or not. */
  readonly granted: readonly string[];
}

interface ConfiguredHub {
  readonly config: HubConfig;
  /** The URLs of the hub's site. */
  readonly urls: readonly string[];
}

/**
 * The result of each check of a configuration's hub for a token, and what the token grants.
 *
 * @throws HubgateError `invalid-argument` if it is not clear which hub is meant; ConfigError
 */
export async function inspect(token: string, flags: InspectFlags): Promise<Inspection> {
  const { config } = readConfig(flags, environmentOf(flags));
  const hub = chooseHub(configuredHubs(config), flags.url);
  const scope = new Scope();
  try {
    const around = {
      keySets: createKeySets(),
      clock: systemClock,
      scheduler: new Scheduler(),
      log: silentLogger,
      // Only the running gateway knows it.
      playgroundSalt: null,
    };
    const verification = await openVerification(hub.config, around, scope);
    const granted = describeGranted(token, {
      detailType: verification.detailType,
      legacyClaim: profiles[hub.config.profile].legacyClaim,
      compatible: hub.config.protocolVersionCompatibility !== null,
      readsLegacy: readsLegacyTokens,
    });
    const grants = (one: string): boolean => granted.some((line) => line.startsWith(`  ${one} `));
    const onlyPublishes = grants('publish') && !grants('subscribe');
    const action = flags.action ?? (onlyPublishes ? 'publish' : 'subscribe');
    const checks = await inspectToken(token, verification, {
      action,
      audience: hub.config.resourceIdentifier ?? flags.url ?? hub.urls[0] ?? '',
      topic: flags.topic ?? null,
    });
    return { action, checks, granted };
  } finally {
    await scope.close();
  }
}

function configuredHubs(config: Config): ConfiguredHub[] {
  return allHubs(config).map(({ site, hub }) => {
    const urls = site.addresses.map((address) => {
      const reached = { ...address, host: address.host || 'localhost' };
      return originOf(reached, config) + hubPath(hub);
    });
    return { config: hub, urls };
  });
}

function chooseHub(hubs: readonly ConfiguredHub[], url: string | undefined): ConfiguredHub {
  const named = hubs.find(({ urls }) => url !== undefined && urls.includes(url));
  const chosen = named ?? (hubs.length === 1 ? hubs[0] : undefined);
  if (chosen !== undefined) return chosen;
  const known = hubs.flatMap(({ urls }) => urls).join(', ');
  throw new HubgateError(
    'invalid-argument',
    hubs.length === 0 ? 'This configuration has no hub' : `Choose a hub with --url: ${known}`,
  );
}
