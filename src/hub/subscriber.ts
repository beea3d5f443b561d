// A waiting stream is a record and not a stack frame: connection, matchers, grants and one timer.
// Nothing awaits its end, the connection reports it. So a reload frees the old generation while its
// streams live on.

import { randomUUID } from 'node:crypto';
import type { WheelTimer } from '../kernel/timer-wheel.ts';
import type { Grants } from './grants.ts';
import type { SubscriptionMatcher } from './matcher.ts';
import { SendBuffer, type SinkListener } from './send-buffer.ts';

/**
 * Why a stream ended; `client` when the other side left, `overtaken` when updates that it had not been given
 * yet were evicted, or presence events that it might have read. Its client comes back with a cursor that the log no longer knows, and is told `earliest`.
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

/** What streams that were opened under the same settings have in common. */
export interface StreamSettings {
  /** 0 for none. */
  readonly heartbeatMs: number;
  /** Longest wait for a client that takes nothing. */
  readonly dispatchTimeoutMs: number;
  /** Bytes that may wait behind what a connection is being handed, before something is added. */
  readonly maxBufferBytes: number;
  /** Whether subscriptions are reported to presence listeners. */
  readonly announced: boolean;
}

export interface SubscriberOptions {
  readonly matchers: readonly SubscriptionMatcher[];
  readonly grants: Grants;
  /** The issuer, role and key that stand behind the token; null without a token. */
  readonly issuerKey: string | null;
  /** `jti` of the token; null without one. */
  readonly tokenId: string | null;
  /** Mark of the browser session that opened the stream; null without one. */
  readonly session: string | null;
  /** null for ever. */
  readonly lifetimeMs: number | null;
  readonly settings: StreamSettings;
  /** Told once, when the connection is gone. */
  readonly place: Place | null;
}

/** What a stream occupies as long as its connection is there. */
export interface Place {
  leave(): void;
}

/** Who looks after a subscriber: the hub. */
export interface SubscriberKeeper {
  drained(subscriber: Subscriber): void;
  closed(subscriber: Subscriber): void;
  expired(subscriber: Subscriber): void;
}

/** An open event stream: whose it is, what it wants and may have, and its one timer. */
export class Subscriber implements SinkListener, WheelTimer {
  readonly options: SubscriberOptions;
  readonly sendBuffer: SendBuffer;
  /** The last log position that it has been shown. */
  position: number;
  ended: EndReason | null = null;
  /** Whether it is given what the tail hands out; otherwise it reads the log. */
  isLive = false;
  /** Position up to which it has been told that presence events are gone. */
  knownGap = 0;
  /** Monotonic time at which it ends by itself. */
  endsAtMs: number;
  /** Why it does. */
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

  /** `urn:uuid:…`, made when somebody asks for it. */
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
