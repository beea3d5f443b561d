import type { CertificateInUse } from './certificate-in-use.ts';

/** What a handshake presents; how it goes otherwise, a `HandshakePolicy` says. */
export interface Certificate {
  /** The chain, leaf first, PEM. */
  readonly cert: string;
  readonly key: string;
}

/** The certificates of one site. */
export interface SiteCertificates {
  /**
   * @param mayWait for one that is on its way; else it is as if there were none
   * @throws HubgateError when there is none yet
   */
  certificateFor(names: readonly string[], mayWait?: boolean): Promise<Certificate>;
  /** For clients that send no name; null when there is none yet. */
  fallbackFor(names: readonly string[]): Promise<Certificate | null>;
  /** Those that have been read, or issued until now. */
  inUse(): readonly CertificateInUse[];
}
