import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createGateway,
  type Gateway,
  type Logger,
  parseHubfile,
  type ReloadReport,
  silentLogger,
} from '../../src/index.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import type { Owner } from './http.ts';

/** A gateway in this process, with a storage of its own. */
export interface TestGateway {
  readonly gateway: Gateway;
  readonly storage: string;
  readonly rootFile: string;
  /** PEM of the local authority; readable once the gateway has started with `tls internal`. */
  root(): Promise<string>;
  reload(sites: string): Promise<ReloadReport>;
}

/** Starts a gateway whose Hubfile is `sites` below global options that keep it to itself. */
export async function startGateway(
  test: Owner,
  sites: string,
  options = '\tauto_https disable_redirects\n',
  log: Logger = silentLogger,
  clock: Clock = systemClock,
): Promise<TestGateway> {
  const storage = await mkdtemp(join(tmpdir(), 'hubgate-gateway-'));
  const hubfile = (text: string): string =>
    `{\n\tstorage ${storage}\n\tadmin off\n\tgrace_period 2s\n${options}}\n${text}`;
  const gateway = createGateway(parseHubfile(hubfile(sites), { env: {} }), { log, clock });
  test.after(async () => {
    await gateway.stop();
    await rm(storage, { recursive: true, force: true });
  });
  await gateway.start();
  const rootFile = join(storage, 'pki', 'local', 'root.crt');
  return {
    gateway,
    storage,
    rootFile,
    root: () => readFile(rootFile, 'utf8'),
    reload: (text) => gateway.reload(parseHubfile(hubfile(text), { env: {} })),
  };
}
