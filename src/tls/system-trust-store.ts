import { access, constants, rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { messageOf } from '../kernel/error.ts';
import { namesIn, readIfPresent, writePrivate } from './storage.ts';
import { X509Certificate } from 'node:crypto';

const DEBIAN_DIRECTORY = '/usr/local/share/ca-certificates';
const FEDORA_DIRECTORY = '/etc/pki/ca-trust/source/anchors';

/** Absolute path of a program; null if it is not installed. */
type FindProgram = (program: string) => Promise<string | null>;

/** The store that all programs of a machine share; null if it is of an unknown kind. */
async function systemStore(
  platform: NodeJS.Platform,
  find: FindProgram,
): Promise<TrustStore | null> {
  if (platform === 'darwin') return MACOS;
  if (platform === 'win32') return WINDOWS;
  const debian = await find('update-ca-certificates');
  if (debian !== null) return debianStore(debian);
  if (
    (await find('update-ca-trust')) !== null &&
    (await isAllowed(FEDORA_DIRECTORY, constants.F_OK))
  )
    return FEDORA;
  return (await find('trust')) === null ? null : P11_KIT;
}

async function debianStore(update: string): Promise<TrustStore> {
  const fileOf = ({ label }: TrustedRoot): string => join(DEBIAN_DIRECTORY, `${label}.crt`);
  const writable =
    (await isAllowed(DEBIAN_DIRECTORY, constants.W_OK)) &&
    (await isAllowed('/etc/ssl/certs', constants.W_OK));
  return {
    name: "the system's store",
    obstacle: writable ? null : 'permission',
    // The name contains the fingerprint, so the file belongs to this root.
    has: (root) => isAllowed(fileOf(root), constants.F_OK),
    install: (root) => [['install', '-m', '0644', root.file, fileOf(root)], [update]],
    // Without --fresh, a link to a removed file stays in /etc/ssl/certs.
    remove: (root) => [
      ['rm', '-f', fileOf(root)],
      [update, '--fresh'],
    ],
  };
}

/** Stores of systems that have not been tested. The operator gets the commands instead. */
const BY_HAND = { obstacle: 'by-hand', has: async () => null } as const;

const FEDORA: TrustStore = {
  name: 'the store of p11-kit',
  ...BY_HAND,
  install: ({ file, label }) => [
    ['install', '-m', '0644', file, join(FEDORA_DIRECTORY, `${label}.crt`)],
    ['update-ca-trust'],
  ],
  remove: ({ label }) => [
    ['rm', '-f', join(FEDORA_DIRECTORY, `${label}.crt`)],
    ['update-ca-trust'],
  ],
};

const P11_KIT: TrustStore = {
  name: 'the store of p11-kit',
  ...BY_HAND,
  install: ({ file }) => [['trust', 'anchor', '--store', file]],
  remove: ({ file }) => [['trust', 'anchor', '--remove', file]],
};

const MACOS: TrustStore = {
  name: 'the keychain of the system',
  ...BY_HAND,
  install: ({ file }) => [
    [
      ...(['security', 'add-trusted-cert', '-d', '-r', 'trustRoot'] as const),
      '-k',
      '/Library/Keychains/System.keychain',
      file,
    ],
  ],
  remove: ({ file }) => [['security', 'remove-trusted-cert', '-d', file]],
};

const WINDOWS: TrustStore = {
  name: 'the store of Windows',
  ...BY_HAND,
  install: ({ file }) => [['certutil', '-addstore', '-f', 'Root', file]],
  remove: ({ serialNumber }) => [['certutil', '-delstore', 'Root', serialNumber]],
};

/** Whether this process has the given access to a path. */
async function isAllowed(path: string, mode: number): Promise<boolean> {
  try {
    await access(path, mode);
    return true;
  } catch {
    // Absent or forbidden: either way, it cannot be used.
    return false;
  }
}

/** The parts of the environment that decide which stores exist. */
export interface TrustSurroundings {
  readonly platform: NodeJS.Platform;
  /** Home directory, which contains the databases of browsers. */
  readonly home: string;
  /** In the format of `PATH`. */
  readonly path: string;
}

/** Directories of administrator programs, which other users often do not have in their PATH. */
const SYSTEM_PROGRAMS = ['/usr/sbin', '/sbin', '/usr/bin', '/bin'];

/** Finds the stores of the system and, on Linux, of the user's browsers. Changes nothing. */
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
      ...(system === null ? ['hubgate does not know the certificate store of this system'] : []),
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

/** Browser profiles of one user. */
const MAX_DATABASES = 50;
const TIMEOUT_MS = 10_000;

/** The databases that a user's Chromium and Firefox trust; `certutil` changes them. */
async function findNssDatabases(home: string, certutil: string | null): Promise<FoundStores> {
  const profiles = join(home, '.mozilla', 'firefox');
  let names: readonly string[] = [];
  const missing: string[] = [];
  try {
    names = await namesIn(profiles);
  } catch (error) {
    missing.push(`the profiles of Firefox cannot be read: ${messageOf(error)}`);
  }
  const databases = [join(home, '.pki', 'nssdb'), ...names.map((name) => join(profiles, name))]
    .filter((directory) => existsSync(join(directory, 'cert9.db')))
    .slice(0, MAX_DATABASES);
  if (certutil === null) {
    const packages = 'libnss3-tools on Debian, nss-tools on Fedora, nss on Arch';
    for (const directory of databases)
      missing.push(`${directory} needs the program certutil: install ${packages}`);
    return { stores: [], missing };
  }
  return { stores: databases.map((directory) => nssStore(directory, certutil)), missing };
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

/** A program with its arguments, run without a shell. */
export type CommandLine = readonly [program: string, ...args: string[]];

/** A place with roots that programs of this machine trust. */
export interface TrustStore {
  /** The name that the operator sees. */
  readonly name: string;
  /** Why this process cannot change it; null if it can. */
  readonly obstacle: 'permission' | 'by-hand' | null;
  /** Whether the root is in it; null if that cannot be determined. */
  has(root: TrustedRoot): Promise<boolean | null>;
  install(root: TrustedRoot): readonly CommandLine[];
  remove(root: TrustedRoot): readonly CommandLine[];
}

export interface FoundStores {
  readonly stores: readonly TrustStore[];
  /** Stores that exist but cannot be used, each with the fix. */
  readonly missing: readonly string[];
}

/** A root that this machine is to trust, or to trust no longer. */
export interface TrustedRoot {
  /** PEM. */
  readonly file: string;
  /** `hubgate-local-` and 16 digits of its SHA-256 fingerprint: its name in every store. */
  readonly label: string;
  /** Hexadecimal. */
  readonly serialNumber: string;
}

/**
 * The roots of a storage that have been put into trust stores, `<storage>/pki/trusted/<label>.crt`. Roots
 * that have been replaced since can still be removed from the stores.
 */
export class TrustedRoots {
  readonly #directory: string;

  constructor(storage: string) {
    this.#directory = join(storage, 'pki', 'trusted');
  }

  /** Records a root before it is put into the first store. */
  async add(pem: string): Promise<void> {
    const { label } = trustedRoot(pem, '');
    await writePrivate(join(this.#directory, `${label}.crt`), pem);
  }

  async list(): Promise<TrustedRoot[]> {
    const roots: TrustedRoot[] = [];
    for (const name of await this.#names()) {
      const file = join(this.#directory, name);
      const pem = await readIfPresent(file);
      if (pem !== null) roots.push(trustedRoot(pem, file));
    }
    return roots;
  }

  /** Deletes the record of a root that no store contains any more. */
  async delete({ label }: TrustedRoot): Promise<void> {
    await rm(join(this.#directory, `${label}.crt`), { force: true });
  }

  async #names(): Promise<string[]> {
    const names = await namesIn(this.#directory);
    return names.filter((name) => /^hubgate-local-[0-9a-f]{16}\.crt$/.test(name));
  }
}

/** The values by which stores identify a certificate. */
export function trustedRoot(pem: string, file: string): TrustedRoot {
  const { fingerprint256, serialNumber } = new X509Certificate(pem);
  const digits = fingerprint256.replaceAll(':', '').toLowerCase().slice(0, 16);
  return { file, label: `hubgate-local-${digits}`, serialNumber };
}
