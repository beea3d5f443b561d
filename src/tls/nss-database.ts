import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TrustedRoot } from './trusted-roots.ts';
import { namesIn } from './storage.ts';
import type { FoundStores, TrustStore } from './trust-store.ts';

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
