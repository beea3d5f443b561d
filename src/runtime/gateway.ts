import { bindAddressText } from '../config/bind-address.ts';
import type { Config } from '../config/config.ts';
import { HubgateError, messageOf, ignore } from '../kernel/error.ts';
import type { PurgeOrder } from '../cache/response-caches.ts';
import type { Family } from '../kernel/measures.ts';
import { upstreamFamilies } from '../proxy/upstreams.ts';
import type { BeginService } from '../server/listener.ts';
import type { CertificateInUse } from '../tls/certificate.ts';
import { buildGeneration, type Generation } from './generation.ts';
import { nodesNotNotified } from './hub-core.ts';
import { planListeners } from './listen-plan.ts';
import {
  type OpenListener,
  openPorts,
  type OpenPorts,
  type TakenPorts,
  takePorts,
} from './open-ports.ts';
import { type LoadPreview, previewLoad } from './load-preview.ts';
import {
  type GatewayOptions,
  openResources,
  forDryRun,
  type Resources,
  storageOf,
} from './resources.ts';
import type { RevocationReach, RunningHub, SlowSubscriber } from './hub-families.ts';

/** A running gateway. */
export interface Gateway {
  /**
   * Builds the configuration and binds its ports.
   *
   * @throws ConfigError for a configuration that cannot be used; HubgateError `listen-failed`
   */
  start(): Promise<void>;
  /**
   * Swaps to another configuration in one step. Requests in progress finish with the old one. Hub streams
   * stay open unless the change concerns them. On any error, the old configuration stays active.
   *
   * @param wanted optional contents of the report
   * @throws as {@link start}
   */
  reload(config: Config, wanted?: ReportWanted): Promise<ReloadReport>;
  /**
   * The first half of a reload: builds another configuration and binds its ports, but serves it only after
   * `commit`. For several gateways that change together or not at all. Further loads wait for the decision.
   *
   * @throws as {@link start}
   */
  prepare(config: Config): Promise<PreparedLoad>;
  /**
   * Returns what a reload would do. Everything is built as for a reload, including the ports, and then
   * discarded. Logs, histories and authorities are not created, and nothing is ordered.
   *
   * @throws as {@link start}
   */
  dryRun(config: Config): Promise<LoadPreview>;
  /**
   * Stops accepting, ends the hub's streams, and waits at most `gracePeriodMs` for requests in progress.
   * Another call returns the same promise. An aborted signal ends the wait early.
   */
  stop(signal?: AbortSignal): Promise<void>;
  /** The bound ports. */
  readonly listeners: readonly BoundListener[];
  /** The status of the active configuration. */
  status(): Promise<GatewayStatus>;
  /** The hub streams with the most waiting data, the slowest first. */
  slowest(): Promise<readonly SlowSubscriber[]>;
  /** The metrics of this gateway and its process. Families with the same name are to be added up. */
  families(): Promise<readonly Family[]>;
  /**
   * Removes responses from the response cache, in this process or on all machines. Returns how many were removed
   * here.
   *
   * @throws HubgateError `nodes-not-told` if other machines cannot be notified now
   */
  purge(order: PurgeOrder, reach: RevocationReach): Promise<number>;
  /**
   * Ends the streams of all hubs that were opened with the token of this `jti`, in this process or on all machines.
   * Returns how many ended here.
   *
   * @throws HubgateError `nodes-not-told` if other machines cannot be notified now
   */
  revoke(tokenId: string, reach: RevocationReach): Promise<number>;
}

export interface GatewayStatus {
  readonly hubs: readonly RunningHub[];
  /** The certificates of the sites and of this machine's own authority. */
  readonly certificates: readonly CertificateInUse[];
  /** Whether a configuration is active. */
  readonly serving: boolean;
  /** Whether the event loop of a process is late. */
  readonly late: boolean;
}

export interface BoundListener {
  /** Interface; empty for all interfaces and for a socket. */
  readonly host: string;
  /** 0 for a Unix socket. */
  readonly port: number;
  /** `unix//path` or `fd/3`, in the notation of `bind`; null for a port of an interface. */
  readonly socket: string | null;
  readonly secure: boolean;
}

export interface ReloadReport {
  /** Hub streams that end because the new configuration does not allow them. */
  readonly endingStreams: number;
  /** The result that {@link Gateway.dryRun} would have had for this load; only if it is wanted. */
  readonly changes?: LoadPreview;
}

export interface ReportWanted {
  readonly changes: boolean;
}

/** A configuration that is ready to be served. Exactly one of its functions is called, once. */
export interface PreparedLoad {
  /** @throws HubgateError `listen-failed` if a port of the old configuration could not be taken over */
  commit(wanted?: ReportWanted): Promise<ReloadReport>;
  discard(): Promise<void>;
}

/** The active generation with its listeners. */
interface Current {
  readonly config: Config;
  readonly generation: Generation;
  readonly listeners: readonly OpenListener[];
}

/** A generation that a reload has replaced, until everything in progress on it has ended. */
interface Retired {
  readonly listeners: readonly OpenListener['lease']['value'][];
  readonly closed: Promise<void>;
}

/**
 * Creates a gateway from a configuration. Nothing is opened before `start`, which lets each address of a name take a second
 * to accept a connection, in the whole process.
 *
 * @example
 * const gateway = createGateway(config);
 * await gateway.start();
 */
export function createGateway(config: Config, options: GatewayOptions = {}): Gateway {
  let initial: Config | null = config;
  let resources: Resources | null = null;
  let current: Current | null = null;
  const retired = new Set<Retired>();
  let stopping: Promise<void> | null = null;
  /** Loads run one after the other: each replaces the result of the previous one. */
  let queue: Promise<unknown> = Promise.resolve();

  async function load(next: Config, wanted?: ReportWanted): Promise<ReloadReport> {
    const prepared = await build(next);
    return prepared.commit(wanted);
  }

  async function build(next: Config): Promise<PreparedLoad> {
    const around = resourcesFor(next);
    const { loaded, ports } = await open(next, around);
    return {
      async commit(wanted) {
        let taken: TakenPorts | null = null;
        let changes: readonly BeginService[];
        let previewed: Pick<ReloadReport, 'changes'> = {};
        try {
          taken = await takePorts(ports, around);
          // The changes must be determined while the old generation still exists.
          if (wanted?.changes === true)
            previewed = { changes: previewLoad(current, loaded, ports) };
          changes = readyAll(taken.listeners, loaded.generation);
        } catch (error) {
          await taken?.undo();
          await giveBack(loaded);
          throw error;
        }
        // From here on, the load can no longer fail.
        return { ...swap({ ...loaded, listeners: taken.listeners }, changes), ...previewed };
      },
      discard: () => giveBack(loaded),
    };
  }

  async function dryRun(next: Config): Promise<LoadPreview> {
    const { loaded, ports } = await open(next, forDryRun(resourcesFor(next)));
    try {
      return previewLoad(current, loaded, ports);
    } finally {
      await giveBack(loaded);
    }
  }

  async function familiesOf(): Promise<readonly Family[]> {
    if (current === null || resources === null) return [];
    const { measures, process, upstreams, caches } = resources;
    return [
      ...measures.families(),
      ...upstreamFamilies(upstreams.upstreams()),
      ...caches.families(),
      ...(await current.generation.families()),
      ...process.families(),
    ];
  }

  function resourcesFor(next: Config): Resources {
    if (stopping !== null) throw new HubgateError('gateway-stopped', 'The gateway is stopping');
    resources ??= openResources(next, options, familiesOf);
    refuseOtherStorage(next, resources);
    return resources;
  }

  async function open(next: Config, around: Resources) {
    const generation = await buildGeneration(next, around);
    let ports: OpenPorts;
    try {
      ports = await openPorts(planListeners(next), current?.listeners ?? [], around);
    } catch (error) {
      await generation.release();
      throw error;
    }
    const loaded: Current = { config: next, generation, listeners: ports.listeners };
    return { loaded, ports };
  }

  /** Synchronous: no request sees half of a configuration. */
  function swap(next: Current, changes: readonly BeginService[]): ReloadReport {
    const old = current;
    for (const begin of changes) begin();
    current = next;
    if (resources !== null) resources.measures.generation += 1;
    try {
      const endingStreams =
        next.generation.reauthorise() + streamsOf(old?.generation, next.generation);
      next.generation.begin();
      return { endingStreams };
    } finally {
      if (old !== null && resources !== null) retire(old, resources);
    }
  }

  async function giveBack({ listeners, generation }: Current): Promise<void> {
    await Promise.all([...listeners.map(({ lease }) => lease.release()), generation.release()]);
  }

  /** Builds in its turn, and delays the next load until there is a decision. */
  function prepare(next: Config): Promise<PreparedLoad> {
    return new Promise((resolve, reject) => {
      void enqueue(async () => {
        const prepared = await build(next);
        await new Promise<void>((decided) => {
          resolve({
            commit(wanted) {
              const committed = prepared.commit(wanted);
              committed.then(
                () => decided(),
                () => decided(),
              );
              return committed;
            },
            async discard() {
              await prepared.discard().finally(decided);
            },
          });
        });
      }).catch(reject);
    });
  }

  /** Everything in progress finishes; a stop waits for it too. */
  function retire(old: Current, { log }: Resources): void {
    const closings = [
      ...old.listeners.map(({ lease }) => lease.release()),
      old.generation.release(),
    ].map((closing) =>
      closing.catch((error: unknown) =>
        log.error('Part of the old configuration did not close', { error: messageOf(error) }),
      ),
    );
    const closed = Promise.all(closings).then(() => {
      retired.delete(one);
    });
    const one: Retired = { listeners: old.listeners.map(({ lease }) => lease.value), closed };
    retired.add(one);
  }

  function enqueue<T>(task: () => Promise<T>): Promise<T> {
    const result = queue.then(task);
    queue = result.catch(ignore);
    return result;
  }

  async function shutDown(signal: AbortSignal | undefined): Promise<void> {
    await queue;
    resources?.inherited.close();
    // The start may have failed.
    if (current !== null && resources !== null) await closeAll(current, resources, signal);
    resources?.upstreams.destroy();
    resources?.process.close();
    current = null;
  }

  async function closeAll(
    last: Current,
    around: Resources,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { gracePeriodMs } = last.config.options;
    around.stoppingWithinMs = gracePeriodMs;
    const opened = new Set(last.listeners.map(({ lease }) => lease.value));
    for (const one of retired) for (const listener of one.listeners) opened.add(listener);
    const closed = Promise.all([giveBack(last), ...[...retired].map((one) => one.closed)]);
    const cut = (): void => {
      for (const listener of opened) listener.destroy();
    };
    const cancel = around.clock.after(gracePeriodMs, cut);
    if (signal?.aborted === true) cut();
    else signal?.addEventListener('abort', cut, { once: true });
    await closed;
    cancel();
    signal?.removeEventListener('abort', cut);
  }

  return {
    async start() {
      const first = initial;
      if (first === null) return;
      await enqueue(() => load(first));
      // Released, so that it does not stay in memory.
      initial = null;
    },
    reload: (next, wanted) => enqueue(() => load(next, wanted)),
    dryRun: (next) => enqueue(() => dryRun(next)),
    prepare,
    stop(signal) {
      stopping ??= shutDown(signal);
      return stopping;
    },
    get listeners() {
      return (current?.listeners ?? []).map(({ planned, lease }) => ({
        host: planned.bind.kind === 'host' ? planned.bind.host : '',
        port: lease.value.port ?? 0,
        socket: planned.bind.kind === 'host' ? null : bindAddressText(planned.bind),
        secure: planned.secure,
      }));
    },
    async status() {
      const generation = current?.generation;
      return {
        hubs: generation?.hubs ?? [],
        certificates: generation?.certificates() ?? [],
        serving: current !== null,
        late: resources?.process.loop.isLate ?? false,
      };
    },
    slowest: async () => (await current?.generation.slowest()) ?? [],
    families: familiesOf,
    async purge(order, reach) {
      const cores = reach === 'here' ? [] : [...(current?.generation.cores.keys() ?? [])];
      const notified = await Promise.all(
        cores.flatMap((core) => core.notifyNodes({ kind: 'purge', order }) ?? []),
      );
      const purged = (await resources?.caches.order(order)) ?? 0;
      if (notified.includes(false)) throw nodesNotNotified();
      return purged;
    },
    async revoke(tokenId, reach) {
      const cores = [...(current?.generation.cores.keys() ?? [])];
      const revoked = cores.map((core) =>
        reach === 'here'
          ? { ended: core.hub.revocation.revoke(tokenId), notified: null }
          : core.revoke(tokenId),
      );
      const notified = await Promise.all(revoked.flatMap((each) => each.notified ?? []));
      if (notified.includes(false)) throw nodesNotNotified();
      return revoked.reduce((sum, { ended }) => sum + ended, 0);
    },
  };
}

/**
 * Prepares the service of each listener for a generation; nothing is changed yet.
 *
 * @throws the error of Node, if a server cannot be created
 */
function readyAll(
  listeners: readonly OpenListener[],
  generation: Generation,
): readonly BeginService[] {
  return listeners.map(({ planned, lease }) => {
    const { service, fallback } = generation.serviceFor(planned);
    return lease.value.ready(planned.bind, service, fallback);
  });
}

/** The number of streams on hubs that the next generation does not have. */
function streamsOf(old: Generation | undefined, { cores }: Generation): number {
  const ending = [...(old?.cores.keys() ?? [])].filter((core) => !cores.has(core));
  return ending.reduce((sum, { hub }) => sum + hub.counts.connected, 0);
}

/** Certificates, keys and history would be in two places at once. */
function refuseOtherStorage({ options }: Config, { storage }: Resources): void {
  const wanted = storageOf(options);
  if (wanted === storage) return;
  throw new HubgateError(
    'storage-changed',
    `The storage cannot change while the gateway runs, from ${storage} to ${wanted}: keep it, or ` +
      'stop hubgate, move the content of the directory, and start it again',
  );
}
