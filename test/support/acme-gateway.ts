import { mkdtempSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { connect, type TLSSocket } from 'node:tls';
import type { GatewayOptions } from '../../src/index.ts';
import { freePort } from './free-port.ts';
import { type Owner, send } from './http.ts';
import { cli, createGateway, parseHubfile } from './installed-package.ts';
import { TestProcess } from './process.ts';
import { RecordedLog } from './recorded-log.ts';

/** The ports of a gateway that an authority looks at. */
export interface Ports {
  readonly httpPort: number;
  readonly httpsPort: number;
}

export async function freePorts(): Promise<Ports> {
  return { httpPort: await freePort(), httpsPort: await freePort() };
}

/** A directory that several gateways may share; it is removed when they have all stopped. */
export class SharedStorage {
  readonly path = mkdtempSync(join(tmpdir(), 'hubgate-acme-'));
  readonly #gateways: Pick<AcmeGateway, 'stop'>[] = [];
  #files = 0;

  constructor(test: Owner) {
    test.after(async () => {
      await Promise.all(this.#gateways.map((gateway) => gateway.stop()));
      rmSync(this.path, { recursive: true });
    });
  }

  /** PEM of the local authority. */
  async localRoot(): Promise<string> {
    return readFile(join(this.path, 'pki', 'local', 'root.crt'), 'utf8');
  }

  sharedBy(gateway: Pick<AcmeGateway, 'stop'>): void {
    this.#gateways.push(gateway);
  }

  /** Path for the Hubfile of another gateway. */
  hubfile(): string {
    this.#files += 1;
    return join(this.path, `Hubfile-${this.#files}`);
  }
}

export interface AcmeGatewayOptions extends Ports {
  readonly storage: SharedStorage;
  /** Lines of the global options. */
  readonly acme: string;
  readonly sites: string;
  readonly autoHttps?: string;
}

/** A gateway that gets its certificates by ACME. */
export interface AcmeGateway {
  readonly log: RecordedLog;
  reload(sites: string): Promise<void>;
  stop(): Promise<void>;
  /** The ports on which it listens, the admin API apart. */
  ports(): readonly number[];
  /** The certificates in use, as the metrics list them. */
  certificates(): Promise<readonly ListedCertificate[]>;
}

interface ListedCertificate {
  readonly names: readonly string[];
  readonly authority: string;
}

/** Starts the installed program, or for tests that turn the clock the library in this process. */
export async function startAcmeGateway(
  options: AcmeGatewayOptions,
  system?: Pick<GatewayOptions, 'clock' | 'random'>,
): Promise<AcmeGateway> {
  return system === undefined ? startProgram(options) : startLibrary(options, system);
}

async function startProgram(options: AcmeGatewayOptions): Promise<AcmeGateway> {
  const admin = `127.0.0.1:${await freePort()}`;
  const file = options.storage.hubfile();
  const write = (sites: string) => writeFile(file, hubfile({ ...options, sites }, admin));
  await write(options.sites);
  const running = new TestProcess([cli, 'run', '--no-watch', '--config', file]);
  const log = new RecordedLog();
  for (const stream of [running.child.stdout, running.child.stderr]) {
    if (stream !== null) createInterface({ input: stream }).on('line', (line) => log.addJson(line));
  }
  const stop = async (): Promise<void> => void (await running.end());
  options.storage.sharedBy({ stop });
  await running.says('Admin API on');
  return {
    log,
    stop,
    async reload(sites) {
      const before = log.of('Configuration reloaded').length;
      await write(sites);
      running.child.kill('SIGHUP');
      await log.says('Configuration reloaded', before + 1);
    },
    ports: () =>
      log.lines.flatMap(({ message }) => {
        const [, port] = /^Listening on https?:.*:(\d+)$/.exec(message) ?? [];
        return port === undefined ? [] : [Number(port)];
      }),
    async certificates() {
      const { body } = await send(`http://${admin}/metrics`);
      const series = /^hubgate_certificate_not_after_seconds\{names="(.*?)",authority="(.*?)"/gm;
      return [...body.matchAll(series)].map(([, names = '', authority = '']) => ({
        names: names.split(' '),
        authority,
      }));
    },
  };
}

async function startLibrary(
  options: AcmeGatewayOptions,
  system: Pick<GatewayOptions, 'clock' | 'random'>,
): Promise<AcmeGateway> {
  const log = new RecordedLog();
  const parse = (sites: string) => parseHubfile(hubfile({ ...options, sites }, 'off'), { env: {} });
  const gateway = createGateway(parse(options.sites), { log, ...system });
  options.storage.sharedBy(gateway);
  await gateway.start();
  return {
    log,
    stop: () => gateway.stop(),
    async reload(sites) {
      await gateway.reload(parse(sites));
    },
    ports: () => gateway.listeners.map(({ port }) => port),
    certificates: async () => (await gateway.status()).certificates,
  };
}

function hubfile(
  { storage, httpPort, httpsPort, acme, sites, autoHttps }: AcmeGatewayOptions,
  admin: string,
): string {
  const lines = [
    `storage ${storage.path}`,
    `admin ${admin}`,
    'grace_period 2s',
    `http_port ${httpPort}`,
    `https_port ${httpsPort}`,
    ...(autoHttps === undefined ? [] : [`auto_https ${autoHttps}`]),
    ...acme.split('\n'),
  ];
  return `{\n${lines.map((line) => `\t${line}\n`).join('')}}\n${sites}`;
}

/** A handshake with these roots and no others; it rejects when the client would not believe it. */
export function handshake(
  port: number,
  servername: string,
  ca: string,
  protocols: readonly string[] = ['http/1.1'],
): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: '127.0.0.1',
      port,
      servername,
      ca,
      ALPNProtocols: [...protocols],
    });
    socket.once('secureConnect', () => resolve(socket));
    socket.once('error', reject);
  });
}
