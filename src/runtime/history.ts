import type { Config } from '../config/config.ts';
import { allHubs } from '../config/sites.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { History } from '../transports/history.ts';
import { openHistory } from '../transports/registry.ts';
import { historyNames } from './history-names.ts';
import { placedTransport, siteName } from './hub-place.ts';

export type { History, HistoryEntry } from '../transports/history.ts';

/**
 * Opens what a hub of a configuration has kept, beside or without the gateway that serves it.
 *
 * @param wanted the name of the hub or of its site; null when there is only one
 * @param storage directory of the gateway's storage, absolute
 * @throws HubgateError `invalid-argument` when it is not clear which; what opening throws
 */
export async function openHistoryOf(
  config: Config,
  wanted: string | null,
  { storage, clock }: { readonly storage: string; readonly clock: Clock },
): Promise<History> {
  const kept = historyNames(config, storage);
  const hubs = allHubs(config).map(({ site, hub, further }) => {
    const ofSite = [siteName(site), ...site.addresses.map(({ host }) => host)];
    const names = further ? [hub.name] : [hub.name, ...ofSite];
    return { hub, site: siteName(site), kept: kept.of(site, hub), names };
  });
  const meant = wanted === null ? hubs : hubs.filter(({ names }) => names.includes(wanted));
  const [one] = meant;
  if (one === undefined || meant.length > 1) {
    const known = hubs.map(({ site, hub }) => (hub.name === 'default' ? site : hub.name));
    const message =
      known.length === 0
        ? 'This configuration has no hub'
        : `Say whose history is meant: --hub ${known.join(' or --hub ')}`;
    throw new HubgateError('invalid-argument', message);
  }
  return openHistory(placedTransport(one.kept, one.hub, storage), clock);
}
