import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import type { Owner } from './http.ts';
import { programPath } from './program.ts';

/** A redis-server, or a sentinel, that ends with its owner. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Runs a command by redis-cli, and gives its raw reply. */
  command(...args: string[]): string;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port and directory. */
  restart(): Promise<void>;
}

/**
 * @param config lines of its configuration, in which `{port}` is its port
 * @returns null when it is not installed; the test is skipped then
 */
export async function startRedis(
  test: TestContext,
  owner: Owner,
  config: readonly string[] = [],
): Promise<RedisServer | null> {
  return start(test, owner, 'redis-server', [
    'save ""',
    'appendonly no',
    'repl-diskless-sync-delay 0',
    ...config,
  ]);
}

/** A sentinel that watches one primary as `hub`, and decides alone. */
export async function startSentinel(
  test: TestContext,
  owner: Owner,
  primary: RedisServer,
): Promise<RedisServer | null> {
  return start(test, owner, 'redis-sentinel', [
    `sentinel monitor hub 127.0.0.1 ${primary.port} 1`,
    'sentinel down-after-milliseconds hub 500',
    'sentinel failover-timeout hub 3000',
  ]);
}

async function start(
  test: TestContext,
  owner: Owner,
  name: 'redis-server' | 'redis-sentinel',
  config: readonly string[],
): Promise<RedisServer | null> {
  const program = programPath(test, name);
  const cli = programPath(test, 'redis-cli', 'redis-tools');
  if (program === null || cli === null) return null;
  const port = await freePort();
  const directory = await mkdtemp(join(tmpdir(), 'hubgate-redis-'));
  const file = join(directory, 'redis.conf');
  const lines = [`port ${port}`, 'bind 127.0.0.1', `dir ${directory}`, ...config].map((line) =>
    line.replace('{port}', String(port)),
  );
  await writeFile(file, `${lines.join('\n')}\n`);
  let child = await run(program, file);
  owner.after(async () => {
    await end(child, 'SIGKILL');
    await rm(directory, { recursive: true, force: true });
  });
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    command: (...args) => ask(cli, port, args),
    kill: (signal = 'SIGKILL') => end(child, signal),
    async restart() {
      child = await run(program, file);
    },
  };
}

/** Commands that may be sent twice. */
const REPEATABLE = new Set(['ROLE', 'INFO', 'REPLICAOF', 'SENTINEL']);

/** How redis-cli says that the server has closed its connection, wherever it was in its work. */
const CLOSED = /Server closed the connection|Connection reset by peer|Broken pipe/;

/**
 * Runs a command. A sentinel closes all connections of a server whose role it changes: a repeatable
 * command is sent again.
 */
function ask(cli: string, port: number, args: readonly string[]): string {
  for (let attempt = 1; ; attempt++) {
    try {
      return execFileSync(cli, ['-p', String(port), ...args], { encoding: 'utf8' }).trim();
    } catch (error) {
      const isWorthRepeating = REPEATABLE.has(args[0] ?? '') && CLOSED.test(String(error));
      if (!isWorthRepeating || attempt === 10) throw error;
    }
  }
}

async function run(program: string, file: string): Promise<ChildProcess> {
  const child = spawn(program, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk;
      if (/Ready to accept connections|\+monitor master|Sentinel ID is/.test(said)) resolve();
    });
    child.once('exit', () => reject(new Error(`${program} has ended:\n${said}`)));
  });
  return child;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  await exit;
}
