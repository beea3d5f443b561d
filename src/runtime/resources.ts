import { resolve } from 'node:path';
import type { Config, LogOptions } from '../config/config.ts';
import type { PageStates } from '../discovery/page-watch.ts';
import type { TokenCache } from '../discovery/token-mint.ts';
import type { Family } from '../kernel/measures.ts';
import { metricsText, GatewayMeasures, ProcessMeasures } from './metrics.ts';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import { makeDirectory } from '../kernel/files.ts';
import { type Lease, LeasePool } from '../kernel/lease.ts';
import { type Logger, silentLogger } from '../kernel/log.ts';
import { Scheduler } from '../kernel/scheduler.ts';
import { TimerWheel } from '../kernel/timer-wheel.ts';
import type { OutboxReader } from '../outbox/outbox-reader.ts';
import { RateLimits } from '../http/rate-limits.ts';
import { BodyMemory } from '../coalescing/arriving-body.ts';
import { ResponseCaches } from '../cache/response-caches.ts';
import { UpstreamRegistry } from '../proxy/upstreams.ts';
import { InheritedSockets } from '../server/bound-server.ts';
import { Listener } from '../server/listener.ts';
import { allowSlowConnections } from '../kernel/connection-attempts.ts';
import { shareByAddress } from '../kernel/node-internals.ts';
import { publicNameCheck } from '../tls/acme/name-check.ts';
import { ManagedCertificates } from '../tls/acme/managed-certificates.ts';
import { CertificateStore } from '../tls/certificate-store.ts';
import type { CertificateTools } from '../tls/certificates.ts';
import { LocalAuthority } from '../tls/local-authority.ts';
import { TicketKeys } from '../tls/ticket-keys.ts';
import { defaultStorage } from '../tls/storage.ts';
import { createHubCores } from './hub-core.ts';
import { createKeySets, type HubSurroundings } from './hub-setup.ts';
import { listenerKey, type PlannedListener } from './listen-plan.ts';
import { PlaygroundSalts, type Salts } from './playground-keys.ts';
import { CACHES, countPeers, HubSignals, type PeerWorkers } from './peer-workers.ts';

export interface GatewayOptions {
  /** @default a logger that writes nothing */
  readonly log?: Logger;
  /** Opens the log that a site's `log` names, and closes it with the site. @default the gateway's own log */
  readonly openLog?: (options: LogOptions) => { readonly log: Logger; close(): void };
  /** @default the system's clock */
  readonly clock?: Clock;
  /** Other processes that serve the same configuration. @default none */
  readonly peerWorkers?: PeerWorkers;
  /**
   * Returns the playgrounds' salts for the next generation, if several processes share them. @default its own
   */
  readonly playgroundSalts?: () => Salts;
  /**
   * The metrics for the directive `metrics`, in the text format of Prometheus, if more than this gateway belongs to
   * them. @default those of this gateway
   */
  readonly metrics?: () => Promise<string>;
  /** Returns a number from 0 up to 1, for spreading deadlines and load. @default Math.random */
  readonly random?: () => number;
}

/** Everything that outlives a configuration, leased by its users. */
export interface Resources
  extends Omit<HubSurroundings, 'site' | 'playgroundSalt'>,
    Omit<CertificateTools, 'options' | 'dryRun'> {
  readonly openLog: NonNullable<GatewayOptions['openLog']>;
  /** The metrics of the gateway, and of what belongs to it. */
  readonly metrics: () => Promise<string>;
  /** Tokens from token sources, by everything that determines the result of a source. */
  readonly tokenCaches: LeasePool<TokenCache>;
  readonly outboxes: LeasePool<OutboxReader>;
  /** What watched pages looked like, by site. */
  readonly pageStates: LeasePool<PageStates>;
  readonly playgrounds: PlaygroundSalts;
  /** The salts for a configuration that is being built. */
  saltsFor(config: Config): Salts;
  readonly upstreams: UpstreamRegistry;
  /** Of all bodies that several clients may read. */
  readonly bodyMemory: BodyMemory;
  readonly rateLimits: RateLimits;
  readonly measures: GatewayMeasures;
  readonly process: ProcessMeasures;
  readonly inherited: InheritedSockets;
  /** The listener is bound, and ready for the planned protocols as soon as it has a service. */
  leaseListener(planned: PlannedListener): Promise<Lease<Listener>>;
  /** Whether other processes serve the same ports. */
  readonly hasPeerWorkers: boolean;
  /** Whether the generation is only built for inspection: nothing is written, logged or ordered. */
  readonly dryRun: boolean;
  /** Set once, when the gateway stops: the time limit for everything that is still open, in milliseconds. */
  stoppingWithinMs: number | null;
}

/** Nobody who reads "Cannot listen on port 80" has written a site for that port. */
function withoutSites(error: unknown): unknown {
  if (!(error instanceof HubgateError)) return error;
  const { code, message, cause } = error;
  const why =
    'no site is there: hubgate redirects to HTTPS or answers ACME challenges on it; the global option http_port chooses another, and auto_https may end the redirects';
  return new HubgateError(code, `${message} (${why})`, { cause });
}

/** Directory of certificates, keys and history, absolute. */
export function storageOf({ storage }: Config['options']): string {
  return resolve(storage ?? defaultStorage());
}

/** Opens nothing yet, except the storage directory. */
export function openResources(
  config: Config,
  options: GatewayOptions,
  families: () => Promise<readonly Family[]>,
): Resources {
  const { log = silentLogger, clock = systemClock, random = Math.random } = options;
  const { openLog = () => ({ log, close: () => {} }) } = options;
  const storage = storageOf(config.options);
  makeStorage(storage);
  allowSlowConnections();
  if (options.peerWorkers !== undefined) shareByAddress();
  const listeners = new LeasePool<Listener>((listener) => listener.close());
  const ticketKeys = new TicketKeys(storage, clock, log);
  const store = new CertificateStore(storage, log);
  const signals = new HubSignals(options.peerWorkers ?? null);
  const authority = new LocalAuthority(storage, clock, log);
  const scheduler = new Scheduler();
  const caches = new ResponseCaches(scheduler);
  signals.join(CACHES, (signal) => {
    if (signal.kind === 'changed') caches.purge(signal.names, 'method');
  });
  const resources: Resources = {
    log,
    openLog,
    clock,
    random,
    metrics: options.metrics ?? (async () => metricsText(await families())),
    storage,
    authority,
    store,
    managed: new ManagedCertificates({
      storage,
      store,
      localAuthority: authority,
      clock,
      log,
      random,
      nameCheck: publicNameCheck,
    }),
    hubCores: createHubCores(() => resources.stoppingWithinMs, log),
    keySets: createKeySets(),
    tokenCaches: new LeasePool(() => {}),
    outboxes: new LeasePool((reader) => reader.close()),
    pageStates: new LeasePool(() => {}),
    playgrounds: new PlaygroundSalts(),
    saltsFor: options.playgroundSalts ?? ((next) => resources.playgrounds.for(next)),
    signals,
    wheel: new TimerWheel(clock),
    scheduler,
    upstreams: new UpstreamRegistry(),
    caches,
    bodyMemory: new BodyMemory(),
    rateLimits: new RateLimits(
      clock,
      options.peerWorkers === undefined ? null : countPeers(signals),
    ),
    measures: new GatewayMeasures(),
    process: new ProcessMeasures(clock, log),
    inherited: new InheritedSockets(),
    async leaseListener(planned) {
      const { bind, secure } = planned;
      const { inherited } = resources;
      const measures = resources.measures.connections;
      const options = {
        bind,
        port: planned.port ?? 0,
        inherited,
        ticketKeys,
        measures,
        clock,
        log,
      };
      const lease = await listeners
        .acquire(listenerKey(planned), () => Listener.open(options))
        .catch((error: unknown) => {
          throw planned.sites.length === 0 ? withoutSites(error) : error;
        });
      try {
        if (secure) await lease.value.prepareTls();
        return lease;
      } catch (error) {
        await lease.release();
        throw error;
      }
    },
    hasPeerWorkers: options.peerWorkers !== undefined,
    dryRun: false,
    stoppingWithinMs: null,
  };
  return resources;
}

function makeStorage(directory: string): void {
  try {
    makeDirectory(directory);
  } catch (cause) {
    throw new HubgateError(
      'storage-unusable',
      `Certificates, keys and history cannot be kept in ${directory}: ${messageOf(cause)}; name ` +
        'another directory with the global option storage <dir>, or make the user of hubgate its owner',
      { cause },
    );
  }
}

export function forDryRun(resources: Resources): Resources {
  return {
    ...resources,
    dryRun: true,
    log: silentLogger,
    openLog: () => ({ log: silentLogger, close: () => {} }),
    // Bound, but not ready for TLS, because the keys of its tickets would be written.
    leaseListener: (planned) => resources.leaseListener({ ...planned, secure: false }),
  };
}
