import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { TestContext } from 'node:test';
import { packageDirectory, root } from './installed-package.ts';
import { TestProcess } from './process.ts';
import { isMissed } from './program.ts';
import { removeWith } from './temporary-directory.ts';

/** The user `nobody` of most systems: tests that run as root become it. */
const NOBODY = { uid: 65_534, gid: 65_534 };
/** What a checkout has that no user of it needs, and what the user makes. */
const LEFT_OUT = ['.git', 'bench', 'dist', 'node_modules', 'test', '.hubgate'];

/** Somebody without privileges, with an empty home and a shell. */
export interface OrdinaryUser {
  /** An empty directory, where the commands run. */
  readonly directory: string;
  /** Runs a command of a shell to its end. */
  run(command: string): Promise<Finished>;
  /** Starts a command that goes on, as in a terminal of its own. */
  start(command: string): Terminal;
  /** Writes a file into the directory. */
  write(name: string, text: string): void;
  read(name: string): string;
}

interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that runs in the foreground of a terminal. */
interface Terminal {
  readonly process: TestProcess;
  /** Types Ctrl-C, which reaches each process of the terminal; resolves when they have ended. */
  interrupt(): Promise<void>;
}

/** Null, and the test is skipped aloud, where such a user cannot read Node or the checkout. */
export function ordinaryUser(test: TestContext, kind: Installation): OrdinaryUser | null {
  const place = mkdtempSync(join(tmpdir(), 'hubgate-user-'));
  removeWith(test, place);
  chmodSync(place, 0o755);
  const user = process.getuid?.() === 0 ? NOBODY : {};
  const home = join(place, 'home');
  const directory = join(place, 'project');
  const prefix = join(place, 'prefix');
  const reading = `require('node:fs').readdirSync(${JSON.stringify(root)})`;
  const can = spawnSync(process.execPath, ['-e', reading], { ...user, cwd: place });
  if (can.status !== 0) {
    isMissed(test, 'a user without privileges cannot read Node or the checkout');
    return null;
  }
  for (const each of [home, directory, prefix]) mkdirSync(each);
  KINDS[kind](kind === 'global' ? prefix : directory);
  own(user, home, directory);
  const wholeEnv = {
    PATH: [join(prefix, 'bin'), dirname(process.execPath), process.env['PATH']].join(':'),
    HOME: home,
    NO_COLOR: '1',
    // npm would ask a registry for a newer one of itself.
    npm_config_update_notifier: 'false',
    // As on systems whose `sh` is bash: it becomes the program, which npm then signals itself.
    npm_config_script_shell: 'bash',
  };
  const options = { ...user, cwd: directory };
  return {
    directory,
    run: (command) =>
      new Promise((resolve, reject) => {
        const child = spawn('bash', ['-c', command], { ...options, env: wholeEnv });
        child.stdin.end();
        test.after(() => child.kill('SIGKILL'));
        let [stdout, stderr] = ['', ''];
        child.stdout.on('data', (chunk: Buffer) => (stdout += chunk));
        child.stderr.on('data', (chunk: Buffer) => (stderr += chunk));
        child.once('error', reject);
        child.once('close', (code) => resolve({ code, stdout, stderr }));
      }),
    start(command) {
      const running = new TestProcess(['-c', command], {}, directory, {
        ...user,
        program: 'bash',
        wholeEnv,
        detached: true,
      });
      const signal = async (name: NodeJS.Signals): Promise<void> => {
        const { pid, exitCode, signalCode } = running.child;
        if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, name);
        await running.exited();
      };
      test.after(() => signal('SIGTERM'));
      return { process: running, interrupt: () => signal('SIGINT') };
    },
    write: (name, text) => {
      writeFileSync(join(directory, name), text);
      own(user, join(directory, name));
    },
    read: (name) => readFileSync(join(directory, name), 'utf8'),
  };
}

/** How a user came by hubgate: for all projects, for one, or as a checkout. */
type Installation = 'global' | 'local' | 'checkout';

const KINDS: Readonly<Record<Installation, (directory: string) => void>> = {
  global(prefix) {
    const modules = join(prefix, 'lib', 'node_modules');
    installInto(modules);
    link(join(modules, 'hubgate'), join(prefix, 'bin'));
  },
  local(project) {
    const modules = join(project, 'node_modules');
    installInto(modules);
    link(join(modules, 'hubgate'), join(modules, '.bin'));
  },
  checkout(directory) {
    const isTaken = (path: string): boolean =>
      !LEFT_OUT.some((name) => path === join(root, name)) && !path.endsWith('/node_modules');
    cpSync(root, directory, { recursive: true, filter: isTaken });
    // What `npm ci` would fetch: the stamp of it says that this is up to date.
    const modules = join(directory, 'node_modules');
    mkdirSync(modules);
    for (const name of readdirSync(join(root, 'node_modules'))) {
      symlinkSync(join(root, 'node_modules', name), join(modules, name));
    }
  },
};

/** The package with what it depends on, as npm lays them out. */
function installInto(modules: string): void {
  const { files } = manifest(packageDirectory);
  for (const name of ['package.json', ...files.filter((each) => !each.startsWith('!'))]) {
    const to = join(modules, 'hubgate', name);
    cpSync(join(packageDirectory, name), to, { recursive: true });
  }
  // Within the package where it is the checkout, beside it where npm has installed it.
  const inside = join(packageDirectory, 'node_modules');
  const from = existsSync(inside) ? inside : dirname(packageDirectory);
  const copy = (name: string): void => {
    const to = join(modules, name);
    if (existsSync(to) || !existsSync(join(from, name))) return;
    cpSync(join(from, name), to, { recursive: true });
    for (const next of manifest(to).needed) copy(next);
  };
  for (const name of manifest(packageDirectory).needed) copy(name);
}

function manifest(directory: string) {
  const {
    files = [],
    dependencies = {},
    optionalDependencies = {},
  } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as {
    readonly files?: readonly string[];
    readonly dependencies?: Readonly<Record<string, string>>;
    readonly optionalDependencies?: Readonly<Record<string, string>>;
  };
  return { files, needed: Object.keys({ ...dependencies, ...optionalDependencies }) };
}

function link(hubgate: string, bin: string): void {
  mkdirSync(bin, { recursive: true });
  const program = join(hubgate, 'dist', 'cli', 'main.js');
  chmodSync(program, 0o755);
  symlinkSync(program, join(bin, 'hubgate'));
}

/** Gives files and directories with all in them to the user; links are not followed. */
function own(user: { readonly uid?: number; readonly gid?: number }, ...paths: string[]): void {
  if (user.uid === undefined) return;
  spawnSync('chown', ['-hR', `${user.uid}:${user.gid}`, ...paths]);
}
