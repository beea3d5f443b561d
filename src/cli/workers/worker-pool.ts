// Each worker accepts from the shared socket itself (`SCHED_NONE`, which must be set before `setupPrimary`).
// The main process reads and watches the configuration and serves the admin API. A reload is prepared by all
// workers and then committed by all, or discarded by all.

import cluster from 'node:cluster';
import { fileURLToPath } from 'node:url';
import type { PurgeOrder } from '../../cache/response-caches.ts';
import type { Config } from '../../config/config.ts';
import { registry } from '../../directives/registry.ts';
import { encodeConfig } from '../../config/serialize.ts';
import { type Clock, within } from '../../kernel/clock.ts';
import { codeOf, HubgateError, messageOf, ignore } from '../../kernel/error.ts';
import { type Family, gauge } from '../../kernel/measures.ts';
import type { Logger } from '../../kernel/log.ts';
import type {
  BoundListener,
  Gateway,
  GatewayStatus,
  ReloadReport,
  ReportWanted,
} from '../../runtime/gateway.ts';
import { planListeners } from '../../runtime/listen-plan.ts';
import { type LoadPreview, sumPreviews } from '../../runtime/load-preview.ts';
import { PlaygroundSalts } from '../../runtime/playground-keys.ts';
import { ProcessMeasures } from '../../runtime/metrics.ts';
import {
  type RevocationReach,
  type RunningHub,
  slowestOf,
  type SlowSubscriber,
} from '../../runtime/hub-families.ts';
import type { Signal } from '../../runtime/peer-workers.ts';
import { ANSWER_MS, type WorkerStatus, type WorkerSurroundings, Worker } from './worker.ts';

/** Delay before a worker that has ended is replaced. If workers end again and again, it doubles each time. */
const MIN_RESTART_MS = 100;
const MAX_RESTART_MS = 30_000;
/** Longest delay while no worker serves, because nobody accepts connections then. */
const MAX_RESTART_OF_LAST_MS = 1_000;
/** How long after `grace_period` a worker may take to close its histories before it is killed. */
const CLOSING_MS = 15_000;
const NOTHING_ELSE: ReportWanted = { changes: false };

const WORKER = fileURLToPath(import.meta.resolve('#worker'));

/** An order that a worker answers with a number. */
type CountedOrder = (worker: Worker, reach: RevocationReach) => Promise<number>;

export interface WorkerPoolOptions extends Omit<WorkerSurroundings, 'onSignal' | 'onExit'> {
  /** Number of processes. */
  readonly count: number;
  /** Called if no worker can serve any more, so that only another start of the gateway helps. */
  readonly onFailure: (error: HubgateError) => void;
  /** The program of a worker, absolute. @default the gateway's own program */
  readonly program?: string;
}

/**
 * A gateway of several processes that share its listeners. Each worker accepts connections when it has time.
 * Every worker builds a reload before the first one serves it. If one of them cannot build it, all discard
 * it.
 */
export class WorkerPool implements Omit<Gateway, 'prepare'> {
  readonly #count: number;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #metrics: () => Promise<string>;
  readonly #onFailure: (error: HubgateError) => void;
  readonly #process: ProcessMeasures;
  readonly #workers = new Set<Worker>();
  readonly #playgrounds = new PlaygroundSalts();
  /** Workers that have prepared a configuration. They hold the sockets that the gateway has inherited. */
  readonly #holders = new Set<Worker>();
  /** Descriptors of these sockets. */
  readonly #inherited = new Set<number>();
  /** Descriptors that node:cluster has closed here, because the last worker that held them has ended. */
  readonly #closed = new Set<number>();
  /** The configuration that workers run, or are about to run. */
  #config: Config;
  #listeners: readonly BoundListener[] = [];
  #restartMs = MIN_RESTART_MS;
  #stopping: Promise<void> | null = null;
  /** Loads and replacements run one after the other. */
  #queue: Promise<unknown> = Promise.resolve();

  constructor(config: Config, options: WorkerPoolOptions) {
    const { count, clock, log, metrics, onFailure, program = WORKER } = options;
    this.#metrics = metrics;
    this.#onFailure = onFailure;
    this.#config = config;
    this.#count = count;
    this.#clock = clock;
    this.#process = new ProcessMeasures(clock, log);
    this.#log = log;
    // Workers accept connections from the listening socket themselves. If this process passed a connection to
    // a worker that ends in the meantime, the connection would be lost, neither served nor closed. Must be
    // set before the set-up, which freezes it.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({ exec: program, args: [] });
    process.on('SIGUSR1', () => {
      for (const worker of this.#workers) worker.reopenLogs();
    });
    // Whatever ends the main process also ends its workers.
    process.once('exit', () => {
      for (const worker of this.#workers) worker.kill();
    });
  }

  async start(): Promise<void> {
    try {
      await this.reload(this.#config);
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  reload(config: Config, wanted: ReportWanted = NOTHING_ELSE): Promise<ReloadReport> {
    return this.#enqueue(async () => {
      if (this.#stopping !== null)
        throw new HubgateError('gateway-stopped', 'The gateway is stopping');
      const running = [...this.#workers];
      const fresh: Worker[] = [];
      try {
        // At the start, or if the active configuration ends every worker that tries to serve it.
        if (running.length === 0) while (fresh.length < this.#count) fresh.push(this.#fork());
        const report = await this.#load([...running, ...fresh], config, wanted);
        this.#config = config;
        return report;
      } catch (error) {
        // They never served, so that nothing takes their places.
        for (const worker of fresh) this.#workers.delete(worker);
        await Promise.all(fresh.map(endOf));
        throw error;
      }
    });
  }

  dryRun(config: Config): Promise<LoadPreview> {
    return this.#enqueue(async () => {
      this.#requireOpen(config);
      const text = textOf(config);
      const [first, ...others] = this.#workers;
      if (first === undefined) throw new HubgateError('no-worker', 'No worker is running');
      const dryRun = (worker: Worker) => worker.orderLong('dryRun', text);
      // Only the first worker: a configuration that cannot be built is tried once.
      const preview = await dryRun(first);
      return sumPreviews([preview, ...(await Promise.all(others.map(dryRun)))]);
    });
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  get listeners(): readonly BoundListener[] {
    return this.#listeners;
  }

  async status(): Promise<GatewayStatus> {
    let hanging = false;
    const asked = [...this.#workers].map(async (worker) => {
      const status = await worker.ask('status').catch((error: unknown) => {
        // One that takes long to start serves nobody yet.
        if (codeOf(error) === 'worker-silent' && worker.listens) hanging = true;
        return null;
      });
      // A worker that has just been started or has just ended has no status.
      return status === null ? [] : [{ worker, status }];
    });
    const statuses = (await Promise.all(asked)).flat();
    const [first] = statuses;
    return {
      hubs: (first?.status.hubs ?? []).map((hub, number) => hubOf(hub, number, statuses)),
      certificates: statuses.flatMap(({ status }) => status.certificates),
      serving: statuses.length > 0 && this.#listeners.length > 0,
      late: hanging || statuses.some(({ status }) => status.late),
    };
  }

  async slowest(): Promise<readonly SlowSubscriber[]> {
    const answers = [...this.#workers].map((worker) => worker.ask('slowest').catch(() => []));
    return slowestOf((await Promise.all(answers)).flat());
  }

  async families(): Promise<readonly Family[]> {
    const workers = [...this.#workers];
    const families = await Promise.all(
      workers.map((worker) => worker.ask('families').catch(() => [])),
    );
    return [
      gauge('hubgate_workers', 'Processes that serve.', workers.length),
      ...this.#process.families(),
      ...families.flat(),
    ];
  }

  purge(order: PurgeOrder, reach: RevocationReach): Promise<number> {
    return this.#orderAll(reach, (worker, how) => worker.ask('purge', order, how));
  }

  revoke(tokenId: string, reach: RevocationReach): Promise<number> {
    return this.#orderAll(reach, (worker, how) => worker.ask('revoke', tokenId, how));
  }

  /**
   * Gives all workers an order, and adds up what each has counted. A worker that hangs carries it out when it works
   * again. Until then it may go on as before, so the order is not confirmed.
   *
   * @throws HubgateError `order-unconfirmed`, `nodes-not-told`
   */
  async #orderAll(reach: RevocationReach, give: CountedOrder): Promise<number> {
    const confirmed: Worker[] = [];
    let total = 0;
    let isMissed = false;
    // First in every worker, so that each counts its own.
    const told = [...this.#workers].map(async (worker) => {
      try {
        const count = await give(worker, 'here');
        total += count;
        confirmed.push(worker);
      } catch (error) {
        if (servesNobody(worker, error)) return;
        isMissed = true;
        const fields = { pid: worker.pid, error: messageOf(error) };
        this.#log.warn('A worker has not confirmed an order', fields);
      }
    });
    await Promise.all(told);
    const failure = reach === 'here' ? null : await this.#passOn(confirmed, give);
    if (isMissed) throw notConfirmed(confirmed.length);
    if (failure !== null) throw failure;
    return total;
  }

  /** Lets one worker notify the other machines. If it has ended in the meantime, the next one does. */
  async #passOn(workers: readonly Worker[], give: CountedOrder): Promise<HubgateError | null> {
    for (const worker of workers) {
      try {
        await give(worker, 'everywhere');
        return null;
      } catch (error) {
        if (error instanceof HubgateError && error.code === 'nodes-not-told') return error;
      }
    }
    const message = 'No worker has confirmed that other machines get the order. Repeat it';
    return new HubgateError('order-unconfirmed', message);
  }

  async #load(
    workers: readonly Worker[],
    config: Config,
    wanted: ReportWanted = NOTHING_ELSE,
  ): Promise<ReloadReport> {
    this.#requireOpen(config);
    const text = textOf(config);
    const salts = this.#playgrounds.for(config);
    const prepare = async (worker: Worker): Promise<void> => {
      await worker.orderLong('prepare', text, salts);
      if (this.#workers.has(worker)) this.#holders.add(worker);
    };
    try {
      const [first, ...others] = workers;
      // The first one alone. Work that only one worker can do (replacing the socket file of a dead process)
      // is then done before the others begin, and a configuration that cannot be built is tried once.
      if (first !== undefined) await prepare(first);
      // Waits for all: a worker that is still building cannot process an order to discard.
      const built = await Promise.allSettled(others.map(prepare));
      const failed = built.find((result) => result.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
    } catch (error) {
      await Promise.allSettled(workers.map((worker) => worker.orderLong('discard')));
      throw error;
    }
    const committed = await Promise.allSettled(
      workers.map((worker) => worker.orderLong('commit', wanted)),
    );
    const failures = committed.flatMap((result) => (result.status === 'rejected' ? result : []));
    // If no worker could commit it, it is not active: all keep serving the previous one.
    const [failure] = failures;
    if (failure !== undefined && failures.length === workers.length) throw failure.reason;
    this.#playgrounds.keep(salts);
    // A worker that could not commit is replaced by one that runs the same configuration as the others, unless
    // all of them are stopping.
    for (const [number, { status }] of committed.entries()) {
      if (status === 'rejected' && this.#stopping === null) workers[number]?.kill();
    }
    for (const fd of descriptorsOf(config)) this.#inherited.add(fd);
    const reports = committed.flatMap((result) =>
      result.status === 'fulfilled' ? [result.value] : [],
    );
    this.#listeners = reports[0]?.listeners ?? this.#listeners;
    const [first, ...others] = reports.flatMap(({ report: { changes } }) => changes ?? []);
    return {
      endingStreams: sum(reports.map(({ report }) => report.endingStreams)),
      ...(first === undefined ? {} : { changes: sumPreviews([first, ...others]) }),
    };
  }

  /** @throws Error of the system that has no room for another process */
  #fork(): Worker {
    const worker: Worker = new Worker(cluster.fork(), {
      onSignal: (signal, id) => void this.#pass(signal, worker, id),
      onExit: () => this.#ended(worker),
      ...{ metrics: this.#metrics, clock: this.#clock, log: this.#log },
    });
    this.#workers.add(worker);
    return worker;
  }

  async #pass(signal: Signal, from: Worker, id: number | undefined): Promise<void> {
    const others = [...this.#workers].filter((worker) => worker !== from);
    if (id === undefined) {
      for (const worker of others) worker.signal(signal);
      return;
    }
    await Promise.all(others.map((worker) => worker.handle(signal)));
    from.signalHandled(id);
  }

  #ended(worker: Worker): void {
    const isMissed = this.#workers.delete(worker);
    this.#holders.delete(worker);
    if (!isMissed || this.#stopping !== null) return;
    if (this.#holders.size === 0) {
      for (const fd of this.#inherited) this.#closed.add(fd);
      this.#inherited.clear();
      const failure = this.#failureOf(this.#config);
      if (failure !== null) return this.#onFailure(failure);
    }
    const delay = this.#replaceLater();
    this.#log.error('A worker ended; hubgate starts another one', { pid: worker.pid, delay });
  }

  /** @throws HubgateError `listen-failed` if the configuration needs a descriptor that is closed */
  #requireOpen(config: Config): void {
    const failure = this.#failureOf(config);
    if (failure !== null) throw failure;
  }

  #failureOf(config: Config): HubgateError | null {
    const fd = descriptorsOf(config).find((each) => this.#closed.has(each));
    if (fd === undefined) return null;
    const message = `Cannot listen on fd/${fd}: it was closed when the last worker ended; start hubgate again`;
    return new HubgateError('listen-failed', message);
  }

  /** Returns the delay in milliseconds. */
  #replaceLater(): number {
    const max = this.#workers.size === 0 ? MAX_RESTART_OF_LAST_MS : MAX_RESTART_MS;
    const delay = Math.min(this.#restartMs, max);
    this.#restartMs = Math.min(2 * this.#restartMs, MAX_RESTART_MS);
    this.#clock.after(delay, () => void this.#enqueue(() => this.#replace()));
    return delay;
  }

  async #replace(): Promise<void> {
    // A reload may have started all of them again.
    if (this.#stopping !== null || this.#workers.size >= this.#count) return;
    let worker: Worker | null = null;
    try {
      worker = this.#fork();
      await this.#load([worker], this.#config);
      this.#clock.after(MAX_RESTART_MS, () => {
        this.#restartMs = MIN_RESTART_MS;
      });
      this.#log.info('A worker was replaced', { pid: worker.pid });
    } catch (error) {
      this.#log.error('A worker could not be started', { error: messageOf(error) });
      // The end of a worker triggers the next attempt.
      if (worker === null) this.#replaceLater();
      else await endOf(worker);
    }
  }

  async #stop(): Promise<void> {
    const cancel = this.#clock.after(this.#config.options.gracePeriodMs + CLOSING_MS, () => {
      this.#log.error('Workers that hang are killed', {
        pids: [...this.#workers].map(({ pid }) => pid),
      });
      for (const worker of this.#workers) worker.kill();
    });
    // A load that waits for a worker that hangs must not delay the others.
    await within(ANSWER_MS, this.#clock, this.#queue, () => new Error('late')).catch(ignore);
    await Promise.allSettled(
      [...this.#workers].map(async (worker) => {
        await worker.order('stop').catch(() => worker.kill());
        await worker.ended();
      }),
    );
    await this.#queue;
    cancel();
    this.#listeners = [];
    this.#process.close();
  }

  #enqueue<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(task);
    this.#queue = result.catch(ignore);
    return result;
  }
}

/** Ends a worker at once; resolves when it is gone. */
async function endOf(worker: Worker): Promise<void> {
  worker.kill();
  await worker.ended();
}

/** Whether a worker that could not carry out an order is gone, or has no configuration yet. */
function servesNobody({ listens }: Worker, error: unknown): boolean {
  return !listens || ['worker-ended', 'not-prepared'].includes(codeOf(error) ?? '');
}

function notConfirmed(confirmed: number): HubgateError {
  const message =
    confirmed > 0
      ? 'A worker has not confirmed the order. It carries it out when it works again. Repeat it'
      : 'No worker has confirmed the order. They carry it out when they work again, but other machines do not get it. Repeat it';
  return new HubgateError('order-unconfirmed', message);
}

/** The descriptors of inherited sockets that a configuration uses. */
function descriptorsOf(config: Config): readonly number[] {
  return planListeners(config).flatMap(({ bind }) => (bind.kind === 'fd' ? bind.fd : []));
}

/** Encodes a configuration for a worker. */
function textOf(config: Config): string {
  return JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: false }));
}

/** The status of a hub over all workers. */
function hubOf(
  { name, profile, counts }: WorkerStatus['hubs'][number],
  number: number,
  statuses: readonly { readonly worker: Worker; readonly status: WorkerStatus }[],
): RunningHub {
  const all = statuses.flatMap(({ status }) => status.hubs[number]?.counts ?? []);
  // All workers run the same program, so their counters have the same names.
  const names = Object.keys(counts) as (keyof RunningHub['counts'])[];
  const totals = names.map((each) => [each, sum(all.map((one) => one[each]))]);
  return {
    name,
    profile,
    counts: Object.fromEntries(totals) as RunningHub['counts'],
    async check() {
      await Promise.all(statuses.map(({ worker }) => worker.order('check', number)));
    },
  };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
