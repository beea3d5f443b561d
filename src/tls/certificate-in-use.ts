/** A certificate that the gateway uses now, as its operator sees it. */
export interface CertificateInUse {
  /** DNS names and IP addresses that it is for; of an authority, its common name. */
  readonly names: readonly string[];
  /** Who signed it: `files`, `local`, or the host of an ACME directory. */
  readonly authority: string;
  /** End of its life in milliseconds since the epoch. */
  readonly notAfter: number;
}
