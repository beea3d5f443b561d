import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** The built program. */
export const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));

/** What the kernel counts processor time in (`getconf CLK_TCK`): 10 ms. */
const TICK_US = 10_000;
/** How long a server may take until it accepts. */
const START_MS = 20_000;

/** A program that runs for the length of a measurement, with all that it starts. */
export interface RunningProgram {
  /** Of the first process; the others are found below it. */
  readonly pid: number;
  /** Sends a word and resolves to the number that comes back; only with `channel`. */
  ask(order: string): Promise<number>;
  stop(): Promise<void>;
}

export interface StartOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Cores to which the program is bound, as `taskset` takes them. */
  readonly cpus?: string;
  /** For a program of Node that answers over the channel between processes. */
  readonly channel?: boolean;
}

/** Starts a server and waits until it accepts connections on `port`. */
export async function startServer(
  command: string,
  args: readonly string[],
  port: number,
  options: StartOptions = {},
): Promise<RunningProgram> {
  const { cpus, env, channel = false } = options;
  const [program, ...rest] =
    cpus === undefined ? [command, ...args] : ['taskset', '-c', cpus, command, ...args];
  const child = spawn(program, rest, {
    env: { ...process.env, ...env },
    stdio: channel ? ['ignore', 'ignore', 'pipe', 'ipc'] : ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-4000);
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`${command} could not be started`);
  const deadline = Date.now() + START_MS;
  while (!(await accepts(port))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`${command} does not accept on port ${port}:\n${said}`);
    }
    await after(20);
  }
  const ask = async (order: string): Promise<number> => {
    child.send(order);
    const [answer]: unknown[] = await once(child, 'message');
    return Number(answer);
  };
  return { pid, ask, stop: () => end(child) };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await ended;
  clearTimeout(timer);
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Path of an installed program; null when it is not here. */
export function installed(name: string): string | null {
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];
  for (const directory of directories) {
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not in this one.
    }
  }
  return null;
}

/** Processor time of a process and all below it, user and system, in microseconds. */
export function cpuOf(pid: number): number {
  return familyOf(pid).reduce((sum, one) => {
    const [, utime = 0, stime = 0] = /^(?:\S+ ){11}(\d+) (\d+)/.exec(statOf(one)) ?? [];
    return sum + (Number(utime) + Number(stime)) * TICK_US;
  }, 0);
}

/** Resident memory of a process and all below it, in KiB. */
export function residentOf(pid: number): number {
  return familyOf(pid).reduce((sum, one) => {
    const status = readOrEmpty(`/proc/${one}/status`);
    return sum + Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0);
  }, 0);
}

/** The process that listens on a port, for a peer that somebody else has started. */
export function listenerOf(port: number): number | null {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const lines = `${readOrEmpty('/proc/net/tcp')}\n${readOrEmpty('/proc/net/tcp6')}`.split('\n');
  const inode = lines
    .map((line) => line.trim().split(/\s+/))
    .find((fields) => fields[1]?.endsWith(`:${hex}`) === true && fields[3] === '0A')?.[9];
  if (inode === undefined) return null;
  return processes().find((pid) => holds(pid, `socket:[${inode}]`)) ?? null;
}

function holds(pid: number, target: string): boolean {
  try {
    const directory = `/proc/${pid}/fd`;
    return readdirSync(directory).some((fd) => readlinkSync(join(directory, fd)) === target);
  } catch {
    return false;
  }
}

function familyOf(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const one of processes()) {
    const parent = Number(/^\S+ (\d+)/.exec(statOf(one))?.[1] ?? 0);
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const family = [pid];
  for (const one of family) family.push(...(children.get(one) ?? []));
  return family;
}

function processes(): number[] {
  return readdirSync('/proc').map(Number).filter(Number.isInteger);
}

/** What follows the name of the program, which may hold anything: `state ppid …`. */
function statOf(pid: number): string {
  const text = readOrEmpty(`/proc/${pid}/stat`);
  return text.slice(text.lastIndexOf(')') + 2);
}

function readOrEmpty(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
