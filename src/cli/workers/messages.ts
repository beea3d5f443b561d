import type { PurgeOrder } from '../../cache/response-caches.ts';
import type { RevocationReach, RunningHub, SlowSubscriber } from '../../runtime/running-hub.ts';
import type { Salts } from '../../runtime/playground-keys.ts';
import type { LoadPreview } from '../../runtime/load-preview.ts';
import type { BoundListener, ReloadReport, ReportWanted } from '../../runtime/gateway.ts';
import type { Signal } from '../../runtime/peer-workers.ts';
import type { Family } from '../../kernel/measures.ts';
import type { CertificateInUse } from '../../tls/certificate.ts';

/** A request of the main process to a worker. {@link Answers} has the type of each reply. */
export type Order =
  /** Build this configuration, in the format of {@link encodeConfig}, with secrets in clear. */
  | { readonly kind: 'prepare'; readonly config: string; readonly salts: Salts }
  /** Report what loading it would do. */
  | { readonly kind: 'dryRun'; readonly config: string }
  | { readonly kind: 'commit'; readonly wanted: ReportWanted }
  | { readonly kind: 'discard' }
  | { readonly kind: 'status' }
  | { readonly kind: 'families' }
  | { readonly kind: 'slowest' }
  /** `hub` is the number of a hub in the status. */
  | { readonly kind: 'check'; readonly hub: number }
  | {
      readonly kind: 'revoke';
      readonly hub: number;
      readonly tokenId: string;
      readonly reach: RevocationReach;
    }
  | { readonly kind: 'purge'; readonly order: PurgeOrder; readonly reach: RevocationReach }
  | { readonly kind: 'stop' };

export interface Answers {
  readonly prepare: null;
  readonly dryRun: LoadPreview;
  readonly commit: { readonly report: ReloadReport; readonly listeners: readonly BoundListener[] };
  readonly discard: null;
  readonly status: WorkerStatus;
  readonly families: readonly Family[];
  readonly slowest: readonly SlowSubscriber[];
  readonly check: null;
  readonly revoke: number;
  readonly purge: number;
  readonly stop: null;
}

export interface WorkerStatus {
  readonly hubs: readonly Pick<RunningHub, 'name' | 'profile' | 'counts'>[];
  readonly certificates: readonly CertificateInUse[];
  readonly late: boolean;
}

/** The reason why an order failed. */
interface Failure {
  readonly code: string;
  readonly message: string;
}

export type ToWorker =
  | { readonly kind: 'order'; readonly id: number; readonly order: Order }
  | { readonly kind: 'signal'; readonly signal: Signal }
  /** The metrics of all processes, for a request of this worker; null if they could not be collected. */
  | { readonly kind: 'metrics'; readonly text: string | null };

export type FromWorker =
  /** Sent when the worker listens; earlier messages would be lost. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly failure: Failure }
  | { readonly kind: 'signal'; readonly signal: Signal }
  /** Asks for the metrics of all processes. */
  | { readonly kind: 'metrics' };
