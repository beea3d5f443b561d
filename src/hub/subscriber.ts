import type { Grants } from './grants.ts';
import type { SubscriptionMatcher } from './matcher.ts';

/** Where the bytes of one event stream go: a connection, as the hub sees it. */
export interface EventSink {
  /** Returns false when the caller should wait for `onDrain`. */
  write(chunk: Buffer): boolean;
  /** Bytes accepted but not yet taken by the operating system. */
  readonly bufferedBytes: number;
  /** Calls back once, when what was written has been taken. */
  onDrain(callback: () => void): void;
  /** Ends the stream cleanly after what was written. */
  end(): void;
  /** Breaks the connection off. */
  destroy(): void;
}

/** Why a stream ended; `client` when the other side left. */
export type EndReason =
  | 'client'
  | 'deadline'
  | 'slow'
  | 'reauthorised'
  | 'revoked'
  | 'closed'
  | 'failed';

export interface SubscriberOptions {
  /** `urn:uuid:…`, made by the hub for this connection. */
  readonly id: string;
  readonly matchers: readonly SubscriptionMatcher[];
  readonly grants: Grants;
  /** The issuer, role and key that stand behind the token; null without a token. */
  readonly vouchedBy: string | null;
  /** `jti` of the token; null without one. */
  readonly tokenId: string | null;
  /** Mark of the browser session that opened the stream; null without one. */
  readonly session: string | null;
  /** 0 for none. */
  readonly heartbeatMs: number;
  /** null for ever. */
  readonly lifetimeMs: number | null;
  /** Longest wait for a client that does not read. */
  readonly dispatchTimeoutMs: number;
  /** Bytes that may wait for this connection. */
  readonly maxBufferBytes: number;
  /** Whether the subscription is reported to presence listeners. */
  readonly announced: boolean;
}

/**
 * An open event stream. Events wait in it until the end of the turn, and leave in one write; until
 * {@link open} gives it a connection they wait for that.
 */
export class Subscriber {
  readonly options: SubscriberOptions;
  /** The last log position it has been shown; meaningful while it catches up. */
  position: number;
  /** The dispatch that selected it last, so that several matching matchers deliver once. */
  selectedBy = 0;
  ended: EndReason | null = null;
  #sink: EventSink | null = null;
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  #writtenBytes = 0;
  #draining = false;
  #lastWriteMs: number;

  constructor(options: SubscriberOptions, position: number, nowMs: number) {
    this.options = options;
    this.position = position;
    this.#lastWriteMs = nowMs;
  }

  get id(): string {
    return this.options.id;
  }

  get bufferedBytes(): number {
    return this.#queuedBytes + (this.#sink?.bufferedBytes ?? 0);
  }

  get hasQueued(): boolean {
    return this.#queue.length > 0;
  }

  /** Bytes that the connection has taken; they only grow. */
  get takenBytes(): number {
    return this.#writtenBytes - (this.#sink?.bufferedBytes ?? 0);
  }

  /** Monotonic time of the last write. */
  get lastWriteMs(): number {
    return this.#lastWriteMs;
  }

  open(sink: EventSink): void {
    if (this.ended === null) this.#sink = sink;
    else sink.end();
  }

  /** Queues an event; false when more waits than this subscriber may have waiting. */
  push(event: Buffer): boolean {
    this.#queue.push(event);
    this.#queuedBytes += event.length;
    return this.bufferedBytes <= this.options.maxBufferBytes;
  }

  /** Writes what is queued, in one piece. Returns false when the connection asks for a pause. */
  flush(nowMs: number): boolean {
    const sink = this.#sink;
    if (sink === null || this.ended !== null || this.#queue.length === 0) return true;
    const [first] = this.#queue;
    const chunk = this.#queue.length === 1 && first ? first : Buffer.concat(this.#queue);
    this.#queue = [];
    this.#writtenBytes += chunk.length;
    this.#queuedBytes = 0;
    this.#lastWriteMs = nowMs;
    return sink.write(chunk);
  }

  /** Whether somebody waits for the connection to take what it has. */
  get draining(): boolean {
    return this.#draining;
  }

  onDrain(callback: () => void): void {
    this.#draining = true;
    this.#sink?.onDrain(() => {
      this.#draining = false;
      callback();
    });
  }

  /** Ends the stream; what is queued is still written. Does nothing the second time. */
  end(reason: EndReason, nowMs: number): void {
    if (this.ended !== null) return;
    if (reason !== 'client') this.flush(nowMs);
    this.ended = reason;
    this.#queue = [];
    if (reason !== 'client') this.#sink?.end();
  }

  /** Breaks the connection off, for a client that does not even take the end of its stream. */
  destroy(): void {
    this.#sink?.destroy();
  }
}
