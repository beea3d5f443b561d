// A waiting stream is an object, not a stack frame: a connection, matchers, grants and one timer. No code
// awaits its end, because the connection reports it. A reload can therefore free the old configuration while
// its streams stay open.

import { randomUUID } from 'node:crypto';
import type { WheelTimer } from '../kernel/timer-wheel.ts';
import type { Grants } from './grants.ts';
import type { SubscriptionMatcher } from './matcher.ts';
import { SendBuffer, type SinkListener } from './send-buffer.ts';

/**
 * Why a stream ended. `client`: the client disconnected. `overtaken`: updates (or presence events that it may
 * read) were evicted before it received them. Its client reconnects with a cursor that the history no longer
 * contains, and starts at `earliest`.
 */
export type EndReason =
  | 'client'
  | 'deadline'
  | 'slow'
  | 'overtaken'
  | 'reauthorised'
  | 'revoked'
  | 'closed'
  | 'failed';

/** Settings that streams share. */
export interface StreamSettings {
  /** 0 for none. */
  readonly heartbeatMs: number;
  /** How long a client may read nothing. */
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
  /** null means for ever. */
  readonly lifetimeMs: number | null;
  readonly settings: StreamSettings;
  /** Called once, when the connection has closed. */
  readonly place: Place | null;
}

/** The place that a stream occupies as long as its connection is open. */
export interface Place {
  leave(): void;
}

/** The owner of a subscriber: the hub. */
export interface SubscriberKeeper {
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
  endsAtMs: number;
  /** The reason for that end. */
  endsAs: EndReason = 'deadline';
  dueTick = 0;
  events = 0;
  readonly #keeper: SubscriberKeeper;
  #id: string | null = null;

  constructor(
    options: SubscriberOptions,
    position: number,
    nowMs: number,
    keeper: SubscriberKeeper,
  ) {
    this.options = options;
    this.position = position;
    this.sendBuffer = new SendBuffer(nowMs);
    this.endsAtMs = nowMs + (options.lifetimeMs ?? Number.POSITIVE_INFINITY);
    this.#keeper = keeper;
  }

  /** `urn:uuid:…`, created at first use. */
  get id(): string {
    this.#id ??= `urn:uuid:${randomUUID()}`;
    return this.#id;
  }

  drained(): void {
    this.#keeper.drained(this);
  }

  closed(): void {
    this.#keeper.closed(this);
  }

  expire(): void {
    this.#keeper.expired(this);
  }
}
