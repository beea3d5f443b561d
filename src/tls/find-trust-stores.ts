import { constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { isAllowed, systemStore } from './system-trust-store.ts';
import type { FoundStores, TrustedRoot, TrustStore } from './trust-store.ts';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { namesIn } from './storage.ts';

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

/** Profiles of browsers of one user. */
const MAX_DATABASES = 50;
const TIMEOUT_MS = 10_000;

/** The databases that Chromium and Firefox of a user trust; `certutil` changes them. */
export async function findNssDatabases(
  home: string,
  certutil: string | null,
): Promise<FoundStores> {
  const profiles = join(home, '.mozilla', 'firefox');
  const databases = [
    join(home, '.pki', 'nssdb'),
    ...(await namesIn(profiles)).map((name) => join(profiles, name)),
  ]
    .filter((directory) => existsSync(join(directory, 'cert9.db')))
    .slice(0, MAX_DATABASES);
  if (certutil === null) {
    const packages = 'libnss3-tools on Debian, nss-tools on Fedora, nss on Arch';
    const missing = databases.map(
      (directory) => `${directory} needs the program certutil: install ${packages}`,
    );
    return { stores: [], missing };
  }
  return { stores: databases.map((directory) => nssStore(directory, certutil)), missing: [] };
}

function nssStore(directory: string, certutil: string): TrustStore {
  const database = `sql:${directory}`;
  return {
    name: `the NSS database ${directory}`,
    obstacle: null,
    has: ({ label }: TrustedRoot) =>
      new Promise((resolve) => {
        execFile(
          certutil,
          ['-L', '-d', database, '-n', label],
          { timeout: TIMEOUT_MS, shell: false },
          (error) => resolve(error === null),
        );
      }),
    install: ({ label, file }) => [
      [certutil, '-A', '-d', database, '-t', 'C,,', '-n', label, '-i', file],
    ],
    remove: ({ label }) => [[certutil, '-D', '-d', database, '-n', label]],
  };
}
