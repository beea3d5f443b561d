import { resolve } from 'node:path';
import { systemClock } from '../kernel/clock.ts';
import type { Config } from '../config/config.ts';
import { registry } from '../directives/registry.ts';
import { encodeConfig } from '../config/serialize.ts';
import { allHubs } from '../config/sites.ts';
import { isShared } from '../config/transports.ts';
import { ConfigError, describeProblem, type Problem, error, warning } from '../config/problem.ts';
import { codeOf, type HubgateError, messageOf } from '../kernel/error.ts';
import type { AdminControls, LoadOutcome, PostedConfig } from '../runtime/admin.ts';
import {
  createGateway,
  type Gateway,
  type ReloadReport,
  type ReportWanted,
} from '../runtime/gateway.ts';
import { type LoadPreview, NO_CHANGE } from '../runtime/load-preview.ts';
import {
  addedUp,
  buildFamily,
  certificateFamily,
  type LoadCounts,
  loadFamilies,
  metricsText,
} from '../runtime/metrics.ts';
import { healthFault, type StatusReport } from '../runtime/health.ts';
import { packageVersion } from './commands/version.ts';
import type { Family } from '../kernel/measures.ts';
import type { ConfigurableLogger, Logs } from './log-output.ts';
import { AdminPorts } from './admin-request.ts';
import { fingerprint } from '../load-config.ts';
import { type ReadyConfig, type Seen, watchedPaths } from './read-config.ts';
import { ABSENT, digestOf } from './watch/watched-path.ts';
import { FileWatcher, type ReadDigests } from './watch/file-watcher.ts';
import { workerCount } from './workers/worker-count.ts';
import { WorkerPool } from './workers/worker-pool.ts';

/** Errors of a load that have nothing to do with the configuration, so that the same load may succeed later. */
const PASSING: ReadonlySet<string | undefined> = new Set(['worker-ended', 'worker-silent']);
/** Time after which such a load is repeated. It doubles each time, up to a limit. */
const FIRST_REPEAT_MS = 1_000;
const LAST_REPEAT_MS = 60_000;

/** The digest of a file without content. */
const EMPTY = digestOf(new Uint8Array());

/** Reads the configuration again, and calls `seen` for each path that it looks up. */
export type ReadConfig = (seen: Seen) => ReadyConfig;

/** The functions for starting, reloading, querying and stopping a gateway. */
export type Served = Omit<Gateway, 'prepare'>;

export interface SupervisorOptions {
  readonly log: ConfigurableLogger;
  readonly logs: Logs;
  readonly read: ReadConfig;
  /** The file that `read` begins with, absolute; null if there is none. */
  readonly source: string | null;
  /** Reads a configuration that was posted to the admin API. */
  readonly readPosted: (posted: PostedConfig) => ReadyConfig;
  /** The digests from when the first configuration was read. */
  readonly seen: ReadDigests;
  /** Whether changes of the files are followed. */
  readonly watch: boolean;
  /** Called before and after each load except the first. */
  readonly onLoad: (phase: 'begins' | 'is over') => void;
  /** Called if the gateway can serve nothing any more. */
  readonly onFailure: (error: HubgateError) => void;
  /** Called when the admin API receives a request to stop. */
  readonly onStop: () => void;
}

/**
 * A gateway with everything that exists once per process: its log, its admin API, the files that it watches.
 * A load, whatever triggers it, waits for the previous one. If there is any error, the old configuration
 * stays.
 */
export class Supervisor {
  readonly gateway: Served;
  readonly #options: SupervisorOptions;
  readonly #watcher: FileWatcher;
  #current: ReadyConfig;
  /** Fingerprint of the active configuration, including the files that it was built from. */
  #fingerprint: string;
  readonly #admin: AdminPorts;
  readonly #version = packageVersion();
  /** Processes that serve, from the start to the end. */
  readonly #workers: number;
  #lastError: readonly Problem[] | null = null;
  #loads: LoadCounts = { succeeded: 0, failed: 0, lastSucceeded: true, lastSuccessAt: 0 };
  #draining = false;
  #watched: readonly string[] = [];
  /** Digests of what the last load from files has read that succeeded. */
  #loaded: ReadDigests;
  #queue: Promise<unknown> = Promise.resolve();
  /** Whether the last load has failed for a reason that may pass. */
  #mayPass = false;
  #repeatMs = FIRST_REPEAT_MS;
  #stopRepeat = (): void => {};

  constructor(first: ReadyConfig, options: SupervisorOptions) {
    this.#current = first;
    this.#fingerprint = fingerprint(first.config);
    this.#options = options;
    this.#loaded = options.seen;
    this.#workers = workerCount(first.config).count;
    this.gateway = openGateway(first.config, this.#workers, options, async () =>
      metricsText(await this.#families()),
    );
    this.#admin = new AdminPorts(this.#controls, options.log);
    this.#watcher = new FileWatcher({
      clock: systemClock,
      log: options.log,
      onChange: (unanswered) => this.#filesChanged(unanswered),
    });
  }

  /** @throws ConfigError, or HubgateError `listen-failed`; nothing is left open then */
  async start(): Promise<void> {
    const { config, warnings } = this.#current;
    this.#note(warnings);
    const admin = await this.#admin.prepare(config.options);
    try {
      await this.gateway.start();
    } catch (error) {
      await admin.discard();
      throw error;
    }
    admin.commit();
    this.#succeeded();
    this.#follow(watchedPaths(this.#current), this.#options.seen);
  }

  /** From now on the gateway is not ready. The admin API responds until the last stream has ended. */
  async stop(): Promise<void> {
    this.#draining = true;
    this.#stopRepeat();
    // First: a load in progress may wait for a worker that hangs, which only the stop ends. The gateway refuses
    // those that have not begun.
    const stopped = this.gateway.stop();
    await this.#watcher.close();
    await this.#queue;
    await stopped;
    await this.#admin.close();
  }

  /** The active configuration. */
  get config(): Config {
    return this.#current.config;
  }

  /** Where the admin API listens; empty if it is off. */
  get adminPlaces(): AdminPorts['places'] {
    return this.#admin.places;
  }

  /** Reads the configuration again and loads it. If it is refused, the reasons are logged. */
  reload(): Promise<void> {
    return this.#reload(this.#options.read);
  }

  async #reload(read: ReadConfig): Promise<void> {
    await this.#enqueue(read, true, { changes: false });
    if (!this.#mayPass || this.#draining) return;
    this.#options.log.info('hubgate loads the configuration again', { afterMs: this.#repeatMs });
    this.#stopRepeat = systemClock.after(this.#repeatMs, () => void this.#reload(read));
    this.#repeatMs = Math.min(2 * this.#repeatMs, LAST_REPEAT_MS);
  }

  /**
   * A shell empties a file before the command runs that writes it, and the command may take a while. Nobody has asked for
   * this load, so it does not end what is served.
   *
   * @throws ConfigError also if a file has become empty, or nothing would be served any more
   */
  readonly #readChanged: ReadConfig = (seen) => {
    let emptied: string | undefined;
    const next = this.#options.read((path, digest) => {
      const before = this.#loaded.get(path) ?? ABSENT;
      // A directory may lose its last file.
      const isFile = !path.endsWith('/');
      if (isFile && digest === EMPTY && before !== EMPTY && before !== ABSENT) emptied = path;
      seen(path, digest);
    });
    const hint = 'if that is intended, run hubgate reload or send SIGHUP';
    if (emptied !== undefined) {
      const message = `${emptied} has become empty, perhaps because it is being written`;
      throw new ConfigError([error('file-emptied', message, hint)]);
    }
    if (next.config.sites.length > 0 || this.config.sites.length === 0) return next;
    const message =
      'the configuration has no site any more, perhaps because a file is being written';
    throw new ConfigError([error('no-sites-left', message, hint)]);
  };

  /** A posted configuration is not watched, unless it is the content of the watched file. */
  #load(posted: PostedConfig): Promise<LoadOutcome> {
    const { source } = this.#options;
    const isSource = posted.file !== null && source !== null && resolve(posted.file) === source;
    return this.#enqueue(() => this.#options.readPosted(posted), isSource, { changes: true });
  }

  #dryRun(posted: PostedConfig): Promise<LoadOutcome> {
    const outcome = this.#queue.then(async () => {
      try {
        const next = this.#options.readPosted(posted);
        const { config } = next;
        this.#refuseUnshared(config);
        const preview = await this.gateway.dryRun(config);
        const changes = withAdmin(preview, this.#admin.changes(config.options));
        return { problems: this.#warningsOf(next), changes };
      } catch (error) {
        return { problems: problemsOf(error), changes: null };
      }
    });
    this.#queue = outcome;
    return outcome;
  }

  #enqueue(read: ReadConfig, followed: boolean, wanted: ReportWanted): Promise<LoadOutcome> {
    const { onLoad } = this.#options;
    const loaded = this.#queue.then(async () => {
      onLoad('begins');
      const outcome = await this.#try(read, followed, wanted);
      onLoad('is over');
      return outcome;
    });
    this.#queue = loaded;
    return loaded;
  }

  async #try(read: ReadConfig, followed: boolean, wanted: ReportWanted): Promise<LoadOutcome> {
    const { log } = this.#options;
    const seen = new Map<string, string>();
    this.#stopRepeat();
    this.#mayPass = false;
    try {
      const next = read((path, digest) => seen.set(path, digest));
      if (followed) this.#follow(watchedPaths(next), seen);
      const warnings = this.#warningsOf(next);
      this.#note(warnings);
      // Taken before the files are built into the gateway, so that a change in the meantime causes another
      // reload.
      const taken = fingerprint(next.config);
      if (taken === this.#fingerprint) {
        // A different spelling of the same configuration.
        this.#current = next;
        this.#succeeded();
        if (followed) this.#loaded = seen;
        log.info('Configuration unchanged');
        return { problems: warnings, changes: NO_CHANGE };
      }
      this.#refuseUnshared(next.config);
      const { endingStreams, changes } = await this.#swap(next, taken, wanted);
      this.#succeeded();
      if (followed) this.#loaded = seen;
      log.info('Configuration reloaded', { endingStreams });
      return { problems: warnings, changes: changes ?? null };
    } catch (error) {
      const problems = problemsOf(error);
      this.#lastError = problems;
      this.#mayPass = PASSING.has(codeOf(error));
      // The next load may find a file that is missing now.
      if (followed) {
        const looked = [...seen.keys()].filter((path) => !path.endsWith('/'));
        this.#follow([...new Set([...this.#watched, ...looked])], seen);
      }
      const { failed } = this.#loads;
      this.#loads = { ...this.#loads, failed: failed + 1, lastSucceeded: false };
      log.error('Configuration not loaded; the old one keeps serving');
      this.#note(problems);
      await this.#readFilesAnew();
      return { problems, changes: null };
    }
  }

  /** A mistake in the Hubfile does not prevent a renewed certificate from being used. */
  async #readFilesAnew(): Promise<void> {
    const { log } = this.#options;
    const wanted = fingerprint(this.#current.config);
    if (wanted === this.#fingerprint) return;
    try {
      await this.gateway.reload(this.#current.config);
      this.#fingerprint = wanted;
      log.info('Configuration files re-read');
    } catch (error) {
      log.error('Configuration files not re-read');
      this.#note(problemsOf(error));
    }
  }

  /** @throws ConfigError if the running processes cannot share a history */
  #refuseUnshared(config: Config): void {
    const alone = allHubs(config).find(({ hub }) => !isShared(hub.transport));
    if (this.#workers > 1 && alone !== undefined) {
      const { kind } = alone.hub.transport;
      const message = `each of the ${this.#workers} running workers would have a ${kind} transport of its own`;
      const hint = 'restart hubgate, or use transport lmdb, which workers share';
      throw new ConfigError([error('memory-with-workers', message, hint)]);
    }
  }

  /** The warnings of a configuration, and what it says that only a start can change. */
  #warningsOf({ config, warnings }: ReadyConfig): readonly Problem[] {
    const { count } = workerCount(config);
    if (count === this.#workers) return warnings;
    const message = `the number of workers changes from ${this.#workers} to ${count} at the next start of hubgate`;
    return [...warnings, warning('workers-at-next-start', message)];
  }

  #follow(watched: readonly string[], seen: ReadDigests): void {
    this.#watched = watched;
    if (this.#options.watch) this.#watcher.watch(watched, seen);
  }

  /** A file that does not respond would block this process while it is read. */
  async #filesChanged(unanswered: readonly string[]): Promise<void> {
    if (unanswered.length === 0) await this.#reload(this.#readChanged);
    else {
      const message = 'hubgate reads the configuration again when these files respond';
      this.#options.log.warn(message, { files: unanswered });
    }
  }

  /** Everything that can fail happens before the gateway's own swap, and nothing after it. */
  async #swap(next: ReadyConfig, taken: string, wanted: ReportWanted): Promise<ReloadReport> {
    const ports = this.#admin.changes(next.config.options);
    const log = this.#options.log.prepare(next.config.options.log);
    let admin: Awaited<ReturnType<AdminPorts['prepare']>> | null = null;
    try {
      admin = await this.#admin.prepare(next.config.options);
      const report = await this.gateway.reload(next.config, wanted);
      log.commit();
      admin.commit();
      this.#current = next;
      this.#fingerprint = taken;
      const { changes } = report;
      return changes === undefined ? report : { ...report, changes: withAdmin(changes, ports) };
    } catch (error) {
      log.discard();
      await admin?.discard();
      throw error;
    }
  }

  readonly #controls: AdminControls = {
    // As it was written: the value of a placeholder may be a secret, at any position.
    config: () =>
      encodeConfig(this.#current.written, registry, {
        showSecrets: false,
        brief: false,
        fromEnvironment: this.#current.fromEnvironment,
      }),
    status: () => this.gateway.status(),
    draining: () => this.#draining,
    families: () => this.#families(),
    report: () => this.#report(),
    lastError: () => this.#lastError,
    load: (posted) => this.#load(posted),
    dryRun: (posted) => this.#dryRun(posted),
    purge: (order) => this.gateway.purge(order, 'everywhere'),
    revoke: (tokenId) => this.gateway.revoke(tokenId, 'everywhere'),
    stop: () => this.#options.onStop(),
  };

  async #families(): Promise<readonly Family[]> {
    const { gateway } = this;
    const [{ certificates }, families] = await Promise.all([gateway.status(), gateway.families()]);
    return [
      buildFamily(this.#version),
      ...loadFamilies(this.#loads),
      certificateFamily(certificates),
      ...families,
    ];
  }

  async #report(): Promise<StatusReport> {
    const { gateway } = this;
    const [status, slowest, families] = await Promise.all([
      gateway.status(),
      gateway.slowest(),
      this.#families(),
    ]);
    const fault = await healthFault('ready', { ...status, draining: this.#draining });
    return {
      version: this.#version,
      time: systemClock.now(),
      ready: fault === null,
      fault,
      loads: this.#loads,
      metrics: await addedUp(families),
      slowest,
    };
  }

  #succeeded(): void {
    this.#lastError = null;
    this.#repeatMs = FIRST_REPEAT_MS;
    this.#loads = {
      ...this.#loads,
      succeeded: this.#loads.succeeded + 1,
      lastSucceeded: true,
      lastSuccessAt: systemClock.now(),
    };
  }

  #note(problems: readonly Problem[]): void {
    const { log } = this.#options;
    for (const problem of problems) {
      const fields = { code: problem.code };
      if (problem.severity === 'error') log.error(describeProblem(problem), fields);
      else log.warn(describeProblem(problem), fields);
    }
  }
}

/** Runs in this process or, with several workers, in processes of their own. */
function openGateway(
  config: Config,
  workers: number,
  { log, logs, onFailure }: SupervisorOptions,
  metrics: () => Promise<string>,
): Served {
  if (workers > 1) {
    const clock = systemClock;
    return new WorkerPool(config, { count: workers, clock, log, metrics, onFailure });
  }
  return createGateway(config, { log, openLog: logs.open, metrics });
}

/** The ports for status and metrics belong to the main process. */
function withAdmin(
  changes: LoadPreview,
  { opened, closed }: ReturnType<AdminPorts['changes']>,
): LoadPreview {
  const { listeners } = changes;
  return {
    ...changes,
    listeners: {
      ...listeners,
      opened: [...listeners.opened, ...opened],
      closed: [...listeners.closed, ...closed],
    },
  };
}

/** The reasons why a load failed, for any kind of error. */
function problemsOf(thrown: unknown): readonly Problem[] {
  if (thrown instanceof ConfigError) return thrown.problems;
  return [error(codeOf(thrown) ?? 'load-failed', messageOf(thrown))];
}
