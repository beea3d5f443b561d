import { verifiesClients } from '../config/sites.ts';
import {
  isCounterpart,
  JWKS_ALGORITHMS,
  type KeyMaterial,
  signingKey,
  staticKeySet,
} from '../auth/key.ts';
import { readAuthorizationDetails } from '../auth/authorization-details.ts';
import { authorizationDetails } from '../auth/mint.ts';
import { InvalidTokenError } from '../auth/verify.ts';
import type {
  DiscoveryConfig,
  HubConfig,
  IssuerConfig,
  KeySource,
  SiteConfig,
  TokenMintConfig,
} from '../config/config.ts';
import {
  nearestName,
  type Report,
  type UnplacedProblem,
  error,
  warning,
} from '../config/problem.ts';
import { compileGrants, grantTemplates, responseFieldsIn } from '../discovery/token-source.ts';
import { profiles } from '../hub/profile.ts';
import { hubBase } from '../hub/topic.ts';
import { HubgateError } from '../kernel/error.ts';
import { hubPath } from './history-names.ts';
import { registry } from '../directives/registry.ts';
import { dataOf, everyRoute, type HeaderOperation, type RouteConfig } from '../config/routes.ts';
import { type IdentitySource, identitySources } from '../site/identity-placeholders.ts';

type Role = 'publisher' | 'subscriber';

interface SigningKey {
  readonly algorithm: string;
  readonly material: KeyMaterial;
}

/**
 * Checks that the hub would accept the tokens of `token mint`. Otherwise its first user would find out, with
 * a 401 that does not give the reason.
 *
 * @param hub null for an external hub, about which nothing is known
 */
export function checkTokenMint(mint: TokenMintConfig, hub: HubConfig | null, report: Report): void {
  const key = readKey(mint, report);
  if (mint.ttlMs < 1000) {
    report(mint, error('short-lifetime', 'the lifetime of a token must be at least one second'), {
      field: 'ttlMs',
    });
  }
  if (hub === null) return;
  const issuer = hub.issuers.find(({ id }) => id === mint.issuer);
  if (issuer === undefined) {
    report(mint, unknownIssuer(mint, hub), { field: 'issuer' });
  } else if (key !== null) {
    for (const role of rolesOf(mint, hub)) checkRole(mint, issuer, role, key, report);
  }
  checkGrants(mint, hub, report);
}

function readKey(mint: TokenMintConfig, report: Report): SigningKey | null {
  try {
    return signingKey(mint.key, mint.algorithm);
  } catch (thrown) {
    if (!(thrown instanceof HubgateError)) throw thrown;
    report(mint, error(thrown.code, `token mint: ${thrown.message}`), { field: 'key' });
    return null;
  }
}

function unknownIssuer({ issuer }: TokenMintConfig, { issuers }: HubConfig): UnplacedProblem {
  const ids = issuers.map(({ id }) => id);
  const near = nearestName(issuer, ids);
  const message = `the hub does not trust the issuer ${issuer.slice(0, 80)}, so it would refuse every token`;
  const hint =
    near === undefined ? `the hub knows ${ids.join(', ') || 'no issuer'}` : `did you mean ${near}?`;
  return error('mint-refused', message, hint);
}

/** The browser sends its cookie with every subscription, so the keys of subscribers always matter. */
function rolesOf({ publish, publishUrlPattern }: TokenMintConfig, hub: HubConfig): readonly Role[] {
  const verifiesSubscribers =
    hub.legacy.subscriber !== null || hub.issuers.some(({ subscriber }) => subscriber !== null);
  const publishes = publish.length + publishUrlPattern.length > 0;
  return [
    ...(verifiesSubscribers ? ['subscriber' as const] : []),
    ...(publishes ? ['publisher' as const] : []),
  ];
}

function checkRole(
  mint: TokenMintConfig,
  issuer: IssuerConfig,
  role: Role,
  key: SigningKey,
  report: Report,
): void {
  const source = issuer[role];
  const reason =
    source === null ? `the issuer has no ${role} key` : whyNotVerified(source, role, key);
  if (reason === null) return;
  const message = `the hub would refuse these tokens: ${reason}`;
  const hint = `the key of token mint must match the key in issuer ${issuer.id} { ${role} { … } }`;
  report(mint, error('mint-refused', message, hint), source === null ? {} : { other: source });
}

function whyNotVerified(source: KeySource, role: Role, key: SigningKey): string | null {
  const { algorithm, material } = key;
  if (source.kind === 'jwks') {
    // The set itself is fetched later, but which algorithms it can never verify is known now.
    const accepted = source.algorithms.length === 0 ? JWKS_ALGORITHMS : source.algorithms;
    return accepted.includes(algorithm) ? null : notAccepted(role, algorithm, accepted);
  }
  const keys = readKeys(source);
  if (keys === null) return null;
  if (!keys.algorithms.includes(algorithm)) return notAccepted(role, algorithm, keys.algorithms);
  const candidates = keys.find({ alg: algorithm, kid: null });
  if (candidates === null || candidates instanceof Promise) return null;
  return candidates.some((candidate) => isCounterpart(material, candidate))
    ? null
    : `its ${role} key is different`;
}

/** null for a key that cannot be used, which is reported elsewhere. */
function readKeys(source: Extract<KeySource, { kind: 'jwt' }>) {
  try {
    return staticKeySet(source);
  } catch (thrown) {
    if (thrown instanceof HubgateError) return null;
    throw thrown;
  }
}

function notAccepted(role: Role, algorithm: string, accepted: readonly string[]): string {
  return `it verifies ${role}s with ${accepted.join(', ')}, not with ${algorithm}`;
}

/** Checks the grants with a plain value in place of each placeholder. */
function checkGrants(mint: TokenMintConfig, hub: HubConfig, report: Report): void {
  const grants = compileGrants(mint)((template) =>
    template.replace(/\\\{|\{[A-Za-z_][^{}\s]*\}/g, (match) => (match === '\\{' ? '{' : 'x')),
  );
  if (typeof grants === 'string') return;
  const detailType = hub.detailType ?? profiles[hub.profile].detailType;
  const base = hubBase(hub.resourceIdentifier, hubPath(hub));
  try {
    const details = authorizationDetails(grants, detailType);
    readAuthorizationDetails(details, { detailType, base, cache: null });
  } catch (thrown) {
    if (!(thrown instanceof InvalidTokenError)) throw thrown;
    const { check, found } = thrown.diagnosis;
    const message = `the hub would refuse these tokens: ${check}: ${found}`;
    report(mint, error('mint-refused', message));
  }
}

type Source = NonNullable<DiscoveryConfig['tokenSource']>;

const CHOSEN = 'client-chosen-identity';

/**
 * Checks that the texts that identify a user in a token use only values that the gateway establishes itself,
 * or that the app sends. At run time, other values are never used, whatever the configuration contains. This
 * check reports texts that could never be filled, or that a client could fill.
 */
export function checkTokenIdentity(
  site: SiteConfig,
  { tokenSource: source }: DiscoveryConfig,
  report: Report,
): void {
  if (source === null) return;
  const templates = grantTemplates(source);
  for (const read of unique(templates.flatMap(identitySources))) {
    const finding = fault(read, site);
    if (finding !== null) report(source, finding);
  }
  const subject = source.kind === 'exchange' ? source.subjectToken : null;
  for (const read of unique(identitySources(subject ?? ''))) {
    if (read.kind !== 'client' || read.name.startsWith('cookie.')) continue;
    report(source, badSubject(read.name), { field: 'subjectToken' });
  }
  const answered = subject === null ? templates : [...templates, subject];
  for (const field of responseFieldsIn(answered)) checkAnswerField(field, site, source, report);
}

function fault(read: IdentitySource, site: SiteConfig): UnplacedProblem | null {
  switch (read.kind) {
    case 'answer':
      return null;
    case 'user':
      return establishedBy(site).some(({ user }) => user) ? null : noPasswords();
    case 'certificate':
      return verifiesClients(site) ? null : noCertificates(read.name);
    case 'field': {
      const name = read.name.toLowerCase();
      const isKnown = establishedBy(site).some(({ fields }) =>
        fields.some((field) => field.toLowerCase() === name),
      );
      return isKnown ? null : claimedField(read.name);
    }
    case 'neutral': {
      const isOfHost = read.name === 'host' || read.name.startsWith('labels.');
      return isOfHost && hasManyHosts(site) ? chosenHost(read.name) : null;
    }
    case 'client':
      return chosen(read.name);
  }
}

function establishedBy({ routes, errorRoutes }: SiteConfig) {
  return everyRoute([...routes, ...errorRoutes], registry).flatMap(
    ({ handler }) => dataOf(handler, registry).establishes?.(handler) ?? [],
  );
}

/** Whether clients choose the name with which they request the site. */
function hasManyHosts({ addresses }: SiteConfig): boolean {
  return addresses.some(({ host }) => host === '' || host.startsWith('*.'));
}

function claimedField(field: string): UnplacedProblem {
  const message = `any client could send ${field} and get a token in the name of another user`;
  const hint =
    `set it with forward_auth { … copy_headers ${field} }, name the user of basic_auth by ` +
    `{http.auth.user.id}, or take the name from the app's response: {http.response.header.${field}}`;
  return error(CHOSEN, message, hint);
}

function noPasswords(): UnplacedProblem {
  const message =
    'no basic_auth of this site establishes {http.auth.user.id}, so no token is issued';
  const hint = 'add basic_auth, or name the user with a field of forward_auth { … copy_headers }';
  return error('unestablished-identity', message, hint);
}

function noCertificates(name: string): UnplacedProblem {
  const message = `this site verifies no client certificates, so {tls_client_${name}} is always empty and no token is issued`;
  const hint = 'add tls { client_auth { mode require_and_verify; trust_pool file … } }';
  return error('unestablished-identity', message, hint);
}

function chosenHost(name: string): UnplacedProblem {
  const message = `a client chooses the value of {${name}}, and so the grants of its token`;
  const hint = 'write the host name, in a separate site';
  return error(CHOSEN, message, hint);
}

function chosen(name: string): UnplacedProblem {
  const message = `a client chooses the value of {${name}}, and so the user of its token`;
  const hint =
    'name the user by something that the gateway establishes: {header.FIELD} behind forward_auth { … ' +
    "copy_headers FIELD }, {http.auth.user.id} behind basic_auth, or the app's response: " +
    '{http.response.header.FIELD}';
  return error(CHOSEN, message, hint);
}

function badSubject(name: string): UnplacedProblem {
  const message = `a link can contain {${name}}, and with it the token of another user`;
  const hint = 'use a cookie or a field: {cookie.NAME}, {header.Authorization}';
  return error(CHOSEN, message, hint);
}

/** Reports how a site itself changes a field of the app's response before the token is created from it. */
function checkAnswerField(field: string, site: SiteConfig, source: Source, report: Report): void {
  const routes = [...site.routes, ...site.errorRoutes];
  for (const operation of operationsOn(field.toLowerCase(), routes)) {
    if (operation.kind === 'delete') {
      report(operation, takenAway(field, source));
      continue;
    }
    const text = operation.kind === 'replace' ? operation.replacement : operation.value;
    const [finding] = identitySources(text).flatMap((read) => fault(read, site) ?? []);
    if (finding !== undefined) report(operation, finding);
  }
}

function operationsOn(field: string, routes: readonly RouteConfig[]): HeaderOperation[] {
  return everyRoute(routes, registry).flatMap(({ handler }) =>
    (dataOf(handler, registry).responseFields?.(handler) ?? []).filter(
      ({ name }) => name.toLowerCase() === field,
    ),
  );
}

function takenAway(field: string, { kind }: Source): UnplacedProblem {
  const message = `this removes ${field} before token ${kind} can read it, so no token is issued`;
  const hint = `remove this line: the gateway removes fields that token ${kind} reads (unless keep_fields is set)`;
  return warning('field-taken-away', message, hint);
}

/** Each source once, however often the texts use it. */
function unique(sources: readonly IdentitySource[]): IdentitySource[] {
  return [...new Map(sources.map((one) => [JSON.stringify(one), one])).values()];
}
