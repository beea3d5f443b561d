import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { systemClock } from '../../src/kernel/clock.ts';
import { LocalAuthority } from '../../src/tls/local-authority.ts';
import { freePort } from './free-port.ts';
import { temporaryDirectory } from './temporary-directory.ts';
import { isMissed } from './program.ts';

const PROGRAMS = ['/usr/bin/pebble', '/usr/bin/pebble-challtestsrv'];

/** Whether pebble is installed; without it the test is skipped aloud, and in CI fails. */
export function hasPebble(test: TestContext): boolean {
  if (PROGRAMS.every((path) => existsSync(path))) return true;
  isMissed(test, 'pebble is not installed (apt-get install pebble)');
  return false;
}

export interface PebbleOptions {
  /** Where HTTP-01 is looked for. */
  readonly httpPort: number;
  /** Where TLS-ALPN-01 is looked for. */
  readonly httpsPort: number;
  /** Every account needs this key (RFC 8555 §7.3.4), base64url. */
  readonly externalAccount?: { readonly keyId: string; readonly macKey: string };
  /** Where it looks names up, instead of at its own server. */
  readonly nameServer?: string;
  /** Refused nonces in a hundred. */
  readonly nonceRejects?: number;
}

/** An ACME server that validates for real; every name is at 127.0.0.1. */
export interface Pebble {
  readonly directory: string;
  /** Root by which its directory is believed. */
  readonly rootFile: string;
  /** Its own name server, and where that is told records (pebble-challtestsrv). */
  readonly nameServer: string;
  readonly records: string;
  /** What it has said, for counting. */
  output(): string;
  /** Orders that it has been given. */
  orders(): number;
  /** PEM of the root of the certificates that it issues. */
  issuingRoot(): Promise<string>;
}

/** Starts pebble, with a DNS server for it, until the test ends. */
export async function startPebble(test: TestContext, options: PebbleOptions): Promise<Pebble> {
  const directory = await temporaryDirectory(test);
  const authority = new LocalAuthority(directory, systemClock);
  const { chain, key } = await authority.issue(['localhost', '127.0.0.1']);
  const [port, managementPort, dnsPort, dnsManagementPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const certificate = join(directory, 'pebble.crt');
  const privateKey = join(directory, 'pebble.key');
  const { externalAccount } = options;
  const config = {
    pebble: {
      listenAddress: `127.0.0.1:${port}`,
      managementListenAddress: `127.0.0.1:${managementPort}`,
      certificate,
      privateKey,
      httpPort: options.httpPort,
      tlsPort: options.httpsPort,
      ocspResponderURL: '',
      externalAccountBindingRequired: externalAccount !== undefined,
      externalAccountMACKeys:
        externalAccount === undefined ? {} : { [externalAccount.keyId]: externalAccount.macKey },
    },
  };
  const configFile = join(directory, 'pebble.json');
  await writeFile(certificate, chain);
  await writeFile(privateKey, key);
  await writeFile(configFile, JSON.stringify(config));
  const dns = new Program(test, 'pebble-challtestsrv', [
    ...['-defaultIPv4', '127.0.0.1', '-defaultIPv6', ''],
    ...['-dns01', `127.0.0.1:${dnsPort}`, '-management', `127.0.0.1:${dnsManagementPort}`],
    ...['-http01', '', '-https01', '', '-tlsalpn01', ''],
  ]);
  await dns.says('Starting challenge servers');
  const pebble = new Program(
    test,
    'pebble',
    ['-config', configFile, '-dnsserver', options.nameServer ?? `127.0.0.1:${dnsPort}`],
    {
      PEBBLE_VA_NOSLEEP: '1',
      PEBBLE_AUTHZREUSE: '0',
      PEBBLE_WFE_NONCEREJECT: String(options.nonceRejects ?? 30),
    },
  );
  await pebble.says('ACME directory available at');
  // It says so just before it listens.
  for (const opening of [port, managementPort, dnsPort, dnsManagementPort])
    await untilOpen(opening);
  return {
    directory: `https://127.0.0.1:${port}/dir`,
    rootFile: authority.rootFile,
    nameServer: `127.0.0.1:${dnsPort}`,
    records: `http://127.0.0.1:${dnsManagementPort}`,
    output: () => pebble.output,
    orders: () => pebble.output.split('Added order').length - 1,
    issuingRoot: () => fetchPem(`https://127.0.0.1:${managementPort}/roots/0`, authority.rootFile),
  };
}

/** A foreign program that ends with the test. */
class Program {
  output = '';
  readonly #child: ChildProcess;
  readonly #waiting = new Set<() => void>();

  constructor(
    test: TestContext,
    name: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ) {
    const child = spawn(name, args, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        this.output += chunk;
        this.#wake();
      });
    }
    child.once('exit', () => this.#wake());
    test.after(async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    });
  }

  async says(text: string): Promise<void> {
    while (!this.output.includes(text)) {
      if (this.#child.exitCode !== null) throw new Error(`It ended:\n${this.output}`);
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) {
      this.#waiting.delete(wake);
      wake();
    }
  }
}

async function untilOpen(port: number): Promise<void> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    const open = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    });
    socket.destroy();
    if (open) return;
  }
}

async function fetchPem(url: string, rootFile: string): Promise<string> {
  const sent = request(url, { ca: await readFile(rootFile) });
  sent.end();
  // Without a listener for errors, `once` rejects with them.
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
