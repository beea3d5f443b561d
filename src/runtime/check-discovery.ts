import { registry } from '../directives/registry.ts';
import type {
  AliasConfig,
  ChangesConfig,
  Config,
  DiscoveryConfig,
  HubConfig,
  SiteConfig,
} from '../config/config.ts';
import { dataOf, type RouteConfig } from '../config/routes.ts';
import { defaultDiscovery } from '../config/shape-hub.ts';
import { type Report, type UnplacedProblem, error, tryCheck, warning } from '../config/problem.ts';
import { cookieDomain } from '../discovery/credentials.ts';
import { compileGrants, grantTemplates } from '../discovery/token-source.ts';
import { removerOf } from '../discovery/page-state.ts';
import { registrableDomain } from '../http/same-site.ts';
import { checkTokenIdentity, checkTokenMint } from './check-tokens.ts';
import { type HubPlace, placeOfHub } from './history-names.ts';
import { parseUrl, requireUrl } from '../kernel/parse.ts';

/** Checks that announced hubs exist, and that tokens reach the hub and are valid there. */
export function checkDiscovery(config: Config, report: Report): void {
  for (const site of config.sites) {
    const { discovery } = site;
    if (discovery === null) continue;
    const place = placeOfHub(site, config);
    if (place === null) {
      // A site that has no hub and names none is reported together with the configuration.
      if (discovery.hub !== null) report(discovery, noSuchHub(discovery.hub), { field: 'hub' });
      continue;
    }
    if (place.kind === 'site' && place.host === '') {
      report(discovery, namelessHub(), { field: 'hub' });
      continue;
    }
    checkCookie(site, discovery, place, report);
    checkTokenSource(discovery, place, report);
    checkChanges(site, discovery, place, report);
    checkAliases(discovery, report);
    checkTokenIdentity(site, discovery, report);
  }
}

function noSuchHub(named: string): UnplacedProblem {
  return error(
    'unknown-hub',
    `this gateway has no hub at ${named.slice(0, 80)}`,
    'write the address of a site with a hub, or the URL of a hub elsewhere: https://…',
  );
}

function namelessHub(): UnplacedProblem {
  return error(
    'unknown-hub',
    'another site cannot announce a hub whose site has no host name',
    'give the site of the hub an address with a host name',
  );
}

/** Browsers keep a cookie within one registrable domain, whatever a gateway sends (seed §5.3). */
function checkCookie(
  { addresses }: SiteConfig,
  discovery: DiscoveryConfig,
  place: HubPlace,
  report: Report,
): void {
  const { domain } = discovery.cookie;
  const wanted = discovery.tokenSource !== null || changesCookie(discovery);
  if (domain !== null && registrableDomain(domain) === null) {
    const message = `browsers accept no cookie for all of ${domain}`;
    const hint = 'use at least a registrable domain, such as example.com';
    report(discovery.cookie, error('bad-cookie-domain', message, hint), { field: 'domain' });
    return;
  }
  for (const { host } of addresses) {
    const pageHost = host.replace(/^\*\./, 'any.');
    const hubHost = place.kind === 'own' ? pageHost : place.host;
    if (cookieDomain(pageHost, hubHost, domain) !== undefined) continue;
    const shared = registrableDomain(hubHost);
    if (domain !== null) {
      const message = `the domain ${domain} does not cover both this site (${shown(host)}) and its hub (${hubHost})`;
      report(discovery.cookie, error('bad-cookie-domain', message), { field: 'domain' });
    } else if (shared !== null && shared === registrableDomain(pageHost)) {
      const message = `the access-token cookie stays with ${shown(host)} and never reaches the hub on ${hubHost}`;
      const hint = `add cookie { domain ${shared} }`;
      const finding = error('cookie-without-domain', message, hint);
      report(discovery, wanted ? finding : { ...finding, severity: 'warning' });
    } else if (wanted) {
      const message = `a cookie of ${shown(host)} can never reach the hub on ${hubHost}: browsers keep cookies within one registrable domain`;
      const hint =
        'serve the hub on the same domain, or let the page send its token itself, with fetch() and an Authorization header';
      report(discovery, error('cookie-across-sites', message, hint));
    }
    return;
  }
}

/** Whether the operator has set an option of the cookie. */
function changesCookie({ cookie }: DiscoveryConfig): boolean {
  const { fromHeader, sameSite } = defaultDiscovery.cookie;
  return cookie.fromHeader !== fromHeader || cookie.sameSite !== sameSite || cookie.domain !== null;
}

function checkTokenSource(
  { tokenSource: source }: DiscoveryConfig,
  place: HubPlace,
  report: Report,
): void {
  if (source === null) return;
  if (!tryCheck(() => compileGrants(source), source, report, { field: 'payload' })) return;
  if (source.kind === 'mint') {
    checkTokenMint(source, place.kind === 'elsewhere' ? null : place.hub, report);
    return;
  }
  if (parseUrl(source.endpoint) === null || !/^https?:\/\/[^@]*$/i.test(source.endpoint)) {
    const message = 'endpoint must be an http: or https: URL without a user';
    report(source, error('bad-url', message), { field: 'endpoint' });
  } else if (isUnprotected(requireUrl(source.endpoint))) {
    const message = 'endpoint is an http: URL: secrets and tokens would be sent unencrypted';
    report(source, warning('insecure-url', message), { field: 'endpoint' });
  }
  if (source.subjectToken === null && grantTemplates({ ...source, payload: null }).length === 0) {
    const message =
      'without subject_token the gateway asks for a token of its own, but these options ask for no grant';
    const hint = 'add subject_token {cookie.session}, or subscribe with the topics to ask for';
    report(source, error('empty-exchange', message, hint));
  }
}

/** The gateway can announce changes only to a hub of its own, because it writes them to the hub's history. */
function checkChanges(
  site: SiteConfig,
  discovery: DiscoveryConfig,
  place: HubPlace,
  report: Report,
): void {
  const { changes, live } = discovery;
  const field = changes.length === 0 ? 'live' : 'changes';
  if (place.kind === 'elsewhere') {
    if (changes.length === 0 && live === null) return;
    const message = `${field} needs a hub of this gateway, but this hub is elsewhere`;
    report(discovery, error('hub-elsewhere', message), { field });
    return;
  }
  const sign = signOfCredentials(site, discovery, place.hub);
  for (const one of changes) {
    if (one.visibility === null) reportVisibility(one, sign, report);
    checkWatch(one, report);
  }
}

/** Regular expressions of one watched page: each of them reads the whole page. */
const MAX_IGNORED = 16;

function checkWatch(changes: ChangesConfig, report: Report): void {
  const { watchMs, ignore } = changes;
  if (ignore.length === 0) return;
  if (watchMs === null) {
    const hint = 'add watch 5s, or remove ignore';
    report(changes, error('ignore-without-watch', 'ignore needs watch', hint), { field: 'ignore' });
  } else if (ignore.length > MAX_IGNORED) {
    const message = `more than ${MAX_IGNORED} regular expressions in ignore`;
    report(changes, error('too-many-ignored', message, 'join them with |'), { field: 'ignore' });
  }
  for (const source of ignore) {
    tryCheck(() => removerOf(source), changes, report, { field: 'ignore' });
  }
}

function reportVisibility(changes: ChangesConfig, sign: string | null, report: Report): void {
  const hint =
    'public: everyone who may subscribe learns which URL has changed, and nothing else; ' +
    'private: only subscribers with a token for that URL. Write changes public, or changes private';
  if (sign !== null) {
    const message = `${sign}, so say whether changes are public or private`;
    report(changes, error('changes-visibility', message, hint));
    return;
  }
  const message =
    'changes by requests with Cookie or Authorization are private, so only subscribers with a token receive them';
  report(changes, warning('changes-visibility', message, hint));
}

/**
 * Most aliases of a site, forms of an alias, and characters of a form: the script's tag contains all of them.
 */
const MAX_ALIASES = 16;
const MAX_FORMS = 8;
const MAX_FORM_LENGTH = 256;

function checkAliases({ aliases }: DiscoveryConfig, report: Report): void {
  for (const [index, alias] of aliases.entries()) {
    const problem = index < MAX_ALIASES ? problemOf(alias) : `more than ${MAX_ALIASES} aliases`;
    if (problem === null) continue;
    const hint = 'write alias /index.php/{page} /index.php?title={page}';
    report(alias, error('bad-alias', `not an alias: ${problem}`, hint));
  }
}

function problemOf({ topic, forms }: AliasConfig): string | null {
  if (forms.length > MAX_FORMS) return `an alias has at most ${MAX_FORMS} further forms`;
  const wanted = namesIn(topic);
  for (const form of [topic, ...forms]) {
    const shown = form.slice(0, 80);
    if (form.length > MAX_FORM_LENGTH)
      return `${shown}… has more than ${MAX_FORM_LENGTH} characters`;
    if (!/^\/[^\s#]*$/.test(form)) return `${shown} is not a path with a query`;
    const names = namesIn(form);
    if (new Set(names).size < names.length) return `${shown} has a name twice`;
    if (/[{}]/.test(form.replace(/\{\w+\}/g, ''))) return `${shown} has a brace without a name`;
    const missing = wanted.find((name) => !names.includes(name));
    if (missing !== undefined) return `${shown} has no {${missing}}, which the topic contains`;
  }
  return null;
}

function namesIn(form: string): string[] {
  return [...form.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
}

/** The reason to assume that requests to a site have credentials; null if there is none. */
function signOfCredentials(
  { tls, routes }: SiteConfig,
  { tokenSource }: DiscoveryConfig,
  { anonymous }: HubConfig,
): string | null {
  if (tokenSource !== null) return `requests carry credentials (token ${tokenSource.kind})`;
  if (tls.clientAuth !== null) return 'requests carry credentials (client_auth)';
  const identifying = identifyingKind(routes);
  if (identifying !== null) return `requests carry credentials (${identifying})`;
  return anonymous ? null : 'the hub requires a token to subscribe';
}

/** The name of the first directive that asks users who they are; null if there is none. */
function identifyingKind(routes: readonly RouteConfig[]): string | null {
  for (const { handler } of routes) {
    const data = dataOf(handler, registry);
    const found =
      data.identifies === true ? handler.kind : identifyingKind(data.nested?.(handler) ?? []);
    if (found !== null) return found;
  }
  return null;
}

function isUnprotected({ protocol, hostname }: URL): boolean {
  const isLocal = hostname === 'localhost' || hostname === '127.0.0.1' || hostname === '[::1]';
  return protocol === 'http:' && !isLocal;
}

function shown(host: string): string {
  return host === '' ? 'a site without a host name' : host;
}
