import { isIP } from 'node:net';
import type { HubConfig, SiteConfig } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { addressSet, plainAddress } from '../http/forwarded.ts';
import { isPublicName } from '../tls/certificate-policy.ts';

/** Addresses that nobody reaches from elsewhere, and those that stand for all of a machine. */
const isInternal = addressSet([
  'private_ranges',
  '100.64.0.0/10',
  '169.254.0.0/16',
  'fc00::/7',
  'fe80::/10',
  '0.0.0.0',
  '::',
]);

/** Says aloud what the pages for trying things out open to everybody who reaches the site. */
export function checkPlayground(
  hub: HubConfig,
  { addresses, bind }: SiteConfig,
  report: Report,
): void {
  if (hub.playground) {
    const hosts = [
      ...addresses.map(({ host }) => host),
      ...bind.flatMap((one) => (one.kind === 'host' ? [one.host] : [])),
    ];
    const name = hosts.find(isPublic);
    if (name !== undefined && !hub.playgroundInsecure) {
      const what = isIP(bare(name)) === 0 ? 'name' : 'address';
      const message = `playground opens this hub to everybody, and ${name} is a public ${what}`;
      const hint = 'leave it out, use a name such as localhost, or write playground insecure';
      const finding = { severity: 'error', code: 'playground-in-public', message, hint } as const;
      report(hub, finding, { field: 'playground' });
      return;
    }
    const message =
      'playground opens this hub to everybody who reaches it: HUB/debug/playground-token gives a ' +
      'token that reads every update, private ones too, and may publish where publishers have the ' +
      'same key; anonymous, subscriptions and debugger are on; cors_origins and publish_origins ' +
      'are * unless they are set; the cookie loses its __Secure- prefix unless cookie_name is set; ' +
      '/ and /playground/… of the app are taken';
    const hint = 'for demonstrations only: leave it out elsewhere';
    report(
      hub,
      { severity: 'warning', code: 'playground', message, hint },
      { field: 'playground' },
    );
  } else if (hub.debugger) {
    const message =
      'debugger serves HUB/debug/ to everybody: a page to subscribe and publish with, and ' +
      'config.json with whether anonymous, subscriptions and 0.x are on and the names that the hub goes by';
    const hint = 'it gives no token away; leave it out where nobody needs it';
    report(hub, { severity: 'warning', code: 'debugger', message, hint }, { field: 'debugger' });
  }
}

function isPublic(host: string): boolean {
  const address = bare(host);
  return isIP(address) === 0 ? isPublicName(host) : !isInternal(plainAddress(address));
}

/** An IPv6 address without its brackets. */
function bare(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}
