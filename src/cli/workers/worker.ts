import type { Worker as ClusterWorker } from 'node:cluster';
import { once } from 'node:events';
import { type Clock, within } from '../../kernel/clock.ts';
import { HubgateError, ignore } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { Signal } from '../../runtime/peer-workers.ts';
import type { PurgeOrder } from '../../cache/response-caches.ts';
import type { RevocationReach, RunningHub, SlowSubscriber } from '../../runtime/hub-families.ts';
import type { Salts } from '../../runtime/playground-keys.ts';
import type { LoadPreview } from '../../runtime/load-preview.ts';
import type { BoundListener, ReloadReport, ReportWanted } from '../../runtime/gateway.ts';
import type { Family } from '../../kernel/measures.ts';
import type { CertificateInUse } from '../../tls/certificate.ts';

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Orders that a worker may have left unanswered before nobody waits for further signals. */
export const MAX_UNHANDLED = 1_000;

/** How long a worker may take to say how it is before it counts as one that hangs. */
export const ANSWER_MS = 2_000;
/** How often a worker that carries out a long order is asked for a sign of life. */
const LOOK_MS = 5_000;
/**
 * Looks in a row that a worker may leave unanswered before it is killed. On a busy machine, one that builds a large
 * configuration gives no sign of life for half a minute.
 */
const MAX_UNANSWERED = 24;

export interface WorkerSurroundings {
  /**
   * Called with a signal from the worker for its peer workers. If it has an id, the worker waits for
   * {@link Worker.signalHandled}.
   */
  readonly onSignal: (signal: Signal, id: number | undefined) => void;
  /** Collects the metrics of all processes. */
  readonly metrics: () => Promise<string>;
  /** Called once, when the process has ended. */
  readonly onExit: (worker: Worker) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A worker process from the view of the main process. */
export class Worker {
  readonly #process: ClusterWorker;
  readonly #surroundings: WorkerSurroundings;
  readonly #waiting = new Map<number, Waiting>();
  /** Sent when the worker listens; earlier messages would be lost. */
  #unsent: ToWorker[] | null = [];
  #orders = 0;
  #gone = false;

  constructor(process: ClusterWorker, surroundings: WorkerSurroundings) {
    this.#process = process;
    this.#surroundings = surroundings;
    const { onSignal, onExit } = surroundings;
    process.on('message', (message: FromWorker) => {
      if (message.kind === 'ready') this.#ready();
      else if (message.kind === 'signal') onSignal(message.signal, message.id);
      else if (message.kind === 'metrics') void this.#sendMetrics();
      else this.#answered(message);
    });
    // Without a listener, a broken channel would end the main process. The exit reports it as well, unless the
    // process has never begun.
    process.on('error', () => {
      if (this.pid === undefined && !this.#gone) process.emit('exit', 1, '');
    });
    process.once('exit', () => {
      this.#gone = true;
      const error = new HubgateError('worker-ended', `Worker ${process.process.pid} has ended`);
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
      onExit(this);
    });
  }

  get pid(): number | undefined {
    return this.#process.process.pid;
  }

  /** Whether the process has started, and reads its orders. */
  get listens(): boolean {
    return this.#unsent === null;
  }

  /** @throws HubgateError from the worker, or `worker-ended` */
  async order<Kind extends Order>(kind: Kind, ...given: Given<Kind>): Promise<Answer<Kind>> {
    if (this.#gone) throw new HubgateError('worker-ended', `Worker ${this.pid} has ended`);
    this.#orders += 1;
    const id = this.#orders;
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
    });
    this.#send({ kind: 'order', id, order: kind, given });
    // The worker answers with what its function of that name returns.
    return (await answer) as Answer<Kind>;
  }

  /**
   * Gives an order that a worker carries out at once.
   *
   * @throws as {@link order}, and HubgateError `worker-silent` if the worker hangs
   */
  ask<Kind extends Order>(kind: Kind, ...given: Given<Kind>): Promise<Answer<Kind>> {
    const silent = (): Error =>
      new HubgateError('worker-silent', `Worker ${this.pid} does not answer`);
    return within(ANSWER_MS, this.#surroundings.clock, this.order(kind, ...given), silent);
  }

  signal(signal: Signal): void {
    // A worker that does not listen yet reads earlier signals when it opens its hubs.
    if (!this.#gone && this.#unsent === null) this.#send({ kind: 'signal', signal });
  }

  /** The same. Resolves when the worker has handled it, or has ended, and at once if it is too far behind. */
  async handle(signal: Signal): Promise<void> {
    if (this.#waiting.size >= MAX_UNHANDLED) this.signal(signal);
    else if (this.#unsent === null) await this.order('signal', signal).catch(ignore);
  }

  /**
   * Gives an order that may take long, and that loads wait for. A worker that gives no sign of life meanwhile is
   * killed: it would delay all further loads, and the replacement of workers that have ended.
   *
   * @throws as {@link order}, and HubgateError `worker-silent` if it was killed
   */
  async orderLong<Kind extends Order>(kind: Kind, ...given: Given<Kind>): Promise<Answer<Kind>> {
    const { pid } = this;
    const { clock, log } = this.#surroundings;
    let unanswered = 0;
    let isKilled = false;
    const look = (): void => {
      if (unanswered === MAX_UNANSWERED) {
        log.error('A worker that hangs is killed', { pid });
        isKilled = true;
        this.kill();
        return;
      }
      unanswered += 1;
      // A refusal is a sign of life as well.
      const heard = (): void => void (unanswered = 0);
      this.order('status').then(heard, heard);
      cancel = clock.after(LOOK_MS, look);
    };
    let cancel = clock.after(LOOK_MS, look);
    try {
      return await this.order(kind, ...given);
    } catch (error) {
      if (!isKilled) throw error;
      const message = `Worker ${pid} did not answer and was killed; try again`;
      throw new HubgateError('worker-silent', message);
    } finally {
      cancel();
    }
  }

  /** Tells the worker that its peers have handled its signal with this id. */
  signalHandled(id: number): void {
    if (!this.#gone) this.#send({ kind: 'handled', id });
  }

  /** Makes it reopen its log files. A worker that is just starting opens them later. */
  reopenLogs(): void {
    if (!this.#gone && this.#unsent === null) this.#process.process.kill('SIGUSR1');
  }

  /** Ends the process at once. */
  kill(): void {
    this.#process.process.kill('SIGKILL');
  }

  /** Resolves when the process has ended. */
  async ended(): Promise<void> {
    if (!this.#gone) await once(this.#process, 'exit');
  }

  async #sendMetrics(): Promise<void> {
    const text = await this.#surroundings.metrics().catch(() => null);
    if (!this.#gone) this.#send({ kind: 'metrics', text });
  }

  #ready(): void {
    const unsent = this.#unsent ?? [];
    this.#unsent = null;
    for (const message of unsent) this.#send(message);
  }

  #send(message: ToWorker): void {
    if (this.#unsent !== null) {
      this.#unsent.push(message);
      return;
    }
    // If it cannot be sent, the exit that follows rejects the order.
    this.#process.send(message, () => {});
  }

  #answered(message: Extract<FromWorker, { kind: 'answer' | 'failure' }>): void {
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'answer') waiting?.resolve(message.value);
    else waiting?.reject(new HubgateError(message.failure.code, message.failure.message));
  }
}

/** The orders that a worker carries out for the main process. */
export interface WorkerCalls {
  /** Builds a configuration, in the format of {@link encodeConfig}, with secrets in clear. */
  prepare(config: string, salts: Salts): Promise<void>;
  /** Reports what loading a configuration would do. */
  dryRun(config: string): Promise<LoadPreview>;
  commit(
    wanted: ReportWanted,
  ): Promise<{ readonly report: ReloadReport; readonly listeners: readonly BoundListener[] }>;
  discard(): Promise<void>;
  status(): Promise<WorkerStatus>;
  families(): Promise<readonly Family[]>;
  slowest(): Promise<readonly SlowSubscriber[]>;
  /** @param hub the number of a hub in the status */
  check(hub: number): Promise<void>;
  revoke(tokenId: string, reach: RevocationReach): Promise<number>;
  purge(order: PurgeOrder, reach: RevocationReach): Promise<number>;
  /** Handles a signal whose sender waits for that. */
  signal(signal: Signal): Promise<void>;
  stop(): Promise<void>;
}

type Order = keyof WorkerCalls;
type Given<Kind extends Order> = Parameters<WorkerCalls[Kind]>;
type Answer<Kind extends Order> = Awaited<ReturnType<WorkerCalls[Kind]>>;

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
  | {
      readonly kind: 'order';
      readonly id: number;
      readonly order: Order;
      readonly given: readonly unknown[];
    }
  | { readonly kind: 'signal'; readonly signal: Signal }
  /** The peer workers have handled the signal with this id. */
  | { readonly kind: 'handled'; readonly id: number }
  /** The metrics of all processes, for a request of this worker; null if they could not be collected. */
  | { readonly kind: 'metrics'; readonly text: string | null };

export type FromWorker =
  /** Sent when the worker listens; earlier messages would be lost. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly failure: Failure }
  /** With an id, the worker waits until its siblings have handled the signal. */
  | { readonly kind: 'signal'; readonly signal: Signal; readonly id?: number }
  /** Asks for the metrics of all processes. */
  | { readonly kind: 'metrics' };
