import { accessSync, constants, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { placeText } from '../config/bind-address.ts';
import type { Config, HubConfig } from '../config/config.ts';
import { allHubs, siteAddressText } from '../config/sites.ts';
import { keptBy } from '../config/transports.ts';
import { siteLabel } from '../runtime/metrics.ts';
import { systemClock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { endProcess } from '../kernel/process-end.ts';
import type { Environment } from '../hubfile/source.ts';
import { type ConfigurableLogger, logConsoleErrors, Logs } from './log-output.ts';
import { collectWhenIdle, loadingEnds, limitHeap } from '../kernel/v8-memory.ts';
import { ServiceManager } from './service-manager.ts';
import { thisMachine, workerCount } from './workers/worker-count.ts';
import { handleUserSignals, StopSignals } from './user-signals.ts';
import { counted, EXIT } from './terminal.ts';
import { packageVersion } from './commands/version.ts';
import { unwritable } from './new-file.ts';
import { alsoHiding, readText } from './read-config.ts';
import { type ReadConfig, type Served, Supervisor } from './supervisor.ts';
import { readsLegacyTokens } from '../auth/verify.ts';
import { profiles } from '../hub/profile.ts';
import type { Logger } from '../kernel/log.ts';

export interface RunOptions {
  readonly read: ReadConfig;
  /** The file that `read` begins with, absolute; null if there is none. */
  readonly source: string | null;
  /** The file with the variables, absolute; null if there is none. */
  readonly envPath: string | null;
  /** Returns the environment at the time of the call. */
  readonly environment: () => Environment;
  readonly watch: boolean;
  readonly pidfile?: string | undefined;
}

/** The text that `systemctl status` shows. */
const SERVING = 'Serving';
/** How often a stop logs what it waits for. */
const PROGRESS_MS = 2_000;
/** Sites that the log line at the start contains. */
const MAX_SITES = 50;
/** How long a start may take to finish after a request to stop, so that it ends in good order. */
const START_TIMEOUT_MS = 1_000;

/** Runs a gateway in the foreground until a signal, or the admin API, ends it. */
export async function runGateway({
  read,
  source,
  envPath,
  environment,
  watch,
  pidfile,
}: RunOptions): Promise<void> {
  loadingEnds();
  limitHeap();
  collectWhenIdle();
  const logs = new Logs();
  const signals = handleUserSignals();
  const seen = new Map<string, string>();
  const variables = envPath === null ? [] : [envPath];
  /** What the configuration that `read` returns hides. It stays hidden when another one is posted. */
  let ownFiles: readonly string[] = [];
  const readOwn: ReadConfig = (looked) => {
    const ready = alsoHiding(read(looked), variables);
    ownFiles = ready.config.options.hiddenFiles;
    return ready;
  };
  const first = readOwn((path, digest) => seen.set(path, digest));
  const log = logs.createLogger(first.config.options.log);
  signals.apply(log, logs);
  logConsoleErrors(log);
  if (pidfile !== undefined) requireWritable(pidfile);
  const manager = new ServiceManager(process.env, log);
  const stopSignals = new StopSignals(systemClock);
  let stop: (reason: string) => void = () => {};
  const stopped = new Promise<string>((resolve) => {
    stop = (reason) => {
      stopSignals.stopping();
      resolve(reason);
    };
  });
  let exit: number = EXIT.ok;
  const supervisor = new Supervisor(first, {
    log,
    logs,
    read: readOwn,
    source,
    seen,
    readPosted: ({ text, file, language }) => {
      const ready = readText(text, file ?? '(posted)', language, environment());
      const isSource = file !== null && resolve(file) === source;
      return alsoHiding(ready, isSource ? variables : ownFiles);
    },
    watch,
    onLoad: (phase) => (phase === 'begins' ? manager.reloading() : manager.ready(SERVING)),
    onFailure: (error) => {
      log.error(error.message, { code: error.code });
      exit = EXIT.failed;
      stop('failure');
    },
    onStop: () => stop('admin API'),
  });
  // Set up before anything is open. A signal during the start takes effect after it.
  let started: () => void = () => {};
  const running = new Promise<void>((resolve) => (started = resolve));
  process.on('SIGHUP', () => void running.then(() => supervisor.reload()));
  // One listener for all signals: without any listener, even for a moment, a signal would end the process
  // itself.
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      const meaning = stopSignals.meaning(name);
      if (meaning === 'stop') stop(name);
      if (meaning !== 'force') return;
      const exit = EXIT.forced;
      log.warn('Second signal: closing all connections', { signal: name, exit });
      if (pidfile !== undefined) removePidfile(pidfile, log);
      void endProcess(exit);
    });
  }
  const start = supervisor.start();
  if (!(await isOver(start, stopped))) {
    log.info('Stopping', { reason: await stopped, during: 'the start' });
    // The start waits for something that cannot be aborted, and nothing is served yet.
    await endProcess(exit);
  }
  started();
  announce(log, supervisor.gateway, supervisor.config, source);
  announceLegacy(log, supervisor.config);
  for (const { isAdmin, place } of supervisor.adminPlaces) {
    const where = `${place.bind.kind === 'host' ? 'http://' : ''}${placeText(place)}`;
    log.info(`${isAdmin ? 'Admin API' : 'Metrics'} on ${where}`);
  }
  try {
    if (pidfile !== undefined) writeFileSync(pidfile, `${process.pid}\n`);
  } catch (cause) {
    await supervisor.stop();
    throw unwritable(pidfile ?? '', cause);
  }
  // The timers of the gateway do not keep the process alive. This one does until the gateway stops.
  const alive = setInterval(() => {}, 60_000);
  manager.ready(SERVING);
  const reason = await stopped;
  log.info('Stopping', { reason, atMostMs: supervisor.config.options.gracePeriodMs });
  await manager.stopping();
  const progress = setInterval(() => void logProgress(log, supervisor.gateway), PROGRESS_MS);
  await supervisor.stop();
  clearInterval(progress);
  clearInterval(alive);
  if (pidfile !== undefined) removePidfile(pidfile, log);
  log.info('Stopped');
  // Everything is closed. A file watch that ends late must keep neither the process alive nor its callers
  // waiting.
  await endProcess(exit);
}

/** @throws HubgateError `unwritable-file`, before anything is open */
function requireWritable(pidfile: string): void {
  try {
    accessSync(existsSync(pidfile) ? pidfile : dirname(resolve(pidfile)), constants.W_OK);
  } catch (cause) {
    throw unwritable(pidfile, cause);
  }
}

/**
 * Removes the file, unless a newer process has written its own id into it. The user of the gateway may be allowed to
 * write it, but not to remove it from its directory.
 */
function removePidfile(pidfile: string, log: Logger): void {
  try {
    if (existsSync(pidfile) && Number(readFileSync(pidfile, 'utf8')) !== process.pid) return;
    rmSync(pidfile, { force: true });
  } catch (error) {
    log.warn(`${pidfile} cannot be removed`, { error: messageOf(error) });
  }
}

/** Whether the start has finished before a stop that does not wait for it. */
async function isOver(start: Promise<void>, stopped: Promise<string>): Promise<boolean> {
  const overtaken = stopped.then(
    () => new Promise<false>((resolve) => setTimeout(() => resolve(false), START_TIMEOUT_MS)),
  );
  return Promise.race([start.then(() => true), overtaken]);
}

/** Logs what runs, from which configuration, and where: the first information that a diagnosis needs. */
function announce(
  log: ConfigurableLogger,
  gateway: Served,
  config: Config,
  source: string | null,
): void {
  const { sites } = config;
  log.info(`hubgate ${packageVersion()} serves ${counted(sites.length, 'site')}`, {
    node: process.versions.node,
    configuration: source ?? 'not a file',
    sites: sites.slice(0, MAX_SITES).map(siteLabel),
  });
  log.info(workersLine(config));
  for (const { site, hub } of allHubs({ sites }).slice(0, MAX_SITES)) {
    const { transport } = hub;
    log.info(`History of ${siteLabel(site)}: ${keptBy(transport)}`, { transport: transport.kind });
  }
  for (const { host, port, socket, secure } of gateway.listeners) {
    const name = host.includes(':') ? `[${host}]` : host || '*';
    const where = socket === null ? `://${name}:${port}` : ` on ${socket}`;
    log.info(`Listening on ${secure ? 'https' : 'http'}${where}`);
  }
}

/** Logs what a stop still waits for. */
async function logProgress(log: ConfigurableLogger, gateway: Served): Promise<void> {
  const [{ hubs }, families] = await Promise.all([gateway.status(), gateway.families()]);
  const streams = hubs.reduce((sum, { counts }) => sum + counts.connected, 0);
  const sumOf = (name: string): number =>
    families
      .filter((family) => family.name === name)
      .flatMap(({ values }) => values)
      .reduce((sum, { value }) => sum + value, 0);
  log.info('Still stopping', {
    streams,
    requests: sumOf('hubgate_http_requests_in_flight'),
    connections: sumOf('hubgate_connections_open'),
  });
}

/** The number of processes, and the reason for it. */
function workersLine(config: Config): string {
  const machine = thisMachine();
  const { count: workers, why } = workerCount(config, machine);
  return `Running ${counted(workers, 'worker')} on ${counted(machine.processors, 'CPU')} (${why})`;
}

/** Logs which hubs accept clients of 0.x, and what they accept from them. */
function announceLegacy(log: Logger, config: Config): void {
  for (const { site, hub } of allHubs(config)) {
    if (hub.protocolVersionCompatibility === null) continue;
    log.info('This process accepts 0.x tokens', {
      site: site.addresses.map(siteAddressText).join(', '),
      deprecated_claim: readsLegacyTokens ? 'on' : 'off',
      accepts: acceptedBy(hub).join(', ') || 'nothing',
    });
  }
}

function acceptedBy({ profile, legacyForms }: HubConfig): readonly string[] {
  const { legacyClaim, legacyCookieName } = profiles[profile];
  const { strings, topics, templates } = legacyForms;
  const tokens = [
    `claim ${legacyClaim}`,
    'query authorization',
    `cookie ${legacyCookieName}`,
    ...(strings ? ['strings'] : []),
  ];
  return [
    ...(readsLegacyTokens ? tokens : []),
    ...(topics ? ['topics'] : []),
    ...(templates ? ['templates'] : []),
  ];
}
