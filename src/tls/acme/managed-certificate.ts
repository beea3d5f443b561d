import { hash } from 'node:crypto';
import { join } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { Secret } from '../../kernel/secret.ts';
import { type CertificateStore, LOCAL } from '../certificate-store.ts';
import { fileName } from '../storage.ts';
import { renewalTime } from '../certificate.ts';
import { asAcmeError, fixFor } from './acme-error.ts';
import {
  type Attempts,
  backoff,
  forgetAttempts,
  LONGEST_BACKOFF_MS,
  MAX_BACKOFF_MS,
  readAttempts,
  UNASKED_BACKOFF_MS,
  writeAttempts,
  checkedRequest,
  type OrderChecks,
} from './attempts.ts';
import {
  authorityOf,
  type CertificateRequest,
  type IssuanceTools,
  type IssuedCertificate,
  type Issuer,
  obtainCertificate,
} from './issuance.ts';
import { NAME_ELSEWHERE } from './name-check.ts';
import type { Semaphore } from '../../kernel/semaphore.ts';
import { StorageLock } from '../storage-lock.ts';

export interface ManagedCertificateTools extends IssuanceTools, OrderChecks {
  readonly store: CertificateStore;
  readonly queue: Semaphore;
  /** From 0 up to 1. */
  readonly random: () => number;
}

/** How long an order for a name is left to the process that has begun it. */
const OTHERS_ORDER_MS = 2000;
/** Longest timer. The due time is then checked again: the clock may have been set, or the machine suspended. */
const RECHECK_MS = 60 * 60 * 1000;
/** Renewals are spread over this part of a certificate's last third. */
const RENEWAL_SPREAD = 1 / 4;
/** Shortest time between two warnings about a name that has no certificate yet. */
const WARNING_INTERVAL_MS = 60_000;

/**
 * The certificate of one name, ordered from an authority and renewed for as long as a configuration needs it.
 * A handshake gets the current certificate.
 */
export class ManagedCertificate {
  readonly #request: CertificateRequest;
  readonly #tools: ManagedCertificateTools;
  readonly #clock: Clock;
  readonly #settings: string;
  readonly #lock: StorageLock;
  readonly #closing = new AbortController();
  readonly #followers = new Set<() => void>();
  readonly #waiting = new Set<() => void>();
  #issued: IssuedCertificate | null = null;
  /** Whether the current certificate is from an authority that is no longer configured. */
  #isFromFormerIssuer = false;
  #renewAt = 0;
  /** When the local authority may be asked again after it alone has failed. */
  #localFrom = 0;
  #attempts: Attempts | null = null;
  /** Whether the storage lacks the latest attempts because they could not be written. */
  #hasUnwrittenAttempts = false;
  #hasBegun = false;
  #running: Promise<void> = Promise.resolve();
  #cancel: () => void = () => {};
  #warnedAt: number | null = null;
  /** Whether another process is ordering the certificate, and this has been logged. */
  #isOrderedElsewhere = false;

  private constructor(request: CertificateRequest, tools: ManagedCertificateTools) {
    this.#request = request;
    this.#tools = tools;
    this.#clock = tools.clock;
    this.#settings = settingsOf(request);
    this.#lock = new StorageLock(this.#file('locks', 'lock.d'), tools.clock, tools.log);
  }

  /** Reads the certificate in the storage. Nothing is ordered before {@link begin}. */
  static async open(
    request: CertificateRequest,
    tools: ManagedCertificateTools,
  ): Promise<ManagedCertificate> {
    const certificate = new ManagedCertificate(request, tools);
    await certificate.#read();
    return certificate;
  }

  get name(): string {
    return this.#request.name;
  }

  /**
   * The current certificate, even if it has expired: it is still being renewed, and an expired certificate
   * can be better than none.
   */
  get current(): IssuedCertificate | null {
    return this.#issued;
  }

  /**
   * Returns the certificate for a handshake.
   *
   * @throws HubgateError `certificate-pending` while there is none yet, which is logged
   */
  require(): IssuedCertificate {
    if (this.#issued !== null) return this.#issued;
    const now = this.#clock.monotonic();
    if (this.#warnedAt === null || now - this.#warnedAt >= WARNING_INTERVAL_MS) {
      this.#warnedAt = now;
      this.#tools.log.warn(
        'TLS handshake rejected: the certificate of this site is not issued yet',
        {
          name: this.name,
          ...this.#retry(),
        },
      );
    }
    throw new HubgateError('certificate-pending', `${this.name} waits for its certificate`);
  }

  /** Whether `begin` orders at once. */
  get isDue(): boolean {
    return this.#due() <= this.#clock.now();
  }

  /** Whether an order is in progress, here or in another process. */
  get isUnderWay(): boolean {
    return (
      this.#hasBegun && !this.#closing.signal.aborted && (this.isDue || this.#isOrderedElsewhere)
    );
  }

  /** Resolves when the attempt in progress has ended, successfully or not; at once if there is none. */
  settled(): Promise<void> {
    if (this.#closing.signal.aborted || (!this.isDue && !this.#isOrderedElsewhere))
      return Promise.resolve();
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  /** Calls `follower` whenever the certificate changes. The returned function unsubscribes it. */
  onChange(follower: () => void): () => void {
    this.#followers.add(follower);
    return () => void this.#followers.delete(follower);
  }

  /** The authorities that `begin` would ask at once; none if it has been called, or if no order is due. */
  get wouldAsk(): readonly string[] {
    const waits = this.#issued !== null && this.#renewAt > this.#clock.now();
    return this.#hasBegun || waits ? [] : this.#issuers.map(authorityOf);
  }

  /**
   * The issuers to ask now. Clients that trust another authority would not trust the local one, so it does not
   * replace a valid certificate, unless it is the first.
   */
  get #issuers(): readonly Issuer[] {
    const { issuers } = this.#request;
    if (this.#asksOnlyLocal) return ['local'];
    const keeps =
      issuers[0] !== 'local' && this.#issued?.authority !== LOCAL && !this.#hasExpired();
    return keeps ? issuers.filter((each) => each !== 'local') : issuers;
  }

  /**
   * When the local authority replaces a certificate that expires before the others may be asked again; null if it is
   * not one of several, or if they have not failed.
   */
  get #localAt(): number | null {
    const { issuers } = this.#request;
    const isLast = issuers[0] !== 'local' && issuers.includes('local');
    if (!isLast || this.#issued === null || this.#issued.authority === LOCAL) return null;
    // They have issued one that has already expired by the clock of this machine, which may be wrong.
    if ((this.#attempts?.count ?? 0) === 0) return null;
    return Math.max(this.#issued.pair.notAfter, this.#localFrom);
  }

  get #asksOnlyLocal(): boolean {
    const now = this.#clock.now();
    return (this.#localAt ?? Infinity) <= now && this.#dueOfAll() > now;
  }

  #hasExpired(): boolean {
    return (this.#issued?.pair.notAfter ?? 0) <= this.#clock.now();
  }

  /** Orders and renews the certificate from now on; another call does nothing. */
  begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    if (this.#issued === null) {
      const authorities = this.#request.issuers.map(authorityOf);
      this.#tools.log.info('Waiting for a certificate', {
        name: this.name,
        authorities,
        ...this.#retry(),
      });
    }
    this.#plan();
  }

  /** Aborts an order in progress. */
  async close(): Promise<void> {
    this.#closing.abort(new HubgateError('certificate-unwanted', `${this.name} is not wanted`));
    this.#cancel();
    await this.#running;
    this.#settle();
  }

  #plan(): void {
    if (this.#closing.signal.aborted) return;
    const delay = this.#due() - this.#clock.now();
    if (delay > 0) this.#planIn(delay);
    else this.#running = this.#attempt();
  }

  #planIn(delayMs: number): void {
    this.#cancel = this.#clock.after(Math.min(delayMs, RECHECK_MS), () => this.#plan());
  }

  /** Time of the next order, in milliseconds since the epoch. */
  #due(): number {
    return Math.min(this.#dueOfAll(), this.#localAt ?? Infinity);
  }

  /** The same for an order that may ask all issuers. */
  #dueOfAll(): number {
    const isUnwanted =
      this.#issued === null ||
      this.#isFromTheFuture(this.#issued) ||
      this.#isLocalFallback(this.#issued);
    const wanted = isUnwanted ? 0 : this.#renewAt;
    const next = this.#attempts?.nextAttempt ?? 0;
    // Later than any back-off allows: the clock has been set back since.
    return next - this.#clock.now() > LONGEST_BACKOFF_MS ? wanted : Math.max(wanted, next);
  }

  /** Whether it is from the local authority because the others could not be asked when the one before expired. */
  #isLocalFallback({ authority }: IssuedCertificate): boolean {
    const isFirst = this.#request.issuers[0] === 'local';
    return authority === LOCAL && !isFirst && (this.#attempts?.count ?? 0) > 0;
  }

  /** Only for the local authority, which has the clock of this machine. */
  #isFromTheFuture({ authority, pair }: IssuedCertificate): boolean {
    return authority === LOCAL && pair.notBefore > this.#clock.now();
  }

  async #attempt(): Promise<void> {
    const { signal } = this.#closing;
    let waitMs = 0;
    try {
      await this.#tools.queue.run(signal, async () => {
        if (!(await this.#underLock())) waitMs = OTHERS_ORDER_MS;
      });
    } catch (error) {
      if (signal.aborted) return;
      await this.#failed(error);
    }
    if (signal.aborted) return;
    if (waitMs > 0) return this.#leave(waitMs);
    this.#settle();
    this.#plan();
  }

  #settle(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  #leave(waitMs: number): void {
    if (!this.#isOrderedElsewhere) {
      this.#isOrderedElsewhere = true;
      this.#tools.log.info('Another process is ordering the certificate', { name: this.name });
    }
    this.#planIn(waitMs);
  }

  /** Returns false if another process is ordering the certificate. */
  async #underLock(): Promise<boolean> {
    const { log } = this.#tools;
    const lock = await this.#lock.acquire();
    if (lock === null) return false;
    this.#isOrderedElsewhere = false;
    try {
      // Another process may have got it, or may have failed, since the last look.
      const before = this.#issued;
      await this.#read();
      if (this.#due() > this.#clock.now()) {
        if (this.#issued !== before)
          log.info('Another process has ordered the certificate', { name: this.name });
        return true;
      }
      const signal = AbortSignal.any([this.#closing.signal, lock.lost]);
      const asksOnlyLocal = this.#asksOnlyLocal;
      const staging = asksOnlyLocal ? null : this.#request.staging;
      const request = { ...this.#request, issuers: this.#issuers, staging };
      const checked = await checkedRequest(request, this.#tools, signal);
      const issued = await obtainCertificate(checked, this.#tools, signal);
      // Used even if it cannot be stored, because another order would count against the authority's limits.
      this.#adopt(issued);
      await this.#tools.store.write(issued.authority, [this.name], issued.pair);
      await this.#succeeded(issued, asksOnlyLocal);
      return true;
    } finally {
      await lock.release();
    }
  }

  async #succeeded({ authority, pair }: IssuedCertificate, askedOnlyLocal: boolean): Promise<void> {
    const { log } = this.#tools;
    log.info('Certificate obtained', {
      names: [this.name],
      authority,
      notAfter: dateOf(pair.notAfter),
    });
    // The others are asked as soon as they would be without it.
    if (askedOnlyLocal) return;
    this.#attempts = null;
    this.#hasUnwrittenAttempts = false;
    if (this.#renewAt > this.#clock.now()) {
      await forgetAttempts(this.#file('attempts', 'json'));
      return;
    }
    // Another order would bring another certificate that has expired by this clock.
    log.warn('A new certificate has already expired: is the clock of this machine right?', {
      name: this.name,
    });
    await this.#postpone({ count: 0, delayMs: MAX_BACKOFF_MS, error: 'expired when issued' });
  }

  async #failed(thrown: unknown): Promise<void> {
    const { log, random } = this.#tools;
    const failure = asAcmeError(thrown);
    const fix = fixFor(failure);
    if (this.#asksOnlyLocal) {
      const { message: error } = failure;
      this.#localFrom = this.#clock.now() + UNASKED_BACKOFF_MS;
      const fields = { error, nextAttempt: dateOf(this.#due()), fix };
      log.error('Certificate not renewed', { name: this.name, authorities: [LOCAL], ...fields });
      return;
    }
    const count = (this.#attempts?.count ?? 0) + 1;
    const full = backoff(count, random(), failure.retryAfterMs);
    const unasked = failure.code === NAME_ELSEWHERE;
    const delayMs = unasked ? Math.min(full, UNASKED_BACKOFF_MS) : full;
    const error = failure.message;
    await this.#postpone({ count, delayMs, error }).catch((unwritten: unknown) => {
      log.error('The storage cannot be written', { error: messageOf(unwritten) });
    });
    const fields = {
      name: this.name,
      authorities: this.#issuers.map(authorityOf),
      ...this.#retry(),
      fix,
    };
    if (this.#issued === null) log.error('No certificate', fields);
    else {
      const notAfter = dateOf(this.#issued.pair.notAfter);
      log.error('Certificate not renewed', { ...fields, notAfter });
    }
  }

  async #postpone(failure: { count: number; delayMs: number; error: string }): Promise<void> {
    const { count, delayMs, error } = failure;
    const nextAttempt = this.#clock.now() + delayMs;
    this.#attempts = { count, nextAttempt, error, settings: this.#settings };
    this.#hasUnwrittenAttempts = true;
    await writeAttempts(this.#file('attempts', 'json'), this.#attempts);
    this.#hasUnwrittenAttempts = false;
  }

  /** The description of earlier attempts in a log line. */
  #retry(): { readonly error?: string; readonly nextAttempt?: string } {
    if (this.#attempts === null) return {};
    const { error, nextAttempt } = this.#attempts;
    return { error, nextAttempt: dateOf(nextAttempt) };
  }

  async #read(): Promise<void> {
    const { store } = this.#tools;
    for (const authority of new Set(this.#request.issuers.map(authorityOf))) {
      const pair = await store.read(authority, [this.name]);
      // Of several, the one that expires last is used. Any valid one comes before one of a former issuer.
      const known = this.#issued?.pair.notAfter ?? 0;
      const least = this.#isFromFormerIssuer ? Math.min(known, this.#clock.now()) : known;
      if (pair !== null && pair.notAfter > least) this.#adopt({ authority, pair });
    }
    if (this.#hasExpired()) await this.#useFormerIssuer();
    if (this.#hasUnwrittenAttempts) return;
    const file = this.#file('attempts', 'json');
    this.#attempts = await readAttempts(file, this.#settings, this.#tools.log);
  }

  /**
   * The certificate of an authority that is no longer configured is used until the present one has issued
   * another.
   */
  async #useFormerIssuer(): Promise<void> {
    const found = await this.#tools.store.readOfAny([this.name], this.#clock.now());
    if (found === null) return;
    this.#adopt(found);
    this.#isFromFormerIssuer = true;
    this.#renewAt = 0;
    this.#tools.log.info('hubgate serves the certificate of another authority in the meantime', {
      name: this.name,
      authority: found.authority,
      notAfter: dateOf(found.pair.notAfter),
    });
  }

  #adopt(issued: IssuedCertificate): void {
    this.#issued = issued;
    this.#isFromFormerIssuer = false;
    const from = renewalTime(issued.pair);
    const spread = (issued.pair.notAfter - from) * RENEWAL_SPREAD;
    this.#renewAt = from + spread * this.#tools.random();
    for (const follower of this.#followers) follower();
  }

  #file(folder: string, extension: string): string {
    return join(this.#tools.storage, 'acme', folder, `${fileName([this.name])}.${extension}`);
  }
}

/** Digest of all fields of a request. */
export function settingsOf(request: CertificateRequest): string {
  const text = JSON.stringify(request, function (this: Record<string, unknown>, name, value) {
    const before = this[name];
    return before instanceof Secret ? before.reveal() : value;
  });
  return hash('sha256', text, 'hex').slice(0, 32);
}

function dateOf(time: number): string {
  return new Date(time).toISOString();
}
