import { rmSync, writeFileSync } from 'node:fs';
import type { Environment } from '../hubfile/source.ts';
import { type ConfigurableLogger, Logs } from './log-output.ts';
import { announceLegacy } from './legacy-notice.ts';
import { obeyUserSignals } from './user-signals.ts';
import { EXIT } from './output.ts';
import { readText } from './read-config.ts';
import { type ReadConfig, type Served, Supervisor } from './supervisor.ts';

export interface RunOptions {
  readonly read: ReadConfig;
  /** The file that `read` begins with, absolute; null when it is none. */
  readonly source: string | null;
  readonly environment: Environment;
  readonly watch: boolean;
  readonly pidfile?: string | undefined;
}

/** How long a start that was told to stop may take to come to its end, which is then in good order. */
const START_PATIENCE_MS = 1_000;

/** Runs a gateway in the foreground until a signal, or the admin API, ends it. */
export async function runGateway({
  read,
  source,
  environment,
  watch,
  pidfile,
}: RunOptions): Promise<void> {
  const logs = new Logs();
  const signals = obeyUserSignals();
  const seen = new Map<string, string>();
  const first = read((path, digest) => seen.set(path, digest));
  const log = logs.createLogger(first.config.options.log);
  signals.obey(log, logs);
  let stop: (reason: string) => void = () => {};
  const stopped = new Promise<string>((resolve) => {
    stop = resolve;
  });
  const supervisor = new Supervisor(first, {
    log,
    logs,
    read,
    source,
    seen,
    readPosted: ({ text, file, language }) =>
      readText(text, file ?? '(posted)', language, environment),
    watch,
    onStop: () => stop('admin API'),
  });
  // Before anything is open: a signal during the start is obeyed after it.
  let started: () => void = () => {};
  const running = new Promise<void>((resolve) => (started = resolve));
  process.on('SIGHUP', () => void running.then(() => supervisor.reload()));
  const ends = ['SIGINT', 'SIGTERM'] as const;
  for (const name of ends) process.once(name, () => stop(name));
  const start = supervisor.start();
  if (!(await isOver(start, stopped))) {
    log.info('Stopping', { reason: await stopped, during: 'the start' });
    // What it waits for is not ours to end, and nothing is served yet.
    process.exit(EXIT.ok);
  }
  started();
  announce(log, supervisor.gateway);
  announceLegacy(log, first.config);
  const { adminAddress } = supervisor;
  if (adminAddress !== null) {
    log.info(`Admin API on http://${adminAddress.host}:${adminAddress.port}`);
  }
  if (pidfile !== undefined) writeFileSync(pidfile, `${process.pid}\n`);
  // The timers of the gateway keep no process alive; this one does until it is told to stop.
  const alive = setInterval(() => {}, 60_000);
  const reason = await stopped;
  for (const name of ends) {
    process.on(name, () => {
      if (pidfile !== undefined) rmSync(pidfile, { force: true });
      process.exit(EXIT.forced);
    });
  }
  log.info('Stopping', { reason });
  await supervisor.stop();
  clearInterval(alive);
  if (pidfile !== undefined) rmSync(pidfile, { force: true });
  log.info('Stopped');
  // All is closed; a file watch that lets go late must not keep the process, nor who waits for it.
  process.exit(EXIT.ok);
}

/** Whether the start comes to its end, and is not overtaken by a stop that will not wait for it. */
async function isOver(start: Promise<void>, stopped: Promise<string>): Promise<boolean> {
  const overtaken = stopped.then(
    () => new Promise<false>((resolve) => setTimeout(() => resolve(false), START_PATIENCE_MS)),
  );
  return Promise.race([start.then(() => true), overtaken]);
}

function announce(log: ConfigurableLogger, gateway: Served): void {
  for (const { host, port, socket, secure } of gateway.listeners) {
    const name = host.includes(':') ? `[${host}]` : host || '*';
    const where = socket === null ? `://${name}:${port}` : ` on ${socket}`;
    log.info(`Listening on ${secure ? 'https' : 'http'}${where}`);
  }
}
