/** What the bench tells a process of subscribers. */
export type SubscribersOrder =
  | {
      readonly kind: 'open';
      readonly count: number;
      readonly port: number;
      /** The whole head that each sends. */
      readonly request: string;
      /** The authority to believe; null for plain TCP. */
      readonly caFile: string | null;
    }
  /** Report when so many events have come, all subscribers together; with their delays if they are measured. */
  | { readonly kind: 'expect'; readonly events: number; readonly isMeasured: boolean }
  | { readonly kind: 'close' };

export type SubscribersReport =
  | { readonly kind: 'opened' | 'closed' }
  | { readonly kind: 'failed'; readonly error: string }
  /** From publication to arrival, microseconds, one for each event that is measured. */
  | { readonly kind: 'received'; readonly delaysUs: readonly number[] };

/** What the bench tells a process that makes requests. */
export interface RequestsOrder {
  readonly port: number;
  readonly connections: number;
  /** The whole of each request. */
  readonly request: string;
  /** Milliseconds. */
  readonly durationMs: number;
  /** The authority to believe; null for plain TCP. */
  readonly caFile: string | null;
}

export interface RequestsReport {
  readonly answers: number;
  /** Answers whose status is not of the class 2xx. */
  readonly failures: number;
  readonly bytes: number;
  /** Of whole exchanges, microseconds, sorted. */
  readonly delaysUs: readonly number[];
  readonly error: string | null;
}
