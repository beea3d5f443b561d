import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Owner } from './http.ts';
import { cli, root } from './installed-package.ts';

export { cli, root };

/** Flags with which Node runs TypeScript. */
export const TYPESCRIPT = ['--import', pathToFileURL(join(root, 'scripts/typescript.mjs')).href];
/** Flags with which Node runs the source of hubgate. */
export const SOURCE = ['--conditions=hubgate-source', ...TYPESCRIPT];

/** The single executable, where `npm run test:executable` runs the tests: it is started instead of `node <cli>`. */
const executable = process.env['HUBGATE_EXECUTABLE'] ?? '';

/** The program and the arguments that start `node` with these arguments. */
export function commandOf(args: readonly string[]): readonly [string, readonly string[]] {
  const [first, ...rest] = args;
  return executable !== '' && first === cli ? [executable, rest] : [process.execPath, args];
}

/** What is special about a process: another program than Node, another user. */
interface ProcessOptions extends Pick<SpawnOptions, 'uid' | 'gid' | 'detached'> {
  readonly program?: string;
  /** All of its environment, instead of that of the tests. */
  readonly wholeEnv?: NodeJS.ProcessEnv;
}

/** A child process whose output is kept. */
export class TestProcess {
  readonly child: ChildProcess;
  output = '';
  #waiting: (() => void)[] = [];
  #isClosed = false;
  readonly #closed: Promise<void>;

  constructor(
    args: readonly string[],
    env: NodeJS.ProcessEnv = {},
    cwd = root,
    { program, wholeEnv, ...options }: ProcessOptions = {},
  ) {
    const [command, given] = program === undefined ? commandOf(args) : [program, args];
    this.child = spawn(command, given, {
      ...options,
      cwd,
      env: wholeEnv ?? { ...process.env, NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.output += chunk;
        for (const wake of this.#waiting.splice(0)) wake();
      });
    }
    // Not `exit`: what a process has said may still be in its pipes when it is gone.
    this.#closed = new Promise((resolve) => {
      this.child.once('close', () => {
        this.#isClosed = true;
        for (const wake of this.#waiting.splice(0)) wake();
        resolve();
      });
    });
  }

  /** Resolves when the output, from `after` on, holds the text; rejects when the process ends first. */
  async says(text: string, after = 0): Promise<void> {
    while (!this.output.slice(after).includes(text)) await this.#more(text);
  }

  /** Resolves to the first complete line, from `after` on, that holds one of the texts. */
  async lineWith(texts: readonly string[], after = 0): Promise<string> {
    for (;;) {
      const lines = this.output.slice(after).split('\n').slice(0, -1);
      const found = lines.find((line) => texts.some((text) => line.includes(text)));
      if (found !== undefined) return found;
      await this.#more(texts.join(' or '));
    }
  }

  /** Resolves when there is more output; rejects when the process has ended. */
  async #more(wanted: string): Promise<void> {
    if (this.#isClosed) {
      throw new Error(
        `The process ended without saying ${JSON.stringify(wanted)}:\n${this.output}`,
      );
    }
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Resolves to the exit code when the process has ended by itself and its output is complete. */
  async exited(): Promise<number | null> {
    await this.#closed;
    return this.child.exitCode;
  }

  /** Sends a signal and resolves to the exit code; null for one that a signal killed. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    return this.exited();
  }
}

/** Starts a process that ends with the test at the latest. */
export function startProcess(
  test: Owner,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  cwd = root,
): TestProcess {
  const started = new TestProcess(args, env, cwd);
  test.after(() => started.end('SIGKILL'));
  return started;
}

/** Runs a command to its end. */
export async function runCommand(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  cwd = root,
): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }> {
  const [command, given] = commandOf([cli, ...args]);
  const child = spawn(command, given, {
    cwd,
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
  await once(child, 'close');
  return { code: child.exitCode, stdout, stderr };
}
