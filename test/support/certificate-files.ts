import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { HubfileIo } from '../../src/hubfile/expand.ts';
import { createClientAuthority, type TestCertificate } from './client-authority.ts';

/** Throwaway certificates for configurations that name files which no machine has. */
export interface CertificateFiles {
  /** PEM. */
  readonly root: string;
  readonly site: TestCertificate;
  readonly other: TestCertificate;
}

export function createCertificateFiles(): CertificateFiles {
  const directory = mkdtempSync(join(tmpdir(), 'hubgate-certificates-'));
  try {
    const authority = createClientAuthority(directory, 'root');
    const [site, other] = [authority.issue('site'), authority.issue('other')];
    return { root: readFileSync(authority.file, 'utf8'), site, other };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** The same files, and some more, by their paths. */
export function withFiles(io: HubfileIo, files: Readonly<Record<string, string>>): HubfileIo {
  const texts = new Map(Object.entries(files).map(([name, text]) => [resolve(name), text]));
  return {
    ...io,
    read: (path) => {
      const text = texts.get(resolve(path));
      return text === undefined ? io.read(path) : Buffer.from(text);
    },
  };
}
