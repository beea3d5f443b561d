import { silentLogger } from '../../kernel/log.ts';
import { Command } from 'commander';
import type { Config } from '../../config/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import { EXIT, type Output } from '../terminal.ts';
import { configIfAny, storageOf } from '../read-config.ts';
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, messageOf } from '../../kernel/error.ts';
import { certificateNames, CertificateStore } from '../../tls/certificate-store.ts';

interface ListFlags extends ConfigSource {
  readonly json?: true;
}

const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;
/** Names in one row of the table; the JSON output has all of them. */
const MAX_NAMES = 3;

/**
 * `hubgate list-certificates`: lists the certificates in the storage and those that the configuration names.
 */
export function listCertificatesCommand(output: Output): Command {
  return withConfigSource(new Command('list-certificates'))
    .description('list the certificates in the storage and in the configuration, with their expiry')
    .option('--json', 'print them as JSON')
    .action(async (flags: ListFlags, command: Command) => {
      const config = configIfAny(flags, command);
      const listed: ListedCertificate[] = await certificatesInStorage(storageOf(config));
      for (const file of certificateFiles(config)) listed.push(await readListed(file, 'files'));
      listed.sort((a, b) => endOf(a) - endOf(b));
      const now = systemClock.now();
      if (flags.json === true) output.result(JSON.stringify(listed.map(asData)));
      else if (listed.length === 0) output.note('No certificates found');
      else for (const line of table(listed, now)) output.result(line);
      for (const { file, problem } of listed) {
        if (problem === null) continue;
        output.note(`${file} cannot be read: ${problem}`);
        process.exitCode = EXIT.failed;
      }
    });
}

function certificateFiles(config: Config | null): string[] {
  const files = (config?.sites ?? []).flatMap(({ tls: { source } }) =>
    source.kind === 'files' ? [source.certFile] : [],
  );
  return [...new Set(files)];
}

function asData({ names, authority, notAfter, file, problem }: ListedCertificate) {
  return {
    names,
    authority,
    not_after: notAfter === null ? null : new Date(notAfter).toISOString(),
    file,
    ...(problem === null ? {} : { problem }),
  };
}

function table(listed: readonly ListedCertificate[], now: number): string[] {
  const rows = [
    ['NAMES', 'AUTHORITY', 'EXPIRES', '', 'FILE'],
    ...listed.map(({ names, authority, notAfter, file }) => [
      shortened(names),
      authority,
      notAfter === null ? 'unreadable' : new Date(notAfter).toISOString().slice(0, 10),
      notAfter === null ? '' : remaining(notAfter - now),
      file,
    ]),
  ];
  const widths = [0, 1, 2, 3].map((column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '));
}

function shortened(names: readonly string[]): string {
  const more = names.length - MAX_NAMES;
  return names.slice(0, MAX_NAMES).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

function remaining(ms: number): string {
  if (ms <= 0) return 'expired';
  const [unit, count] =
    ms >= DAY_MS ? ['day', Math.floor(ms / DAY_MS)] : ['hour', Math.floor(ms / HOUR_MS)];
  return `in ${count} ${unit}${count === 1 ? '' : 's'}`;
}

/** Files that cannot be read come first: they need the operator's attention now. */
function endOf({ notAfter }: ListedCertificate): number {
  return notAfter ?? 0;
}

/** A certificate in the listing for the operator. */
export interface ListedCertificate {
  /** DNS names and IP addresses; for an authority, its common name. */
  readonly names: readonly string[];
  /** `files`, `local`, or the host of an ACME directory. */
  readonly authority: string;
  /** Milliseconds since the epoch; null for a file that cannot be read. */
  readonly notAfter: number | null;
  readonly file: string;
  /** The reason why it cannot be read; null if it can. */
  readonly problem: string | null;
}

/**
 * The certificates that the gateway has obtained itself, with the root and the intermediate of its own
 * authority.
 */
export async function certificatesInStorage(storage: string): Promise<ListedCertificate[]> {
  const own = await Promise.all(
    ['root', 'intermediate'].map((name) =>
      readListed(join(storage, 'pki', 'local', `${name}.crt`), 'local'),
    ),
  );
  const stored = await new CertificateStore(storage, silentLogger).list();
  return [
    // The authority is only created when a site needs it.
    ...own.filter(({ problem }) => problem !== ABSENT),
    ...stored.map((one) => ({ ...one, problem: null })),
  ];
}

const ABSENT = 'the file does not exist';

/** Reads the first certificate of a PEM file. */
export async function readListed(file: string, authority: string): Promise<ListedCertificate> {
  try {
    const pem = await readFile(file, 'utf8');
    const { validTo, subject } = new X509Certificate(pem);
    const names = certificateNames(pem);
    const commonName = /^CN=(.*)$/m.exec(subject)?.[1];
    return {
      names: names.length > 0 || commonName === undefined ? names : [commonName],
      authority,
      notAfter: Date.parse(validTo),
      file,
      problem: null,
    };
  } catch (error) {
    const problem = codeOf(error) === 'ENOENT' ? ABSENT : messageOf(error);
    return { names: [], authority, notAfter: null, file, problem };
  }
}
