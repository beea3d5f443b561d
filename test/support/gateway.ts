import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Gateway, Logger, ReloadReport } from '../../src/index.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import type { Owner } from './http.ts';
import { cli, createGateway, parseHubfile, silentLogger } from './installed-package.ts';
import { TestProcess } from './process.ts';

/** A gateway with a storage of its own, which ends with its owner. */
export interface TestGateway {
  readonly storage: string;
  readonly rootFile: string;
  /** PEM of the local authority; readable once the gateway has started with `tls internal`. */
  root(): Promise<string>;
  /** Replaces the sites; rejects when the gateway refuses them. */
  reload(sites: string): Promise<Pick<ReloadReport, 'endingStreams'>>;
  /** Resolves when the gateway has stopped. */
  stop(): Promise<void>;
}

/** A gateway that runs as users start it: `hubgate run` in a process of its own. */
export interface TestProgram extends TestGateway {
  readonly process: TestProcess;
}

/** A gateway of the library, in this process. */
export interface TestLibraryGateway extends TestGateway {
  readonly gateway: Gateway;
  /** What {@link TestGateway.reload} would do. */
  dryRun(sites: string): ReturnType<Gateway['dryRun']>;
}

const DEFAULT_OPTIONS = '\tauto_https disable_redirects\n';

/** Starts the installed program with a Hubfile of `sites` below global options that keep it to itself. */
export async function startGateway(
  test: Owner,
  sites: string,
  options = DEFAULT_OPTIONS,
  env: NodeJS.ProcessEnv = {},
): Promise<TestProgram> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-gateway-'));
  const file = join(storage, 'Hubfile');
  await writeFile(file, hubfile(storage, options, sites));
  const running = new TestProcess([cli, 'run', '--no-watch', '--config', file], env);
  test.after(async () => {
    await running.end();
    await rm(storage, { recursive: true, force: true, maxRetries: 10 });
  });
  await running.says('Listening on');
  return {
    ...filesOf(storage),
    process: running,
    async reload(next) {
      await writeFile(file, hubfile(storage, options, next));
      const before = running.output.length;
      running.child.kill('SIGHUP');
      const answer = await running.lineWith(
        ['"Configuration reloaded"', '"Configuration unchanged"', 'the old one keeps serving'],
        before,
      );
      if (answer.includes('keeps serving')) throw new Error(running.output.slice(before));
      const { endingStreams = 0 } = JSON.parse(answer) as Partial<ReloadReport>;
      return { endingStreams };
    },
    async stop() {
      await running.end();
    },
  };
}

/**
 * The same as the library in this process, for tests that turn the clock, read the log as it is
 * written or count what the process holds.
 */
export async function startLibraryGateway(
  test: Owner,
  sites: string,
  options = DEFAULT_OPTIONS,
  log: Logger = silentLogger,
  clock: Clock = systemClock,
): Promise<TestLibraryGateway> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-gateway-'));
  const parse = (text: string) => parseHubfile(hubfile(storage, options, text), { env: {} });
  const gateway = createGateway(parse(sites), { log, clock });
  test.after(async () => {
    await gateway.stop();
    await rm(storage, { recursive: true, force: true, maxRetries: 10 });
  });
  await gateway.start();
  return {
    ...filesOf(storage),
    gateway,
    reload: (next) => gateway.reload(parse(next)),
    dryRun: (next) => gateway.dryRun(parse(next)),
    stop: () => gateway.stop(),
  };
}

function hubfile(storage: string, options: string, sites: string): string {
  return `{\n\tstorage ${storage}\n\tadmin off\n\tgrace_period 2s\n${options}}\n${sites}`;
}

function filesOf(storage: string): Pick<TestGateway, 'storage' | 'rootFile' | 'root'> {
  const rootFile = join(storage, 'pki', 'local', 'root.crt');
  return { storage, rootFile, root: () => readFile(rootFile, 'utf8') };
}
