// A waiting stream is an object, not a stack frame: a connection, matchers, grants and one timer. No code
// awaits its end, because the connection reports it. A reload can therefore free the old configuration while
// its streams stay open.

import { randomUUID } from 'node:crypto';
import type { WheelTimer } from '../kernel/timer-wheel.ts';
import type { Grants } from './grants.ts';
import type { SubscriptionMatcher } from './matcher.ts';
import { SendBuffer, type SinkListener } from './send-buffer.ts';

/**
 * Why a stream ended. Metrics, the access log and the debug log show it, and a table in docs/operations.md
 * explains it to operators.
 */
export type EndReason =
  /** The client disconnected. */
  | 'client'
  /** Its token expires soon, or `write_timeout` is over. */
  | 'deadline'
  /** The client read too slowly: `max_subscriber_buffer` or `dispatch_timeout`. */
  | 'slow'
  /**
   * Updates (or presence events that it may read) were evicted before it received them. Its client reconnects
   * with a cursor that the history no longer contains, and starts at `earliest`.
   */
  | 'overtaken'
  /** A reload removed the issuer or key of its token, or anonymous access. */
  | 'unauthorized'
  /** The operator revoked its token, or its user logged out. */
  | 'revoked'
  /** The gateway stops, or a reload removed the hub or changed its transport. */
  | 'closed'
  /** The history could not be read, or its subscription not be stored. */
  | 'failed';

/** How long a client may read nothing at the end of its stream if it otherwise may for any time. */
const LAST_BYTES_MS = 5000;

/** Settings that streams share. */
export interface StreamSettings {
  /** 0 for none. */
  readonly heartbeatMs: number;
  /** How long a client may read nothing; 0 for any time. */
  readonly dispatchTimeoutMs: number;
  /** Bytes that may wait in addition to the piece in transfer, before another event is queued. */
  readonly maxBufferBytes: number;
  /** Whether subscriptions are reported to presence listeners. */
  readonly announced: boolean;
}

export interface SubscriberOptions {
  readonly matchers: readonly SubscriptionMatcher[];
  readonly grants: Grants;
  /** The issuer, role and key behind the token; null without a token. */
  readonly issuerKey: string | null;
  /** `jti` of the token; null without one. */
  readonly tokenId: string | null;
  /** Mark of the browser session that opened the stream; null without one. */
  readonly session: string | null;
  /** How long it may live from its request on; null means for ever. */
  readonly lifetimeMs: number | null;
  /** `exp` of the token in milliseconds since the Unix epoch; null without one. */
  readonly expiresAtMs: number | null;
  readonly settings: StreamSettings;
  /** Called once, when the connection has closed. */
  readonly place: Place | null;
}

/** Decides from the authorization behind a token whether its stream may be open. null means that there is no token. */
export type MayStayOpen = (stream: Pick<SubscriberOptions, 'issuerKey'>) => boolean;

/** The place that a stream occupies as long as its connection is open. */
export interface Place {
  leave(): void;
}

/** The owner of a subscriber: the hub. */
export interface SubscriberCallbacks {
  drained(subscriber: Subscriber): void;
  closed(subscriber: Subscriber): void;
  expired(subscriber: Subscriber): void;
}

/** An open event stream: its client, its matchers and grants, and its single timer. */
export class Subscriber implements SinkListener, WheelTimer {
  readonly options: SubscriberOptions;
  readonly sendBuffer: SendBuffer;
  /** The last position of the history that it has received. */
  position: number;
  ended: EndReason | null = null;
  /** Whether it receives updates live; otherwise it reads the history. */
  isLive = false;
  /** Position up to which it knows that presence events were evicted. */
  knownGap = 0;
  /** Monotonic time at which its lifetime ends. */
  endsAtMs = Number.POSITIVE_INFINITY;
  /** The reason for that end. */
  endsAs: EndReason = 'deadline';
  dueTick = 0;
  events = 0;
  readonly #callbacks: SubscriberCallbacks;
  #id: string | null = null;

  constructor(
    options: SubscriberOptions,
    position: number,
    nowMs: number,
    callbacks: SubscriberCallbacks,
  ) {
    this.options = options;
    this.position = position;
    this.sendBuffer = new SendBuffer(nowMs);
    this.#callbacks = callbacks;
  }

  /** `urn:uuid:…`, created at first use. */
  get id(): string {
    this.#id ??= `urn:uuid:${randomUUID()}`;
    return this.#id;
  }

  drained(): void {
    this.#callbacks.drained(this);
  }

  closed(): void {
    this.#callbacks.closed(this);
  }

  expire(): void {
    this.#callbacks.expired(this);
  }
}

export interface DeadlineInput {
  /** Milliseconds since the Unix epoch, like the other times. */
  readonly now: number;
  /** `exp` of the token; null without one. */
  readonly expiresAtMs: number | null;
  /** 0 for none. */
  readonly writeTimeoutMs: number;
  /** 0 for none. */
  readonly dispatchTimeoutMs: number;
  /** At least 0, less than 1. */
  readonly random: number;
}

/**
 * How long a stream may live, in milliseconds; null means for ever. A random time between 80 % and 100 % of
 * the shorter of token lifetime and write timeout, minus the time for a last write, unless less than that
 * time would be left: a client would connect again and again in the last seconds of its token. No update is
 * queued after that time, and what waits then is sent for `dispatchTimeoutMs` at most, or for
 * {@link LAST_BYTES_MS} if that is 0. Streams that opened together do not end together.
 */
export function streamLifetime(input: DeadlineInput): number | null {
  const limits: number[] = [];
  if (input.writeTimeoutMs > 0) limits.push(input.writeTimeoutMs);
  if (input.expiresAtMs !== null) limits.push(Math.max(0, input.expiresAtMs - input.now));
  if (limits.length === 0) return null;
  const lifetime = Math.min(...limits) * (0.8 + 0.2 * input.random);
  const early = lifetime - input.dispatchTimeoutMs;
  return Math.floor(early >= input.dispatchTimeoutMs ? early : lifetime);
}

/** The purpose of a stream's single timer. `stalled` and `gone` are for clients that read nothing. */
export type Due = 'over' | 'stalled' | 'gone' | 'heartbeat' | 'nothing';

/** How long the client may read nothing, in milliseconds. The end of a stream always has a limit. */
function patienceWith({ options, ended }: Subscriber): number {
  const { dispatchTimeoutMs } = options.settings;
  if (dispatchTimeoutMs > 0) return dispatchTimeoutMs;
  return ended === null ? Number.POSITIVE_INFINITY : LAST_BYTES_MS;
}

/** Monotonic time of the next event of a stream; Infinity if there is none. */
export function nextDueAt(subscriber: Subscriber, nowMs: number): number {
  const { sendBuffer, options, ended } = subscriber;
  const { heartbeatMs } = options.settings;
  const patienceMs = patienceWith(subscriber);
  let due = sendBuffer.stallsAt(patienceMs) ?? Number.POSITIVE_INFINITY;
  if (ended !== null) return Math.min(due, nowMs + patienceMs);
  due = Math.min(due, subscriber.endsAtMs);
  if (heartbeatMs === 0) return due;
  // If data already waits, a heartbeat is not necessary.
  const silentSince = sendBuffer.isIdle ? sendBuffer.lastWriteMs : nowMs;
  return Math.min(due, silentSince + heartbeatMs);
}

/** What is due for a stream now. */
export function dueNow(subscriber: Subscriber, nowMs: number): Due {
  const { sendBuffer, options, ended, endsAtMs } = subscriber;
  const { heartbeatMs } = options.settings;
  const patienceMs = patienceWith(subscriber);
  if (ended !== null) {
    if (nowMs >= endsAtMs + patienceMs) return 'gone';
    const hasUnsent = sendBuffer.stallsAt(patienceMs) !== null;
    // Everything is sent, or the client does not even read the end of its stream.
    return hasUnsent && !sendBuffer.isStalled(nowMs, patienceMs) ? 'nothing' : 'gone';
  }
  if (nowMs >= endsAtMs) return 'over';
  if (sendBuffer.isStalled(nowMs, patienceMs)) return 'stalled';
  const isSilent = sendBuffer.isIdle && nowMs - sendBuffer.lastWriteMs >= heartbeatMs;
  return heartbeatMs > 0 && isSilent ? 'heartbeat' : 'nothing';
}
