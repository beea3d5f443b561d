import { NO_GRANTS } from '../../src/hub/grants.ts';
import type { HubOptions, SubscribeOptions } from '../../src/hub/hub.ts';
import type { EventSink, SinkListener } from '../../src/hub/send-buffer.ts';
import type { StreamSettings } from '../../src/hub/subscriber.ts';
import type { Clock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Scheduler } from '../../src/kernel/scheduler.ts';
import { TimerWheel } from '../../src/kernel/timer-wheel.ts';

/** What a hub needs from its process. */
export function processAround(
  clock: Clock,
): Pick<HubOptions, 'clock' | 'wheel' | 'scheduler' | 'log'> {
  return { clock, wheel: new TimerWheel(clock), scheduler: new Scheduler(), log: silentLogger };
}

const STREAM: StreamSettings = {
  heartbeatMs: 0,
  dispatchTimeoutMs: 5000,
  maxBufferBytes: 1024 * 1024,
  announced: false,
};

/** A subscription to nothing, but for what is given. */
export function wish(
  overrides: Partial<SubscribeOptions>,
  settings: Partial<StreamSettings> = {},
): SubscribeOptions {
  return {
    matchers: [],
    grants: NO_GRANTS,
    issuerKey: null,
    tokenId: null,
    session: null,
    lastEventId: null,
    revocationEpoch: 0,
    lifetimeMs: null,
    expiresAtMs: null,
    settings: { ...STREAM, ...settings },
    place: null,
    ...overrides,
  };
}

/** A connection that takes everything at once, or nothing until it is unblocked. */
export class RecordingSink implements EventSink {
  readonly framing: EventSink['framing'];
  readonly writes: Buffer[] = [];
  ended = false;
  destroyed = false;
  bufferedBytes = 0;
  /** Accepts everything, but passes nothing on. */
  isLagging = false;
  #listener: SinkListener | null = null;
  #isBlocked: boolean;

  constructor(isBlocked = false, framing: EventSink['framing'] = 'plain') {
    this.#isBlocked = isBlocked;
    this.framing = framing;
  }

  write(framed: Buffer): boolean {
    this.writes.push(framed);
    if (this.#isBlocked || this.isLagging) this.bufferedBytes += framed.length;
    return !this.#isBlocked;
  }

  listen(listener: SinkListener): void {
    this.#listener = listener;
  }

  end(): void {
    this.ended = true;
  }

  destroy(): void {
    this.destroyed = true;
  }

  /** The connection takes some bytes and remains blocked. */
  take(bytes: number): void {
    this.bufferedBytes -= bytes;
  }

  /** The connection takes all that waits, and from now on everything, or again nothing. */
  drain(isBlocked = false): void {
    this.#isBlocked = isBlocked;
    this.bufferedBytes = 0;
    this.#listener?.drained();
  }

  /** The client leaves. */
  leave(): void {
    this.#listener?.closed();
  }

  text(): string {
    return Buffer.concat(this.writes).toString();
  }

  ids(): string[] {
    return [...this.text().matchAll(/^id: (.*)$/gm)].map(([, id]) => id ?? '');
  }

  data(): string[] {
    return [...this.text().matchAll(/^data: (.*)$/gm)].map(([, data]) => data ?? '');
  }
}

/** What something comes to that yields only when it runs out of a budget. */
export function resultOf<T>(steps: Generator<void, T, void>): T {
  const { done, value } = steps.next();
  if (done !== true) throw new Error('it yielded');
  return value;
}
