import { execFile } from 'node:child_process';
import { homedir } from 'node:os';
import { promisify } from 'node:util';
import { messageOf } from '../kernel/error.ts';
import { findTrustStores } from '../tls/system-trust-store.ts';
import type { CommandLine, FoundStores, TrustStore } from '../tls/trust-store.ts';
import type { Output } from './terminal.ts';

/** The change of one store. */
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
