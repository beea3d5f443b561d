import { mkdtempSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import type { HubKey, HubOptions } from '../../src/hub.ts';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import type { LogLine } from './hub-server.ts';
import { cli, TestProcess } from './process.ts';

/** A hub of the built program, whose connections are shared among its workers. */
export interface WorkerHub {
  readonly origin: string;
  /** What all processes have logged since the hub was started. */
  readonly log: readonly LogLine[];
  stop(): Promise<void>;
}

const RELOADED = 'Configuration reloaded';
const REFUSED = 'Configuration not loaded';

/**
 * One `hubgate run` for all hubs of a test file. Each hub is a site that a reload adds: to start a main process and
 * its workers anew would take most of the time of a test.
 */
class WorkerGateway {
  readonly directory = mkdtempSync(join(tmpdir(), 'hubgate-workers-'));
  readonly #config = join(this.directory, 'hubgate.json');
  readonly #workers: number;
  readonly #sites = new Set<object>();
  #process: TestProcess | undefined;
  #loads = Promise.resolve();

  constructor(workers: number) {
    this.#workers = workers;
  }

  get output(): string {
    return this.#process?.output ?? '';
  }

  /** Resolves when the site is served; rejects if it is refused. */
  async add(site: object): Promise<void> {
    this.#sites.add(site);
    try {
      await this.#load();
    } catch (error) {
      this.#sites.delete(site);
      throw error;
    }
  }

  /** Resolves when the site is not served any more. */
  remove(site: object): Promise<void> {
    return this.#sites.delete(site) ? this.#load() : Promise.resolve();
  }

  /** Leaves the site out of the next load. */
  forget(site: object): void {
    this.#sites.delete(site);
  }

  async end(): Promise<void> {
    await this.#process?.end('SIGKILL');
    rmSync(this.directory, { recursive: true, force: true });
  }

  #load(): Promise<void> {
    const load = this.#loads.then(async () => {
      const options = {
        admin: 'off',
        workers: this.#workers,
        storage: this.directory,
        gracePeriodMs: 1_000,
      };
      await writeFile(this.#config, JSON.stringify({ options, sites: [...this.#sites] }));
      if (this.#process === undefined) {
        this.#process = new TestProcess([cli, 'run', '--no-watch', '--config', this.#config]);
        await this.#process.says('Listening on');
        return;
      }
      const said = this.output.length;
      this.#process.child.kill('SIGHUP');
      const line = await this.#process.lineWith([RELOADED, REFUSED], said);
      if (line.includes(REFUSED)) throw new Error(this.output.slice(said));
    });
    this.#loads = load.catch(() => {});
    return load;
  }
}

const gateways = new Map<number, WorkerGateway>();
// At the end of the file: inside a test it would be the end of that test.
after(async () => {
  for (const gateway of gateways.values()) await gateway.end();
});

/** Serves a hub as it would be mounted with the options, by a gateway with as many workers. */
export async function startWorkerHub(
  test: Owner,
  workers: number,
  { issuers, legacy, history, log: _log, clock: _clock, ...options }: HubOptions,
): Promise<WorkerHub> {
  const { redis: _redis, postgres: _postgres, ...hub } = options;
  const gateway = gateways.get(workers) ?? new WorkerGateway(workers);
  gateways.set(workers, gateway);
  const port = await freePort();
  const site = {
    // On every name: tests say what they like.
    addresses: [{ scheme: 'http', host: '', port }],
    bind: ['127.0.0.1'],
    hub: {
      ...hub,
      issuers: issuers.map(({ publisher, subscriber, ...issuer }) => ({
        ...issuer,
        publisher: keySource(publisher),
        subscriber: keySource(subscriber),
      })),
      legacy: {
        publisher: keySource(legacy?.publisher),
        subscriber: keySource(legacy?.subscriber),
      },
      transport: { kind: 'lmdb', path: history ?? join(gateway.directory, `history-${port}`) },
    },
    routes: [
      { handler: { kind: 'hub' } },
      { handler: { kind: 'respond', status: 404, body: 'the site' } },
    ],
  };
  const said = gateway.output.length;
  await gateway.add(site);
  test.after(() => gateway.forget(site));
  return {
    origin: `http://127.0.0.1:${port}`,
    get log() {
      const lines = gateway.output.slice(said).split('\n');
      return lines.flatMap((line) => logLine(line) ?? []);
    },
    stop: () => gateway.remove(site),
  };
}

function keySource(key: HubKey | undefined): object | null {
  if (key === undefined) return null;
  if ('key' in key) return { kind: 'jwt', ...key };
  return { kind: 'jwks', uri: key.jwksUri, algorithms: key.algorithms ?? [] };
}

function logLine(text: string): LogLine | null {
  if (!text.startsWith('{')) return null;
  const { level, msg, ...fields } = JSON.parse(text);
  return { level, message: msg, fields };
}
