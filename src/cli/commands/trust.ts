import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { systemClock } from '../../kernel/clock.ts';
import { LocalAuthority } from '../../tls/local-authority.ts';
import { readIfPresent } from '../../tls/storage.ts';
import {
  trustedRoot,
  type TrustedRoot,
  TrustedRoots,
  type CommandLine,
  type FoundStores,
  type TrustStore,
  findTrustStores,
} from '../../tls/system-trust-store.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import { writeNew } from '../new-file.ts';
import { EXIT, type Output } from '../terminal.ts';
import { configIfAny, storageOf } from '../read-config.ts';
import { execFile } from 'node:child_process';
import { homedir } from 'node:os';
import { promisify } from 'node:util';
import { messageOf } from '../../kernel/error.ts';

interface TrustFlags extends ConfigSource {
  readonly print?: true;
  readonly export?: string;
}

/** `hubgate trust`: makes this machine and its browsers trust the gateway's own authority. */
export function trustCommand(output: Output): Command {
  return withConfigSource(new Command('trust'))
    .description("make this machine and its browsers trust the gateway's local authority")
    .option('--print', 'only print the commands')
    .option('--export <file>', 'only write the root certificate to a file that every user can read')
    .action(async (flags: TrustFlags, command: Command) => {
      const storage = storageOf(configIfAny(flags, command));
      const authority = new LocalAuthority(storage, systemClock);
      const print = flags.print === true;
      if (flags.export !== undefined) {
        await authority.prepare();
        await writeNew(flags.export, await readFile(authority.rootFile, 'utf8'), 0o644);
        output.note(`${flags.export} has the root certificate of the authority in ${storage}`);
        return;
      }
      if (!print) await authority.prepare();
      else if ((await readIfPresent(authority.rootFile)) === null) {
        output.note(`${storage} has no authority yet; hubgate trust creates it`);
        return;
      }
      if (!(await trust(authority.rootFile, storage, print, output))) {
        process.exitCode = EXIT.failed;
      }
    });
}

async function trust(
  file: string,
  storage: string,
  print: boolean,
  output: Output,
): Promise<boolean> {
  const pem = await readFile(file, 'utf8');
  const root = trustedRoot(pem, file);
  const { stores, missing } = await trustStores();
  const changes: TrustChange[] = [];
  for (const store of stores) {
    if ((await store.has(root)) === true) output.note(`${store.name} already trusts ${root.label}`);
    else {
      const done = `${store.name} now trusts ${root.label}`;
      changes.push({ store, commands: store.install(root), done });
    }
  }
  if (changes.length > 0 && !print) await new TrustedRoots(storage).add(pem);
  const complete = await changeTrust(changes, { print }, output);
  for (const text of missing) output.note(text);
  return complete && missing.length === 0;
}

/** `hubgate untrust`: undoes `hubgate trust`, also for roots that have been replaced since. */
export function untrustCommand(output: Output): Command {
  return withConfigSource(new Command('untrust'))
    .description('remove the local authority of the gateway from the trust stores again')
    .option('--print', 'only print the commands')
    .action(async (flags: TrustFlags, command: Command) => {
      const storage = storageOf(configIfAny(flags, command));
      const trusted = new TrustedRoots(storage);
      const print = flags.print === true;
      const roots = await rootsOf(storage, trusted);
      if (roots.length === 0) return output.note(`${storage} has no authority`);
      const { stores, missing } = await trustStores();
      const changes: TrustChange[] = [];
      for (const root of roots) {
        for (const store of stores) {
          if ((await store.has(root)) === false) continue;
          const done = `${store.name} no longer trusts ${root.label}`;
          changes.push({ store, commands: store.remove(root), done });
        }
      }
      if (changes.length === 0) output.note('No store trusts the authority');
      const complete = await changeTrust(changes, { print }, output);
      for (const text of missing) output.note(text);
      if (!complete || missing.length > 0) process.exitCode = EXIT.failed;
      else if (!print) for (const root of roots) await trusted.delete(root);
    });
}

/** The roots that were put into stores, and the present one, which an older storage may not have recorded. */
async function rootsOf(storage: string, trusted: TrustedRoots): Promise<TrustedRoot[]> {
  const noted = await trusted.list();
  const { rootFile } = new LocalAuthority(storage, systemClock);
  const pem = await readIfPresent(rootFile);
  const present = pem === null ? [] : [trustedRoot(pem, rootFile)];
  return [...noted, ...present.filter(({ label }) => noted.every((one) => one.label !== label))];
}

export interface TrustChange {
  readonly store: TrustStore;
  readonly commands: readonly CommandLine[];
  /** Message after the change. */
  readonly done: string;
}

/** A program that takes longer is probably waiting for input. */
const TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;

/** The stores of this machine and this user. */
export function trustStores(): Promise<FoundStores> {
  const path = process.env['PATH'] ?? '';
  return findTrustStores({ platform: process.platform, home: homedir(), path });
}

/**
 * Changes stores. If this user lacks the permission, or has only asked for the commands, it prints the
 * commands instead. The program never acquires privileges; the operator has to run such commands.
 *
 * @returns whether everything has been done
 */
export async function changeTrust(
  changes: readonly TrustChange[],
  { print }: { readonly print: boolean },
  output: Output,
): Promise<boolean> {
  let complete = true;
  for (const { store, commands, done } of changes) {
    if (print) {
      for (const command of commands) output.result(commandText(store, command));
    } else if (store.obstacle !== null) {
      complete = false;
      output.note(`${store.name} can be changed only by an administrator; run:`);
      for (const command of commands) output.note(`    ${commandText(store, command)}`);
    } else if (await runAll(commands, store, output)) output.result(done);
    else complete = false;
  }
  return complete;
}

async function runAll(
  commands: readonly CommandLine[],
  { name }: TrustStore,
  output: Output,
): Promise<boolean> {
  for (const [program, ...args] of commands) {
    try {
      const limits = { timeout: TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES, shell: false };
      await promisify(execFile)(program, args, limits);
    } catch (error) {
      // Contains the command and the program's standard error.
      output.note(`${name} was not changed: ${messageOf(error).trim()}`);
      return false;
    }
  }
  return true;
}

function commandText({ obstacle }: TrustStore, command: CommandLine): string {
  const needsSudo = obstacle !== null && process.platform !== 'win32';
  return [...(needsSudo ? ['sudo'] : []), ...command].map(shellWord).join(' ');
}

function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
