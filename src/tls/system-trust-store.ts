import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import type { TrustedRoot, TrustStore } from './trust-store.ts';

const DEBIAN_DIRECTORY = '/usr/local/share/ca-certificates';
const FEDORA_DIRECTORY = '/etc/pki/ca-trust/source/anchors';

/** Absolute path of a program; null when it is not installed. */
export type FindProgram = (program: string) => Promise<string | null>;

/** The store that all programs of a machine share; null when it is of no kind known here. */
export async function systemStore(
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
    // The name has the fingerprint in it, so the file is of this root.
    has: (root) => isAllowed(fileOf(root), constants.F_OK),
    install: (root) => [['install', '-m', '0644', root.file, fileOf(root)], [update]],
    // Without --fresh a link to what is gone stays in /etc/ssl/certs.
    remove: (root) => [
      ['rm', '-f', fileOf(root)],
      [update, '--fresh'],
    ],
  };
}

/** Stores of systems on which nobody has tried this: the operator is told the commands. */
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
      ...['-k', '/Library/Keychains/System.keychain', file],
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

/** Whether this process may do something with a path. */
export async function isAllowed(path: string, mode: number): Promise<boolean> {
  try {
    await access(path, mode);
    return true;
  } catch {
    // Absent or forbidden: either way it cannot be used.
    return false;
  }
}
