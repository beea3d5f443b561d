/** The TXT record of a challenge (RFC 8555 §8.4). */
export interface ChallengeRecord {
  /** Whole name, without a dot behind it. */
  readonly name: string;
  /** Base64url of a SHA-256 digest. */
  readonly value: string;
  readonly ttlSeconds: number;
}

/**
 * Who can write TXT records. Several records of one name may be there at once: that of a name and that
 * of its wildcard are the same. Both are bounded by themselves, also in time.
 */
export interface DnsProvider {
  /** @throws AcmeError `acme-dns-failed`, or the reason of the signal */
  present(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
  /** Takes exactly this record away; no error where it is gone. */
  cleanup(record: ChallengeRecord, signal: AbortSignal): Promise<void>;
}
