import { type Jwks, jwksKeySet, openJwks } from '../auth/jwks.ts';
import { type KeySet, staticKeySet } from '../auth/key.ts';
import {
  createTokenVerifier,
  type TokenVerifier,
  type TokenVerifierOptions,
  type TrustedIssuer,
} from '../auth/verify.ts';
import type { HubConfig, KeySource, SiteConfig } from '../config/config.ts';
import { hubsOf } from '../config/sites.ts';
import { transportKinds } from '../config/transports.ts';
import type { Handler } from '../http/exchange.ts';
import type { MayStayOpen } from '../hub/subscriber.ts';
import { type Profile, profiles } from '../hub/profile.ts';
import type { PublicationRules } from '../hub/publication.ts';
import { hubBase } from '../hub/topic.ts';
import { createHubHandler } from '../hub-http/hub-handler.ts';
import type { BrowserScript, LegacyTopics } from '../hub-http/endpoint.ts';
import { MatcherCache } from '../hub/matcher.ts';
import { LeasePool } from '../kernel/lease.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scope } from '../kernel/scope.ts';
import { type HubCore, type HubCoreDependencies, hubCoreName, openHubCore } from './hub-core.ts';
import { placedTransport } from './history-names.ts';
import { requireUrl } from '../kernel/parse.ts';
import { playgroundIssuer } from './playground-keys.ts';
import type { HubCounts } from '../hub/hub-measures.ts';
import { hash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The parts of the gateway that a hub needs. */
export interface HubSurroundings extends HubCoreDependencies {
  /** Identifies the hub within the gateway: the name of the history. */
  readonly site: string;
  /** Directory of the gateway's storage, absolute. */
  readonly storage: string;
  /** Salt for the key of its playground; null if it is not known. */
  readonly playgroundSalt: string | null;
  readonly hubCores: LeasePool<HubCore>;
  /** If true, no history is opened that is not open already. */
  readonly dryRun: boolean;
  readonly keySets: LeasePool<Jwks>;
  readonly random: () => number;
}

/** Creates the pool of JWK Sets, so that a reload keeps the fetched keys. */
export function createKeySets(): LeasePool<Jwks> {
  return new LeasePool<Jwks>((jwks) => jwks.close());
}

/** A hub with its settings in one generation. */
export interface ReadyHub {
  readonly config: HubConfig;
  readonly profile: Profile;
  readonly path: string;
  /** For updates that the gateway publishes itself. */
  readonly publicationRules: PublicationRules;
  readonly cookieName: string;
  readonly core: HubCore;
  /** null if it has not been built. */
  readonly liveScript: BrowserScript | null;
  readonly handle: Handler;
  /** Whether these settings allow a stream. Other hubs may share the streams of {@link core}. */
  readonly keeps: MayStayOpen;
}

/** The hubs of each site, in the order of its configuration. */
export type ReadyHubs = ReadonlyMap<SiteConfig, readonly ReadyHub[]>;

export function readyHub(hubs: ReadyHubs, site: SiteConfig, hub: HubConfig): ReadyHub | undefined {
  return hubs.get(site)?.[hubsOf(site).indexOf(hub)];
}

/**
 * Opens a hub. Its leases are released when `scope` closes.
 *
 * @throws HubgateError for keys that cannot be used, or a history that cannot be opened
 */
export async function setUpHub(
  written: HubConfig,
  around: HubSurroundings,
  scope: Scope,
): Promise<ReadyHub> {
  const config = written.playground ? asPlayground(written) : written;
  const { clock, scheduler, random, log, site } = around;
  const profile = profiles[config.profile];
  const path = config.path ?? profile.path;
  const base = hubBase(config.resourceIdentifier, path);
  const cookieName = config.cookieName ?? profile.cookieName;
  const detailType = config.detailType ?? profile.detailType;
  const transport = placedTransport(site, config, around.storage);
  const wanted = { site, profile, path, base, transport };
  const isOpen = around.hubCores.has(hubCoreName(wanted));
  // A dry run leaves nothing behind.
  const inMemory = { ...wanted, transport: transportKinds.memory.defaults };
  const key = around.dryRun && !isOpen ? inMemory : wanted;
  const core = scope.hold(
    await around.hubCores.acquire(hubCoreName(key), () => openHubCore(key, around)),
  );
  const verification = await openVerification(config, around, scope);
  const verifier = createTokenVerifier({
    ...verification,
    onLegacyToken: countLegacyTokens(core.hub.counts, site, log),
  });
  const liveScript = readScript(import.meta.resolve('#live-script'));
  const handle = createHubHandler({
    // Most options of a hub are those of its endpoint.
    ...config,
    hub: core.hub,
    profile,
    path,
    base,
    detailType,
    cookieName,
    verifier,
    matcherCache: verification.cache,
    legacyTopics: topicsOf(config),
    clock,
    random,
    authorizationServers: config.issuers
      .filter(({ authorizationServer }) => authorizationServer)
      .map(({ id }) => id),
    liveScript,
    clientScript: readScript(import.meta.resolve('#client-script')),
    debuggerScript: config.debugger ? readScript(import.meta.resolve('#debugger-script')) : null,
    playground: config.playground
      ? { signer: playgroundIssuer(config, around.playgroundSalt)?.signer ?? null }
      : null,
    publicOrigins: config.publicUrls.map(originOf),
    stream: {
      heartbeatMs: config.heartbeatMs,
      dispatchTimeoutMs: config.dispatchTimeoutMs,
      maxBufferBytes: config.maxSubscriberBuffer,
      announced: config.subscriptions,
    },
    scheduler,
    connections: core.connections,
    connectionLimits: {
      max: config.maxConnections,
      maxPerClient: config.maxConnectionsPerClient,
    },
  });
  return {
    config,
    profile,
    path,
    publicationRules: { profile, base, hubPath: path },
    cookieName,
    core,
    liveScript,
    handle,
    keeps: stillAllowed(config, verifier),
  };
}

/** Settings for a demonstration, which no other hub should have. */
function asPlayground(config: HubConfig): HubConfig {
  return {
    ...config,
    debugger: true,
    anonymous: true,
    subscriptions: true,
    // Without the __Secure- prefix, so that it works over plain HTTP.
    cookieName: config.cookieName ?? `${config.profile}_access_token`,
    corsOrigins: config.corsOrigins.length > 0 ? config.corsOrigins : ['*'],
    publishOrigins: config.publishOrigins.length > 0 ? config.publishOrigins : ['*'],
  };
}

/** The options for verifying a hub's tokens; for the hub itself and for `token inspect`. */
export async function openVerification(
  config: HubConfig,
  around: Pick<HubSurroundings, 'keySets' | 'clock' | 'scheduler' | 'log' | 'playgroundSalt'>,
  scope: Scope,
): Promise<TokenVerifierOptions & { readonly cache: MatcherCache }> {
  const profile = profiles[config.profile];
  return {
    issuers: await openIssuers(config, around, scope),
    clock: around.clock,
    scheduler: around.scheduler,
    detailType: config.detailType ?? profile.detailType,
    base: hubBase(config.resourceIdentifier, config.path ?? profile.path),
    cache: new MatcherCache(config.topicMatcherCache),
    legacyClaim: config.protocolVersionCompatibility === null ? null : profile.legacyClaim,
    legacyForms: config.legacyForms,
  };
}

/** How `topic=` is handled, independent of the token reader. */
function topicsOf({ protocolVersionCompatibility, legacyForms }: HubConfig): LegacyTopics | null {
  const { topics, templates } = legacyForms;
  return protocolVersionCompatibility !== null && topics ? { templates } : null;
}

/** A stream stays open while the issuer or the option that admitted it is still configured. */
function stillAllowed({ anonymous }: HubConfig, { issuerKeys }: TokenVerifier): MayStayOpen {
  // It outlives its generation, so it keeps as little of it as possible in memory.
  return ({ issuerKey }) => (issuerKey === null ? anonymous : issuerKeys.has(issuerKey));
}

async function openIssuers(
  config: HubConfig,
  around: Pick<HubSurroundings, 'keySets' | 'clock' | 'log' | 'playgroundSalt'>,
  scope: Scope,
): Promise<TrustedIssuer[]> {
  const issuers: TrustedIssuer[] = [];
  for (const { id, publisher, subscriber } of config.issuers) {
    issuers.push({
      id,
      publisher: await openKeys(publisher, around, scope),
      subscriber: await openKeys(subscriber, around, scope),
    });
  }
  const playground = playgroundIssuer(config, around.playgroundSalt);
  if (playground !== null) issuers.push(playground);
  const { publisher, subscriber } = config.legacy;
  if (publisher !== null || subscriber !== null) {
    issuers.push({
      id: null,
      publisher: await openKeys(publisher, around, scope),
      subscriber: await openKeys(subscriber, around, scope),
    });
  }
  return issuers;
}

async function openKeys(
  source: KeySource | null,
  { keySets, clock, log }: Pick<HubSurroundings, 'keySets' | 'clock' | 'log'>,
  scope: Scope,
): Promise<KeySet | null> {
  if (source === null) return null;
  if (source.kind === 'jwt') return staticKeySet(source);
  const { uri, refreshMs, cooldownMs, timeoutMs } = source;
  const name = JSON.stringify([uri, refreshMs, cooldownMs, timeoutMs]);
  const known = (await keySets.opened()).find((jwks) => jwks.uri === uri) ?? null;
  const lease = await keySets.acquire(name, () =>
    openJwks({ uri, refreshMs, cooldownMs, timeoutMs, clock, log, fetch }, known),
  );
  const jwks = scope.hold(lease);
  await jwks.reopen();
  return jwksKeySet(jwks, source);
}

function originOf(url: string): string {
  const { protocol, host } = requireUrl(url);
  // As written: with an explicit default port, the identity is different.
  const written = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]+)/i.exec(url)?.[1]?.toLowerCase();
  return `${protocol}//${written ?? host}`;
}

/**
 * Counts the requests that only a hub of 0.x accepts, so that its operator sees when the option is no longer
 * needed. The first, the tenth, the hundredth one and so on are logged.
 */
function countLegacyTokens(
  counts: Pick<HubCounts, 'legacyTokens'>,
  site: string,
  log: Logger,
): () => void {
  return () => {
    counts.legacyTokens += 1;
    const seen = counts.legacyTokens;
    if (!Number.isInteger(Math.log10(seen))) return;
    log.info('A 0.x token was accepted', { site, seen });
  };
}

/** A built script; null if it was not built. */
function readScript(url: string): BrowserScript | null {
  const file = fileURLToPath(url);
  if (!existsSync(file)) return null;
  const bytes = readFileSync(file);
  return { bytes, version: hash('sha256', bytes, 'hex').slice(0, 8) };
}
