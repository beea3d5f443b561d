/** The TXT record of a challenge (RFC 8555 §8.4). */
export interface ChallengeRecord {
  /** Full name, without a trailing dot. */
  readonly name: string;
  /** Base64url of a SHA-256 digest. */
  readonly value: string;
  readonly ttlSeconds: number;
}

/**
 * A service or program that writes TXT records. Several records of one name can exist at once: a name and its
 * wildcard use the same record name. Both methods limit their own time and memory.
 */
export interface DnsProvider {
  /** @throws AcmeError `acme-dns-failed`, or the reason of the signal */
  present(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
  /** Removes exactly this record. A record that does not exist is not an error. */
  cleanup(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
}
