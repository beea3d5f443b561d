import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import type { Gateway, GatewayOptions } from '../../src/index.ts';
import { createGateway, parseHubfile } from './installed-package.ts';
import type { Config } from '../../src/config/config.ts';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import { RecordedLog } from './recorded-log.ts';

/** The ports of a gateway that an authority looks at. */
export interface Ports {
  readonly httpPort: number;
  readonly httpsPort: number;
}

export async function freePorts(): Promise<Ports> {
  return { httpPort: await freePort(), httpsPort: await freePort() };
}

/** A directory that several gateways may share; it goes when they have all stopped. */
export class SharedStorage {
  readonly path = mkdtempSync(join(tmpdir(), 'hubgate-acme-'));
  readonly #gateways: Gateway[] = [];

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

  sharedBy(gateway: Gateway): void {
    this.#gateways.push(gateway);
  }
}

export interface AcmeGatewayOptions extends Ports {
  readonly storage: SharedStorage;
  /** Lines of the global options. */
  readonly acme: string;
  readonly sites: string;
  readonly autoHttps?: string;
}

/** A gateway in this process that gets its certificates by ACME. */
export interface AcmeGateway {
  readonly gateway: Gateway;
  readonly log: RecordedLog;
  reload(sites: string): Promise<void>;
}

export async function startAcmeGateway(
  options: AcmeGatewayOptions,
  system: Pick<GatewayOptions, 'clock' | 'random'> = {},
): Promise<AcmeGateway> {
  const log = new RecordedLog();
  const gateway = createGateway(acmeConfig(options), { log, ...system });
  options.storage.sharedBy(gateway);
  await gateway.start();
  return {
    gateway,
    log,
    async reload(sites) {
      await gateway.reload(acmeConfig({ ...options, sites }));
    },
  };
}

function acmeConfig({
  storage,
  httpPort,
  httpsPort,
  acme,
  sites,
  autoHttps,
}: AcmeGatewayOptions): Config {
  const lines = [
    `storage ${storage.path}`,
    'admin off',
    'grace_period 2s',
    `http_port ${httpPort}`,
    `https_port ${httpsPort}`,
    ...(autoHttps === undefined ? [] : [`auto_https ${autoHttps}`]),
    ...acme.split('\n'),
  ];
  return parseHubfile(`{\n${lines.map((line) => `\t${line}\n`).join('')}}\n${sites}`, { env: {} });
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
