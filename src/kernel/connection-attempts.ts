import {
  getDefaultAutoSelectFamilyAttemptTimeout,
  setDefaultAutoSelectFamilyAttemptTimeout,
} from 'node:net';

/** Addresses of a name that are tried within the limit of a connection, if none of them accepts it. */
const ADDRESSES_TRIED = 4;

/**
 * How long the connection to one address of a name may take before the next address is tried. It is longer than a
 * handshake around the world, and than most pauses of this process.
 */
const ATTEMPT_TIMEOUT_MS = 1_000;

/**
 * Lets each address of a name take a second to accept a connection, in the whole process. Node gives all addresses but
 * the last one 250 ms, and drops a connection that comes later (RFC 8305 §5 would keep it). So a service with an IPv4 and
 * an IPv6 address could not be reached over a slow network, nor `localhost` while the process was busy. A longer time that
 * the program has chosen stays.
 */
export function allowSlowConnections(): void {
  if (getDefaultAutoSelectFamilyAttemptTimeout() >= ATTEMPT_TIMEOUT_MS) return;
  setDefaultAutoSelectFamilyAttemptTimeout(ATTEMPT_TIMEOUT_MS);
}

/**
 * How long one address may take within the limit for the whole connection, so that a short limit does not end at an
 * address that does not respond.
 *
 * @param limitMs 0 for no limit
 */
export function attemptTimeout(limitMs: number): number {
  if (limitMs === 0) return ATTEMPT_TIMEOUT_MS;
  return Math.ceil(Math.min(ATTEMPT_TIMEOUT_MS, limitMs / ADDRESSES_TRIED));
}
