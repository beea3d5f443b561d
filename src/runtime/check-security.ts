import type { HubConfig, SiteConfig, TlsConfig } from '../config/config.ts';
import type { RouteConfig } from '../config/routes.ts';
import type { Report } from '../config/problem.ts';
import { hubPath } from './hub-place.ts';
import { isIP } from 'node:net';
import { addressSet, plainAddress } from '../http/forwarded.ts';
import { isPublicName } from '../tls/certificate-policy.ts';
import { nearestName } from '../config/nearest.ts';
import { isCipher, isCurve, TLS12_CIPHERS } from '../tls/handshake-policy.ts';

/**
 * Warns if a `forward_auth` for every request comes before the hub. The hub has tokens of its own: a
 * publisher with a valid token, or a browser whose session the service no longer knows, would be rejected
 * before the request reaches the hub.
 *
 * @param name of a further hub of the site; null for the first
 */
export function checkGuards(
  hub: HubConfig,
  name: string | null,
  routes: readonly RouteConfig[],
  report: Report,
): void {
  const before = guardsBeforeHub(routes, name);
  if (before === null) return;
  const path = hubPath(hub);
  for (const guard of before) {
    report(guard, {
      severity: 'warning',
      code: 'guarded-hub',
      message: `this forward_auth has no matcher, so it guards the hub at ${path} as well: clients with a token but no session are refused`,
      hint:
        `write @app not path ${path} ${path}/* /.well-known/oauth-protected-resource${path}, and ` +
        'forward_auth @app …',
    });
  }
}

/** The guards that every request to the hub passes; null if the hub is not among these routes. */
function guardsBeforeHub(
  routes: readonly RouteConfig[],
  name: string | null,
): readonly object[] | null {
  const guards: object[] = [];
  for (const { matcher, handler } of routes) {
    if (handler.kind === 'hub' && handler.name === name) return guards;
    if (handler.kind === 'forward_auth' && matcher === null) guards.push(handler);
    if (handler.kind !== 'handle' && handler.kind !== 'route') continue;
    const inside = guardsBeforeHub(handler.routes, name);
    if (inside !== null) return [...guards, ...inside];
  }
  return null;
}

/** Addresses that cannot be reached from other machines, and those that mean all interfaces. */
const isInternal = addressSet([
  'private_ranges',
  '100.64.0.0/10',
  '169.254.0.0/16',
  'fc00::/7',
  'fe80::/10',
  '0.0.0.0',
  '::',
]);

/** Warns about what the demonstration pages open to every client that reaches the site. */
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
      const message = `playground opens this hub to everyone, and ${name} is a public ${what}`;
      const hint = 'leave it out, use a name such as localhost, or write playground insecure';
      const finding = { severity: 'error', code: 'playground-in-public', message, hint } as const;
      report(hub, finding, { field: 'playground' });
      return;
    }
    const message =
      'playground opens this hub to everyone who can reach it: HUB/debug/playground-token returns a ' +
      'token that reads every update, private ones too, and may publish where publishers have the ' +
      'same key; anonymous, subscriptions and debugger are on; cors_origins and publish_origins ' +
      'are * unless they are set; the cookie loses its __Secure- prefix unless cookie_name is set; ' +
      '/ and /playground/… of the app are taken';
    const hint = 'for demonstrations only: remove it elsewhere';
    report(
      hub,
      { severity: 'warning', code: 'playground', message, hint },
      { field: 'playground' },
    );
  } else if (hub.debugger) {
    const message =
      'debugger serves HUB/debug/ to everyone: a page to subscribe and publish, and ' +
      'config.json with whether anonymous, subscriptions and 0.x are on and the names that the hub goes by';
    const hint = 'it reveals no token; remove it where nobody needs it';
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

const CURVES = ['X25519', 'secp256r1', 'secp384r1', 'secp521r1'];

/** Checks that OpenSSL knows the suites and curves of a site. */
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
    message: `OpenSSL of this Node does not know the ${what} ${name.slice(0, 80)}`,
    hint: nearest === undefined ? `for example ${known.join(' ')}` : `did you mean ${nearest}?`,
  } as const;
}
