import { JWKS_ALGORITHMS, staticKeySet } from '../auth/key.ts';
import { LEGACY_FIX, readsLegacyTokens } from '../auth/verify.ts';
import type { Config, HubConfig, KeySource, SiteConfig, TlsConfig } from '../config/config.ts';
import { parsePostgresUrl } from '../config/postgres-url.ts';
import { allHubs } from '../config/sites.ts';
import { type Report, nearestName, error, warning, tryCheck } from '../config/problem.ts';
import { parseUrl } from '../kernel/parse.ts';
import { deadLettersOf, identifiers } from '../outbox/outbox-sql.ts';
import { acceptedTopics } from '../outbox/row-updates.ts';
import {
  checkCertificates,
  checkLogFile,
  checkOptionFiles,
  checkSiteFiles,
  checkStorage,
  type ReadFile,
} from './check-files.ts';
import { checkDiscovery } from './check-discovery.ts';
import { checkBinds, checkListenerServers } from './listen-plan.ts';
import { checkHubsOfSite, checkLogFilters, checkPatterns } from './check-routes.ts';
import type { RouteConfig } from '../config/routes.ts';
import { defaultTls } from '../config/shape-config.ts';
import { hubPath } from './history-names.ts';
import { isIP } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { addressSet, plainAddress } from '../http/forwarded.ts';
import { isPublicName } from '../tls/certificate-policy.ts';
import { isCipher, isCurve, TLS12_CIPHERS } from '../tls/handshake-policy.ts';

/**
 * Checks the patterns and files that a configuration names. Each can be checked on its own, whatever else is
 * wrong.
 */
export function checkNamed({ options, sites }: Config, read: ReadFile, report: Report): void {
  checkOptionFiles(options, read, report);
  for (const log of [options.log, ...options.requestLogs]) {
    checkLogFile(log, report);
    checkLogFilters(log, report);
  }
  checkStorage(options, report);
  for (const site of sites) {
    checkPatterns(site, report);
    checkSiteFiles(site, read, report);
    checkHandshake(site.tls, report);
    for (const log of site.accessLogs) {
      checkLogFile(log, report);
      checkLogFilters(log, report);
    }
  }
}

/**
 * Checks what only the parts of a gateway can determine, without opening any: whether its keys can be used,
 * its tokens are valid for its hubs, and its names can get certificates.
 *
 * @param complete whether all sites are included, or only those without errors so far
 */
export function checkParts(
  config: Config,
  complete: boolean,
  read: ReadFile,
  report: Report,
): void {
  const { options, sites } = config;
  for (const site of sites) checkHubsOfSite(site, report);
  for (const { site, hub, further } of allHubs(config)) {
    checkPlayground(hub, site, report);
    checkGuards(hub, further ? hub.name : null, site.routes, report);
    checkHubKeys(hub, report);
    checkOutbox(hub, report);
    checkLegacyReader(hub, report);
  }
  // A hub that another site announces may belong to a site that is not included.
  const ofOneSite = sites.filter(({ discovery }) => discovery?.hub === null);
  checkDiscovery(complete ? config : { options, sites: ofOneSite }, report);
  checkCertificates(config, read, report);
  if (!complete) return;
  checkListenerServers(config, report);
  checkBinds(config, report);
  checkHandshakesOfWildcards(config, report);
}

/** Checks that a hub's keys can be used. */
export function checkHubKeys({ issuers, legacy }: HubConfig, report: Report): void {
  for (const { publisher, subscriber } of [...issuers, legacy]) {
    if (publisher !== null) checkKeySource(publisher, report);
    if (subscriber !== null) checkKeySource(subscriber, report);
  }
}

/** Checks that the address, the table and the topics of a hub's outbox can be used. */
function checkOutbox({ outbox }: HubConfig, report: Report): void {
  if (outbox === null) return;
  const attempt = (field: string, hint: string, check: () => void): void => {
    tryCheck(check, outbox, report, { field }, hint);
  };
  attempt('url', 'write postgres://USER@HOST:5432/DATABASE', () => {
    parsePostgresUrl(outbox.url.reveal());
  });
  attempt('table', 'write table hub_outbox', () => {
    deadLettersOf(identifiers(outbox.table));
  });
  attempt('topics', 'write topics /books/*', () => void acceptedTopics(outbox, BASE));
  for (const origin of outbox.origins) {
    const url = parseUrl(origin);
    if (url !== null && /^https?:$/.test(url.protocol) && url.origin === origin) continue;
    const message = `"${origin.slice(0, 80)}" is not an origin`;
    const hint = 'write scheme://host[:port], such as https://example.com';
    report(outbox, error('bad-origin', message, hint), { field: 'origins' });
  }
}

/** Patterns are only checked here. */
const BASE = 'https://hub.invalid/';

function checkLegacyReader(hub: HubConfig, report: Report): void {
  if (hub.protocolVersionCompatibility === null) return;
  const relaxed = 'hubgate ignores typ and aud of all tokens, and iss if there is one issuer';
  const hint =
    'every token signed with its keys is accepted; remove this option when hub_legacy_tokens_total no longer grows';
  const refused = 'this process does not read 0.x tokens, so it refuses them';
  const finding = readsLegacyTokens
    ? warning('legacy-relaxed', relaxed, hint)
    : warning('legacy-not-loaded', refused, LEGACY_FIX);
  report(hub, finding, { field: 'protocolVersionCompatibility' });
}

function checkKeySource(source: KeySource, report: Report): void {
  if (source.kind === 'jwt') {
    tryCheck(() => staticKeySet(source), source, report);
    return;
  }
  for (const algorithm of source.algorithms) {
    if (JWKS_ALGORITHMS.includes(algorithm)) continue;
    const message = `a JWK Set cannot verify "${algorithm.slice(0, 40)}"`;
    const hint = `use some of ${JWKS_ALGORITHMS.join(', ')}`;
    report(source, error('unsupported-algorithm', message, hint));
  }
}

/**
 * Warns if a `forward_auth` or `basic_auth` for every request comes before the hub. The hub has tokens of its
 * own: a publisher with a valid token, or a browser whose session the service no longer knows, would be rejected
 * before the request reaches the hub. A hub without issuers accepts no tokens, so a password in front of it is fine.
 *
 * @param name of a further hub of the site; null for the first
 */
function checkGuards(
  hub: HubConfig,
  name: string | null,
  routes: readonly RouteConfig[],
  report: Report,
): void {
  const before = guardsBeforeHub(routes, name);
  if (before === null) return;
  const path = hubPath(hub);
  for (const guard of before) {
    if (guard.kind === 'basic_auth' && hub.issuers.length === 0) continue;
    const lacking = guard.kind === 'basic_auth' ? 'password' : 'session';
    const message = `this ${guard.kind} has no matcher, so it guards the hub at ${path} as well: clients with a token but no ${lacking} are refused`;
    const hint =
      `write @app not path ${path} ${path}/* /.well-known/oauth-protected-resource${path}, and ` +
      `${guard.kind} @app …`;
    report(guard, warning('guarded-hub', message, hint));
  }
}

type Guard = Extract<RouteConfig['handler'], { readonly kind: 'forward_auth' | 'basic_auth' }>;

/** The guards that every request to the hub passes; null if the hub is not among these routes. */
function guardsBeforeHub(
  routes: readonly RouteConfig[],
  name: string | null,
): readonly Guard[] | null {
  const guards: Guard[] = [];
  for (const { matcher, handler } of routes) {
    if (handler.kind === 'hub' && handler.name === name) return guards;
    const isGuard = handler.kind === 'forward_auth' || handler.kind === 'basic_auth';
    if (isGuard && matcher === null) guards.push(handler);
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
function checkPlayground(hub: HubConfig, { addresses, bind }: SiteConfig, report: Report): void {
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
      report(hub, error('playground-in-public', message, hint), { field: 'playground' });
      return;
    }
    const message =
      'playground opens this hub to everyone who can reach it: HUB/debug/playground-token returns a ' +
      'token that can read every update, also private ones, and can publish if publishers and ' +
      'subscribers have the same key';
    const hint = 'use it only for demonstrations; docs/hubfile.md lists what else it changes';
    report(hub, warning('playground', message, hint), { field: 'playground' });
  } else if (hub.debugger) {
    const message =
      'debugger serves the page HUB/debug/ and some settings of the hub to everyone who can reach it';
    const hint =
      'it reveals no token; restrict it as in docs/debugger.md, or remove it where nobody needs it';
    report(hub, warning('debugger', message, hint), { field: 'debugger' });
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

/**
 * In Caddy, a site that sets nothing about its handshakes has the settings of the site whose wildcard covers its
 * name. So a site may be open that its operator takes for closed, or accept what its operator takes for refused.
 */
function checkHandshakesOfWildcards({ options, sites }: Config, report: Report): void {
  const secured = sites.flatMap(({ addresses, tls }) =>
    addresses
      .filter(({ scheme }) => scheme === 'https')
      .map((address) => ({ address, tls, port: address.port ?? options.httpsPort })),
  );
  const settled = new Map<string, TlsConfig>(
    secured
      .filter(({ tls }) => handshakeSettings(tls).length > 0)
      .map(({ address, tls, port }) => [`${address.host}:${port}`, tls] as const),
  );
  for (const { address, tls, port } of secured) {
    const { host } = address;
    if (host === '' || handshakeSettings(tls).length > 0) continue;
    const places = [`*${host.slice(host.indexOf('.'))}:${port}`, `:${port}`];
    const covering = places.find((place) => settled.has(place));
    const theirs = covering === undefined ? undefined : settled.get(covering);
    if (covering === undefined || theirs === undefined) continue;
    const other = covering.startsWith(':') ? `the site for any host on port ${port}` : covering;
    const mode = theirs.clientAuth?.mode;
    if (mode === 'require' || mode === 'require_and_verify') {
      const message = `${host} accepts clients without a certificate, but ${other} requires one`;
      const hint =
        'write its client_auth in the tls of this site as well, as Caddy applies it to both; a site with a setting of its own, such as alpn h2 http/1.1, is open on purpose';
      report(address, warning('open-beside-client-auth', message, hint));
    } else {
      const names = handshakeSettings(theirs).join(', ');
      const message = `${host} does not have what ${other} sets in its tls: ${names}`;
      const hint = 'write it in the tls of this site as well, as Caddy applies it to both';
      report(address, warning('tls-of-wildcard', message, hint));
    }
  }
}

/** What a site sets about its handshakes, by the names in its `tls`. */
function handshakeSettings(tls: TlsConfig): readonly string[] {
  const settings = ({ minVersion, maxVersion, ciphers, curves, alpn, clientAuth }: TlsConfig) => ({
    protocols: [minVersion, maxVersion],
    ciphers,
    curves,
    alpn,
    client_auth: clientAuth,
  });
  const defaults: Readonly<Record<string, unknown>> = settings(defaultTls);
  return Object.entries(settings(tls)).flatMap(([name, value]) =>
    isDeepStrictEqual(value, defaults[name]) ? [] : [name],
  );
}

const CURVES = ['X25519', 'secp256r1', 'secp384r1', 'secp521r1'];

/** Checks that OpenSSL knows the suites and curves of a site. */
function checkHandshake(tls: TlsConfig, report: Report): void {
  for (const name of tls.ciphers.filter((one) => !isCipher(one))) {
    report(tls, unknown('cipher suite', name, TLS12_CIPHERS), { field: 'ciphers' });
  }
  for (const name of tls.curves.filter((one) => !isCurve(one))) {
    report(tls, unknown('curve', name, CURVES), { field: 'curves' });
  }
}

function unknown(what: string, name: string, known: readonly string[]) {
  const nearest = nearestName(name, known);
  const message = `OpenSSL of this Node does not know the ${what} ${name.slice(0, 80)}`;
  const hint =
    nearest === undefined ? `for example ${known.join(' ')}` : `did you mean ${nearest}?`;
  return error('tls-unusable', message, hint);
}
