import type { HubConfig, IssuerConfig, KeySource, SiteConfig } from './config.ts';
import { type Report, error, warning } from './problem.ts';
import { parseUrl, requireUrl } from '../kernel/parse.ts';
import { isFetchable } from './well-formed.ts';

/** Secrets of examples and demonstrations, which are publicly known. */
const DEMO_SECRETS = new Set([
  '!ChangeMe!',
  '!ChangeThisHubJWTSecretKey!',
  '!ChangeThisMercureHubJWTSecretKey!',
]);
/** The least length of a secret by algorithm, in bytes (RFC 7518 §3.2). */
export const SECRET_BYTES: Readonly<Record<string, number>> = { HS256: 32, HS384: 48, HS512: 64 };
const LEGACY_HINT = 'remove it when no client needs it: see docs/from-mercure.md';
const SECURE_COOKIE = /^__(?:Secure|Host)-/;

/** Checks a hub for errors and warnings, except those that need cryptography. */
export function checkHub(hub: HubConfig, site: SiteConfig, report: Report): void {
  checkIssuers(hub, report);
  checkLegacy(hub, report);
  checkLegacyForms(hub, report);
  checkVerifiers(hub, site, report);
  checkOrigins(hub, report);
  checkUrls(hub, site, report);
  checkCookie(hub, site, report);
}

function checkIssuers({ issuers }: HubConfig, report: Report): void {
  const known = new Map<string, IssuerConfig>();
  for (const issuer of issuers) {
    const other = known.get(issuer.id);
    if (issuer.id === '') {
      report(issuer, error('empty-issuer', 'the id of an issuer must not be empty'), {
        field: 'id',
      });
    } else if (other !== undefined) {
      const message = `the issuer ${issuer.id} is declared twice`;
      report(issuer, error('duplicate-issuer', message), { other });
    }
    known.set(issuer.id, issuer);
    checkIssuerScheme(issuer, report);
    if (issuer.publisher === null && issuer.subscriber === null) {
      const message = `the issuer ${issuer.id} has neither a publisher nor a subscriber key`;
      const hint =
        'add publisher { jwt … } or subscriber { jwks_uri … }, and set the variables in them';
      report(issuer, error('issuer-without-keys', message, hint));
    }
    for (const source of [issuer.publisher, issuer.subscriber]) checkKeySource(source, report);
  }
}

/** A token's `iss` is a URL (RFC 9068 §2.2), compared byte for byte. */
function checkIssuerScheme(issuer: IssuerConfig, report: Report): void {
  if (issuer.id === '' || /^[a-z][a-z0-9+.-]*:/i.test(issuer.id)) return;
  const message = `the issuer ${issuer.id} has no scheme, and the "iss" of tokens is a URL`;
  const hint = `write it exactly as in the tokens, probably https://${issuer.id}`;
  report(issuer, warning('issuer-without-scheme', message, hint), { field: 'id' });
}

function checkLegacy({ legacy, protocolVersionCompatibility }: HubConfig, report: Report): void {
  const sources = [legacy.publisher, legacy.subscriber].filter((source) => source !== null);
  for (const source of sources) checkKeySource(source, report);
  if (sources.length === 0 || protocolVersionCompatibility !== null) return;
  const message = 'publisher_jwt, subscriber_jwt and the like need protocol_version_compatibility';
  const hint = 'declare an issuer instead, or add protocol_version_compatibility 8';
  report(sources[0] ?? null, error('legacy-without-compatibility', message, hint));
}

/** Each form accepts more than 1.0 does, so operators that switch one on get a warning. */
function checkLegacyForms(
  { legacyForms, protocolVersionCompatibility }: HubConfig,
  report: Report,
): void {
  const { strings, topics, templates } = legacyForms;
  if ((strings || topics || templates) && protocolVersionCompatibility === null) {
    const message = 'strings, topics and templates need protocol_version_compatibility';
    report(legacyForms, error('legacy-without-compatibility', message, 'set it to 8'));
    return;
  }
  if (templates && !strings && !topics) {
    const message = 'templates changes how strings and topics are read, and neither option is set';
    report(legacyForms, error('legacy-templates-alone', message, 'add strings or topics'), {
      field: 'templates',
    });
    return;
  }
  const also = templates ? ', and a URI Template all of its expansions' : '';
  if (strings) {
    const message = `a bare string in a 0.x token is a grant: "*" grants everything${also}`;
    report(legacyForms, warning('legacy-strings', message, LEGACY_HINT), { field: 'strings' });
  }
  if (topics) {
    const message = `"topic" in a query subscribes: "*" to everything${also}`;
    report(legacyForms, warning('legacy-topics', message, LEGACY_HINT), { field: 'topics' });
  }
}

function checkVerifiers(hub: HubConfig, site: SiteConfig, report: Report): void {
  const has = (role: 'publisher' | 'subscriber'): boolean =>
    hub.legacy[role] !== null || hub.issuers.some((issuer) => issuer[role] !== null);
  const missing = 'a JWT key or the URL of a JWK Set is missing';
  if (!has('publisher') && !publishesByGateway(hub, site)) {
    const hint =
      'issuer <id> { publisher { jwt … } }, or discovery { changes public } where only the gateway publishes';
    report(hub, error('no-publisher-key', `publishers: ${missing}`, hint));
  }
  if (!has('subscriber') && !hub.anonymous && !hub.playground) {
    const hint = 'issuer <id> { subscriber { jwt … } }, or anonymous if all updates are public';
    report(hub, error('no-subscriber-key', `subscribers: ${missing}`, hint));
  }
}

/** Whether the gateway itself announces changes to this hub, for which it needs no token. */
function publishesByGateway(hub: HubConfig, { discovery, hub: first }: SiteConfig): boolean {
  if (hub.outbox !== null) return true;
  return (
    hub === first && discovery !== null && discovery.hub === null && discovery.changes.length > 0
  );
}

function checkKeySource(source: KeySource | null, report: Report): void {
  if (source === null) return;
  if (source.kind === 'jwks') {
    const url = parseUrl(source.uri);
    if (url?.protocol !== 'file:' && !isFetchable(source.uri)) {
      const message = 'jwks_uri is an https: or http: URL without a user, or a file: URL';
      report(source, error('bad-url', message), { field: 'uri' });
    } else if (url?.protocol === 'http:' && isPublicName(url.hostname)) {
      const message =
        'jwks_uri is an http: URL: anyone who can change the response on its way can sign tokens';
      report(source, warning('insecure-url', message), { field: 'uri' });
    }
    return;
  }
  const secret = source.key.reveal();
  // What is left of a file that cannot be read, which has been reported.
  if (secret.includes('-----BEGIN') || secret.startsWith('{file.')) return;
  if (DEMO_SECRETS.has(secret)) {
    const message = 'this key is a public demonstration key';
    report(source, warning('demo-key', message, 'generate one: openssl rand -base64 48'));
    return;
  }
  const algorithm = source.algorithm ?? 'HS256';
  const needed = SECRET_BYTES[algorithm];
  const bytes = source.key.bytes().length;
  if (needed === undefined || bytes >= needed) return;
  const message = `this secret has ${bytes} bytes, ${algorithm} needs at least ${needed} (RFC 7518 §3.2)`;
  report(source, warning('short-secret', message, 'generate one: openssl rand -base64 48'));
}

/** Whether a host may be reached through the internet: neither an address nor a name of an internal network. */
function isPublicName(host: string): boolean {
  const isInternal = /\.(?:internal|local|localhost|lan|home\.arpa|svc|cluster\.local)$/i.test(
    host,
  );
  return host.includes('.') && !isInternal && !/^[\d.]+$/.test(host);
}

function checkOrigins(hub: HubConfig, report: Report): void {
  for (const field of ['corsOrigins', 'publishOrigins'] as const) {
    for (const origin of hub[field]) {
      if (isOrigin(origin)) continue;
      const message = `"${origin.slice(0, 80)}" is not an origin`;
      const hint = 'write scheme://host[:port], such as https://example.com; or *, or null';
      report(hub[field], error('bad-origin', message, hint));
    }
  }
  if (hub.corsOrigins.includes('*')) {
    const message = 'with cors_origins *, browsers send no cookie from other origins';
    const hint = 'list the origins that may use the cookie';
    report(hub.corsOrigins, warning('cors-without-credentials', message, hint));
  }
}

function checkUrls(hub: HubConfig, { addresses }: SiteConfig, report: Report): void {
  for (const text of hub.publicUrls) {
    if (hasHost(text)) continue;
    const message = `"${text.slice(0, 80)}" in public_urls is not a URL with a host`;
    report(hub.publicUrls, error('bad-url', message));
  }
  const { resourceIdentifier } = hub;
  if (resourceIdentifier === null) {
    const isForAnyHost =
      hub.publicUrls.length === 0 &&
      addresses.some(({ scheme, host }) => scheme === 'https' && host === '');
    if (!isForAnyHost || hub.issuers.length === 0 || hub.playground) return;
    const message =
      'this site serves any host, so a client chooses with Host which audience its token must have';
    const hint = 'set resource_identifier to the URL of the hub, or list its URLs in public_urls';
    report(hub, warning('audience-of-any-host', message, hint));
    return;
  }
  const where = { field: 'resourceIdentifier' };
  if (!hasHost(resourceIdentifier) || resourceIdentifier.includes('#')) {
    const message = 'resource_identifier is an absolute URL with a host and without a fragment';
    report(hub, error('bad-url', message), where);
  } else if (requireUrl(resourceIdentifier).protocol === 'http:') {
    const message = 'resource_identifier is an http: URL; tokens should name an https: one';
    report(hub, warning('insecure-url', message), where);
  }
}

/** Without a key, no token and so no cookie is of use. */
function verifiesTokens({ issuers, legacy, playground }: HubConfig): boolean {
  return (
    issuers.length > 0 || legacy.publisher !== null || legacy.subscriber !== null || playground
  );
}

function checkCookie(hub: HubConfig, site: SiteConfig, report: Report): void {
  const source = site.discovery?.tokenSource;
  const mintsPublishers =
    source?.kind === 'mint' && source.publish.length + source.publishUrlPattern.length > 0;
  if (mintsPublishers && hub.publishOrigins.length === 0) {
    const message =
      'the cookie can publish, but without publish_origins the hub refuses every such publication';
    const hint = 'add publish_origins with the origins of your pages';
    report(source, warning('cookie-publisher', message, hint));
  }
  // The cookie names of all profiles begin with __Secure-.
  const isSecure = hub.cookieName === null || SECURE_COOKIE.test(hub.cookieName);
  const isPlain =
    site.addresses.length > 0 && site.addresses.every(({ scheme }) => scheme === 'http');
  if (isSecure && isPlain && verifiesTokens(hub)) {
    const message =
      'browsers accept a __Secure- cookie only over HTTPS, but this site uses plain HTTP';
    const hint = 'serve the site over https://, or, on localhost only, choose another cookie_name';
    report(hub, warning('secure-cookie-over-http', message, hint), { field: 'cookieName' });
  }
  if (hub.cookieName?.startsWith('__Host-') === true && site.discovery !== null) {
    const message =
      'browsers store a __Host- cookie only for all paths, but discovery sets it for the path of the hub';
    const hint = 'choose a cookie_name that begins with __Secure-';
    report(hub, warning('host-cookie', message, hint), { field: 'cookieName' });
  }
}

function hasHost(text: string): boolean {
  // The parser reads `https:///x` as the host x.
  return /^[a-z][a-z0-9+.-]*:\/\/[^/?#]/i.test(text) && (parseUrl(text)?.host ?? '') !== '';
}

const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#@\s:[\]]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?$/i;
const HOST = /^(?!\.)[^\s"'<>\\^`{|}%]+$/u;

/**
 * Whether a text can be compared with an `Origin` header: `*`, `null`, or `scheme://host[:port]` and nothing
 * after it. The host may contain one `*`.
 */
export function isOrigin(text: string): boolean {
  if (text === '*' || text === 'null') return true;
  const [, host = '', port] = ORIGIN.exec(text) ?? [];
  if (host === '' || !HOST.test(host)) return false;
  if (text.split('*').length > 2) return false;
  return port === undefined || (Number(port) >= 1 && Number(port) <= 65_535);
}
