import { bindAddressText } from '../config/bind-address.ts';
import type { Config } from '../config/config.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { PurgeOrder } from '../cache/response-caches.ts';
import type { Family } from '../kernel/measures.ts';
import { upstreamFamilies } from '../proxy/upstream-families.ts';
import type { ServiceChange } from '../server/listener.ts';
import type { CertificateInUse } from '../tls/certificate.ts';
import { buildGeneration, type Generation } from './generation.ts';
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
  rehearsing,
  type Resources,
  storageOf,
} from './resources.ts';
import type { RevocationReach, RunningHub, SlowSubscriber } from './running-hub.ts';

/** A running gateway. */
export interface Gateway {
  /**
   * Builds the configuration and binds its ports.
   *
   * @throws ConfigError for a configuration that cannot be used; HubgateError `listen-failed`
   */
  start(): Promise<void>;
  /**
   * Swaps to another configuration in one step: requests in flight finish on the old one, hub
   * streams stay open unless the change concerns them. On any error the old one keeps serving.
   *
   * @param wanted what the report is to say beside
   * @throws as {@link start}
   */
  reload(config: Config, wanted?: ReportWanted): Promise<ReloadReport>;
  /**
   * The first half of a reload: builds another configuration and binds its ports, and serves it
   * only when it is told to. For several gateways that change together or not at all. Until it is
   * decided, further loads wait.
   *
   * @throws as {@link start}
   */
  prepare(config: Config): Promise<PreparedLoad>;
  /**
   * Says what a reload would do. Everything is built as for one, the ports included, and given up
   * again; logs, histories and authorities are not made for it, and nothing is ordered.
   *
   * @throws as {@link start}
   */
  dryRun(config: Config): Promise<LoadPreview>;
  /**
   * Stops accepting, ends the hub's streams, and waits at most `gracePeriodMs` for what is in
   * flight. Calling it again returns the same promise; an aborted signal cuts the wait short.
   */
  stop(signal?: AbortSignal): Promise<void>;
  /** The ports that are bound. */
  readonly listeners: readonly BoundListener[];
  /** What the configuration in force has come to. */
  status(): Promise<GatewayStatus>;
  /** The hubs' streams of which most waits, the slowest first. */
  slowest(): Promise<readonly SlowSubscriber[]>;
  /** What is counted, of this gateway and its process; several may have one name, and add up. */
  families(): Promise<readonly Family[]>;
  /** Drops what is kept, in this process or on all machines, and says how much that was here. */
  purge(order: PurgeOrder, reach: RevocationReach): Promise<number>;
}

export interface GatewayStatus {
  readonly hubs: readonly RunningHub[];
  /** Those of the sites, with those of the authority of this machine. */
  readonly certificates: readonly CertificateInUse[];
  /** Whether a configuration is in force. */
  readonly serving: boolean;
  /** Whether the event loop of a process does not keep time. */
  readonly late: boolean;
}

export interface BoundListener {
  /** Interface; empty for all, and where there is a socket instead. */
  readonly host: string;
  /** 0 for a Unix socket. */
  readonly port: number;
  /** `unix//path` or `fd/3`, as in `bind`; null for a port of an interface. */
  readonly socket: string | null;
  readonly secure: boolean;
}

export interface ReloadReport {
  /** Hub streams that end because the new configuration no longer allows them. */
  readonly endingStreams: number;
  /** What {@link Gateway.rehearse} would have said, of this very load; only where it is wanted. */
  readonly changes?: LoadPreview;
}

export interface ReportWanted {
  readonly changes: boolean;
}

/** A configuration that is ready to be served. One of its functions is called, once. */
export interface PreparedLoad {
  /** @throws HubgateError `listen-failed` where a port of the old configuration could not change hands */
  commit(wanted?: ReportWanted): Promise<ReloadReport>;
  discard(): Promise<void>;
}

/** What is live: a generation with the listeners it is served on. */
interface Current {
  readonly config: Config;
  readonly generation: Generation;
  readonly listeners: readonly OpenListener[];
}

/** What a reload has replaced, until all that was under way on it has come to its end. */
interface Retired {
  readonly listeners: readonly OpenListener['lease']['value'][];
  readonly closed: Promise<void>;
}

/**
 * Makes a gateway of a configuration. Nothing is opened before `start`.
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
  /** Loads run one after the other: each swaps what the one before has left. */
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
        let changes: readonly ServiceChange[];
        let told: Pick<ReloadReport, 'changes'> = {};
        try {
          taken = await takePorts(ports, around);
          // What it changes can be told only of what is still there.
          if (wanted?.changes === true) told = { changes: previewLoad(current, loaded, ports) };
          changes = readyAll(taken.listeners, loaded.generation);
        } catch (error) {
          await taken?.undo();
          await giveBack(loaded);
          throw error;
        }
        // From here on there is no way back.
        return { ...swap({ ...loaded, listeners: taken.listeners }, changes), ...told };
      },
      discard: () => giveBack(loaded),
    };
  }

  async function dryRun(next: Config): Promise<LoadPreview> {
    const { loaded, ports } = await open(next, rehearsing(resourcesFor(next)));
    try {
      return previewLoad(current, loaded, ports);
    } finally {
      await giveBack(loaded);
    }
  }

  function resourcesFor(next: Config): Resources {
    if (stopping !== null) throw new HubgateError('gateway-stopped', 'The gateway is stopping');
    resources ??= openResources(next, options);
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
  function swap(next: Current, changes: readonly ServiceChange[]): ReloadReport {
    const old = current;
    for (const change of changes) change.begin();
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

  /** Builds in its turn, and holds back the next until somebody has decided. */
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
              decided();
              await prepared.discard();
            },
          });
        });
      }).catch(reject);
    });
  }

  /** What is under way comes to its end; a stop waits for it too. */
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
    queue = result.catch(() => {});
    return result;
  }

  async function shutDown(signal: AbortSignal | undefined): Promise<void> {
    await queue;
    if (current === null || resources === null) return;
    const { config: last, listeners } = current;
    resources.stoppingWithinMs = last.options.gracePeriodMs;
    const opened = new Set(listeners.map(({ lease }) => lease.value));
    for (const one of retired) for (const listener of one.listeners) opened.add(listener);
    const closed = Promise.all([giveBack(current), ...[...retired].map((one) => one.closed)]);
    const cut = (): void => {
      for (const listener of opened) listener.destroy();
    };
    const cancel = resources.clock.after(last.options.gracePeriodMs, cut);
    if (signal?.aborted === true) cut();
    else signal?.addEventListener('abort', cut, { once: true });
    await closed;
    cancel();
    resources.upstreams.destroy();
    resources.process.close();
    current = null;
  }

  return {
    async start() {
      const first = initial;
      if (first === null) return;
      await enqueue(() => load(first));
      // It is not to be kept beyond its time.
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
    async families() {
      if (current === null || resources === null) return [];
      const { measures, process, upstreams, caches } = resources;
      return [
        ...measures.families(),
        ...upstreamFamilies(upstreams.upstreams()),
        ...caches.families(),
        ...(await current.generation.families()),
        ...process.families(),
      ];
    },
    async purge(order, reach) {
      if (reach === 'everywhere') {
        for (const core of current?.generation.cores.keys() ?? []) core.purgeElsewhere(order);
      }
      return (await resources?.caches.order(order)) ?? 0;
    },
  };
}

/**
 * Makes what each listener needs to serve a generation; nothing is changed yet.
 *
 * @throws what Node throws where a server cannot be made
 */
function readyAll(
  listeners: readonly OpenListener[],
  generation: Generation,
): readonly ServiceChange[] {
  const changes: ServiceChange[] = [];
  try {
    for (const { planned, lease } of listeners) {
      const { service, fallback } = generation.serviceFor(planned);
      changes.push(lease.value.ready(service, fallback));
    }
    return changes;
  } catch (error) {
    for (const change of changes) change.discard();
    throw error;
  }
}

/** Streams of hubs that the next generation has no more. */
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
      'stop hubgate, move what is in the directory, and start it again',
  );
}
