import { constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { findNssDatabases } from './nss-database.ts';
import { isAllowed, systemStore } from './system-trust-store.ts';
import type { FoundStores } from './trust-store.ts';

/** What decides which stores there are. */
export interface TrustSurroundings {
  readonly platform: NodeJS.Platform;
  /** Home directory, where browsers have their databases. */
  readonly home: string;
  /** As `PATH` has it. */
  readonly path: string;
}

/** Where programs of the administrator are, which the PATH of others often leaves out. */
const SYSTEM_PROGRAMS = ['/usr/sbin', '/sbin', '/usr/bin', '/bin'];

/** The stores of the system and, on Linux, of the user's browsers. Nothing is changed. */
export async function findTrustStores(surroundings: TrustSurroundings): Promise<FoundStores> {
  const find = (program: string): Promise<string | null> => findProgram(program, surroundings);
  const system = await systemStore(surroundings.platform, find);
  const browsers =
    surroundings.platform === 'linux'
      ? await findNssDatabases(surroundings.home, await find('certutil'))
      : { stores: [], missing: [] };
  return {
    stores: [...(system === null ? [] : [system]), ...browsers.stores],
    missing: [
      ...(system === null ? ['the system has no store of roots that hubgate knows'] : []),
      ...browsers.missing,
    ],
  };
}

async function findProgram(name: string, { path }: TrustSurroundings): Promise<string | null> {
  for (const directory of [...path.split(delimiter), ...SYSTEM_PROGRAMS]) {
    const file = join(directory, name);
    if (directory.startsWith('/') && (await isAllowed(file, constants.X_OK))) return file;
  }
  return null;
}
