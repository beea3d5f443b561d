import { rm } from 'node:fs/promises';
import { parseJsonObject } from '../../kernel/parse.ts';
import type { Logger } from '../../kernel/log.ts';
import { readIfUsable, writePrivate } from '../storage.ts';
import type { Permissions } from '../on-demand/permissions.ts';
import { AcmeError, asAcmeError, fixFor } from './acme-error.ts';
import type { CertificateRequest, IssuanceTools } from './issuance.ts';
import { checkName, NAME_ELSEWHERE, type NameCheck } from './name-check.ts';

/** The failed attempts to obtain a certificate. */
export interface Attempts {
  /** Failures since the last success. */
  readonly count: number;
  /** The earliest time of the next attempt, in milliseconds since the epoch. */
  readonly nextAttempt: number;
  readonly error: string;
  /** Digest of the settings of the attempt. If the settings change, the certificate is ordered again. */
  readonly settings: string;
}

const MIN_BACKOFF_MS = 60_000;
const HOUR_MS = 60 * 60 * 1000;
/**
 * From this failure on, the waits are hours. An authority tolerates five failed validations of a name per
 * hour.
 */
const PATIENT_FROM = 3;
/**
 * Longest wait if no authority was asked. An operator who has corrected the DNS should not wait for hours.
 */
export const UNASKED_BACKOFF_MS = 5 * 60_000;
export const MAX_BACKOFF_MS = 6 * 60 * 60 * 1000;
/** Longest wait that an authority can ask for. */
export const LONGEST_BACKOFF_MS = 24 * 60 * 60 * 1000;

/**
 * Milliseconds until the next attempt after this many failures: one minute, two minutes, an hour, then twice
 * as long each time. Up to a quarter is subtracted at random, so that many names are not ordered at the same
 * moment.
 *
 * @param random from 0 up to 1
 * @param retryAfterMs the wait that the authority has asked for
 */
export function backoff(failures: number, random: number, retryAfterMs: number | null): number {
  const full =
    failures < PATIENT_FROM
      ? MIN_BACKOFF_MS * 2 ** (failures - 1)
      : Math.min(MAX_BACKOFF_MS, HOUR_MS * 2 ** (failures - PATIENT_FROM));
  const own = Math.max(MIN_BACKOFF_MS, full * (1 - random / 4));
  return Math.max(own, Math.min(retryAfterMs ?? 0, LONGEST_BACKOFF_MS));
}

/** Reads the failed attempts; null if there are none, or only attempts with other settings. */
export async function readAttempts(
  file: string,
  settings: string,
  log: Logger,
): Promise<Attempts | null> {
  const text = await readIfUsable(file, log);
  const attempts = text === null ? null : parse(text);
  return attempts?.settings === settings ? attempts : null;
}

export async function writeAttempts(file: string, attempts: Attempts): Promise<void> {
  await writePrivate(file, `${JSON.stringify(attempts, null, 2)}\n`);
}

export async function forgetAttempts(file: string): Promise<void> {
  await rm(file, { force: true, recursive: true });
}

/** null for a file that is damaged, or was not written by hubgate: it is treated as absent. */
function parse(text: string): Attempts | null {
  const { count, nextAttempt, error, settings } = parseJsonObject(text) ?? {};
  if (typeof count !== 'number' || typeof nextAttempt !== 'number') return null;
  return { count, nextAttempt, error: String(error), settings: String(settings) };
}

export interface OrderChecks {
  readonly permissions: Permissions;
  readonly nameCheck: NameCheck | null;
}

type Tools = OrderChecks & Pick<IssuanceTools, 'challenges' | 'log'>;

/**
 * Checks everything that would make an order fail, and returns the request to send. If the name leads
 * elsewhere, only the local authority remains, provided that it is among the issuers.
 *
 * @throws AcmeError `on-demand-refused`, or the error of the name check
 */
export async function checkedRequest(
  request: CertificateRequest,
  tools: Tools,
  signal: AbortSignal,
): Promise<CertificateRequest> {
  await checkPermission(request, tools);
  try {
    await checkWhereItLeads(request, tools, signal);
    return request;
  } catch (error) {
    const elsewhere = asAcmeError(error);
    const local = request.issuers.filter((each) => each === 'local');
    if (elsewhere.code !== NAME_ELSEWHERE || local.length === 0) throw error;
    tools.log.warn('hubgate asks no authority and uses a local certificate', {
      name: request.name,
      error: elsewhere.message,
      fix: fixFor(elsewhere),
    });
    return { ...request, issuers: local, staging: null };
  }
}

/** Checked for each order, because a permission may have been withdrawn before a renewal. */
async function checkPermission(
  { name, onDemand }: CertificateRequest,
  { permissions }: Tools,
): Promise<void> {
  if (onDemand === null || (await permissions.allows(name, onDemand))) return;
  throw new AcmeError(
    'on-demand-refused',
    `on_demand_tls: ${name} is not allowed to have a certificate`,
  );
}

/** Checks the name, except for private authorities, which may resolve it differently from this machine. */
async function checkWhereItLeads(
  { name, issuers }: CertificateRequest,
  { nameCheck, challenges }: Tools,
  signal: AbortSignal,
): Promise<void> {
  const [first] = issuers;
  if (nameCheck === null || first === undefined || first === 'local') return;
  if (issuers.some((each) => each !== 'local' && each.root !== null)) return;
  const types = first.challenges.filter((type) => type !== 'dns-01');
  // With `dns-01`, the name may lead anywhere.
  if (types.length < first.challenges.length) return;
  await checkName(name, types, challenges, nameCheck, signal);
}
