import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { TestContext } from 'node:test';
import { promisify } from 'node:util';
import pg from 'pg';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import { isMissed } from './program.ts';

/** A PostgreSQL server in a directory of its own, which ends with its owner. */
export interface PostgresServer {
  readonly port: number;
  /** The address of its superuser and its first database; it asks for no password. */
  readonly url: string;
  readonly directory: string;
  /** Runs a statement in a connection of its own. */
  query(text: string, values?: readonly unknown[]): Promise<readonly Record<string, unknown>[]>;
  /** The same server with another database. */
  database(name: string): PostgresServer;
  /** Ends the server with all of its processes at once, as a loss of power ends it. */
  kill(): Promise<void>;
  /** Ends it in order, and all connections with it. */
  stop(): Promise<void>;
  /** Stops all of its processes until {@link goOn}; connections stay open. */
  halt(): void;
  goOn(): void;
  /** Starts it again on the same port and directory. */
  restart(): Promise<void>;
  /** A copy that follows it, as a server of its own. */
  replica(name?: string): Promise<PostgresServer>;
  /** Makes a replica accept writes. */
  promote(): Promise<void>;
}

export interface PostgresServerOptions {
  /** Lines of `postgresql.conf`. */
  readonly settings?: readonly string[];
  /** Lines that precede those of `pg_hba.conf`. */
  readonly access?: readonly string[];
  /** Files of its directory by their names, as its certificate. */
  readonly files?: Readonly<Record<string, string>>;
}

/** The server refuses to run as root. */
const NOBODY = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;
const user = isRoot ? NOBODY : {};
const run = promisify(execFile);

/** @returns null when it is not installed; the test is skipped then */
export async function startPostgres(
  test: Pick<TestContext, 'skip'>,
  owner: Owner,
  { settings = [], access = [], files = {} }: PostgresServerOptions = {},
): Promise<PostgresServer | null> {
  const programs = programDirectory(test);
  if (programs === null) return null;
  const directory = await emptyDirectory();
  const data = join(directory, 'data');
  const initdb = ['-A', 'trust', '-N', '-U', 'postgres', '-E', 'UTF8', '--locale=C', '-D', data];
  await run(join(programs, 'initdb'), initdb, { ...user, cwd: directory });
  for (const [name, text] of Object.entries(files)) {
    const path = join(data, name);
    writeFileSync(path, text, { mode: 0o600 });
    own(path);
  }
  const rules = join(data, 'pg_hba.conf');
  writeFileSync(rules, `${access.join('\n')}\n${readFileSync(rules, 'utf8')}`);
  return start(owner, programs, data, settings);
}

/** Where Debian and others keep the programs of the newest version; a test is skipped aloud without it. */
function programDirectory(test: Pick<TestContext, 'skip'>): string | null {
  const base = '/usr/lib/postgresql';
  const versions = existsSync(base) ? readdirSync(base).map(Number).filter(Number.isFinite) : [];
  const newest = Math.max(0, ...versions);
  const found = join(base, String(newest), 'bin');
  if (existsSync(join(found, 'initdb'))) return found;
  isMissed(test, 'PostgreSQL is not installed (apt-get install postgresql)');
  return null;
}

async function emptyDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-postgres-'));
  own(directory);
  return directory;
}

function own(path: string): void {
  if (isRoot) chownSync(path, NOBODY.uid, NOBODY.gid);
}

const SETTINGS = [
  "listen_addresses = '127.0.0.1'",
  "unix_socket_directories = ''",
  // What the system has taken over survives the end of a process, so nothing is waited for.
  'fsync = off',
  'shared_buffers = 16MB',
  'max_wal_size = 256MB',
  'wal_keep_size = 64MB',
  "log_min_messages = 'warning'",
];

async function start(
  owner: Owner,
  programs: string,
  data: string,
  settings: readonly string[],
): Promise<PostgresServer> {
  const port = await freePort();
  const lines = [...SETTINGS, `port = ${port}`, ...settings];
  writeFileSync(join(data, 'postgresql.auto.conf'), `${lines.join('\n')}\n`, { flag: 'a' });
  const launch = (): Promise<ChildProcess> => launched(join(programs, 'postgres'), data);
  let child = await launch();
  owner.after(async () => {
    await killWhole(child);
    await rm(dirname(data), { recursive: true, force: true, maxRetries: 5 });
  });
  const at = (name: string): Pick<PostgresServer, 'url' | 'query'> => {
    const url = `postgres://postgres@127.0.0.1:${port}/${name}`;
    return { url, query: (text, values) => queried(url, text, values) };
  };
  const server: PostgresServer = {
    ...{ port, directory: data, ...at('postgres') },
    database: (name) => ({ ...server, ...at(name) }),
    kill: () => killWhole(child),
    stop: () => ended(child, 'SIGINT'),
    halt: () => signalWhole(child, 'SIGSTOP'),
    goOn: () => signalWhole(child, 'SIGCONT'),
    async restart() {
      child = await launch();
    },
    async replica(name = 'replica') {
      const directory = await emptyDirectory();
      const copy = join(directory, 'data');
      const source = `host=127.0.0.1 port=${port} user=postgres application_name=${name}`;
      const flags = ['-R', '-X', 'stream', '-c', 'fast', '--no-sync'];
      const basebackup = ['-d', source, '-D', copy, ...flags];
      await run(join(programs, 'pg_basebackup'), basebackup, { ...user, cwd: directory });
      return start(owner, programs, copy, []);
    },
    async promote() {
      await run(join(programs, 'pg_ctl'), ['promote', '-w', '-D', data], { ...user, cwd: data });
    },
  };
  return server;
}

async function queried(
  url: string,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text, [...values])).rows;
  } finally {
    await client.end();
  }
}

async function launched(program: string, data: string): Promise<ChildProcess> {
  const child = spawn(program, ['-D', data], {
    ...{ ...user, cwd: data },
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { LC_ALL: 'C', PATH: process.env['PATH'] },
  });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.stderr.on('data', (chunk: Buffer) => {
      said = `${said}${chunk.toString()}`.slice(-10_000);
      if (/ready to accept (?:read-only )?connections/.test(said)) resolve();
    });
    child.once('exit', () => reject(new Error(`PostgreSQL has ended:\n${said}`)));
  });
  return child;
}

/** Its processes would end by themselves when the first one is gone, but only after what they are doing. */
async function killWhole(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  signalWhole(child, 'SIGSTOP');
  const children = childrenOf(child.pid);
  signalWhole(child, 'SIGKILL');
  await ended(child, 'SIGKILL');
  // The next server does not start while one of them has the shared memory.
  for (let asked = 0; asked < 1000 && children.some(runs); asked += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The first one comes first, so that it starts no others meanwhile. */
function signalWhole(child: ChildProcess, signal: NodeJS.Signals): void {
  const first = child.pid ?? 0;
  for (const pid of [first, ...childrenOf(first)]) {
    try {
      process.kill(pid, signal);
    } catch {
      // It has ended by itself.
    }
  }
}

function runs(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

function childrenOf(pid: number): readonly number[] {
  try {
    const path = `/proc/${pid}/task/${pid}/children`;
    return readFileSync(path, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
}
