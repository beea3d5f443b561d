// OTLP's JSON format fits on one page of documentation. OpenTelemetry's library has a registry of its own,
// which is too much for one POST every two seconds.

import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { requireUrl } from '../kernel/parse.ts';
import { withoutSecretParts } from '../kernel/secret.ts';
import type { Span, SpanSink } from '../site/tracing.ts';

/** Spans that wait to be sent; further ones are dropped. */
export const MAX_WAITING_SPANS = 4_096;
/** Spans of one request, and how long the first of them waits for others. */
const BATCH_SPANS = 512;
const BATCH_MS = 2_000;
/** How long a collector may take to respond. */
const TIMEOUT_MS = 10_000;
/** Time for the last spans when the configuration is retired: a collector must not delay a stop. */
const CLOSE_MS = 1_000;

/** Counters of sent and dropped spans. */
export interface SpanCounts {
  exported: number;
  dropped: number;
}

export interface OtlpOptions {
  /** URL of the collector; without a path, `/v1/traces` is used. */
  readonly url: string;
  readonly counts: SpanCounts;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch: typeof fetch;
}

/**
 * Sends spans to a collector with OTLP over HTTP, as JSON. If a collector is slow or unavailable, spans are
 * lost and counted, without any other effect: there is one request at a time, a bounded queue, and no second
 * attempt.
 *
 * @see https://opentelemetry.io/docs/specs/otlp/#otlphttp
 */
export class OtlpExport implements SpanSink {
  readonly #options: OtlpOptions;
  readonly #url: string;
  #waiting: Span[] = [];
  #cancel: (() => void) | null = null;
  #sending: Promise<void> | null = null;
  #failing = false;
  readonly #closing = new AbortController();

  constructor(options: OtlpOptions) {
    this.#options = options;
    const url = requireUrl(options.url);
    if (url.pathname === '/') url.pathname = '/v1/traces';
    this.#url = url.href;
  }

  add(span: Span): void {
    if (this.#waiting.length >= MAX_WAITING_SPANS) {
      return this.#drop(1, `${MAX_WAITING_SPANS} spans wait already`);
    }
    this.#waiting.push(span);
    if (this.#waiting.length >= BATCH_SPANS) this.#begin();
    else this.#cancel ??= this.#options.clock.after(BATCH_MS, () => this.#begin());
  }

  /** Sends the waiting spans, and resolves when that has succeeded or failed. What takes too long is dropped. */
  async close(): Promise<void> {
    const cancel = this.#options.clock.after(CLOSE_MS, () => this.#closing.abort());
    while (this.#waiting.length > 0 || this.#sending !== null) {
      this.#begin();
      await this.#sending;
    }
    cancel();
  }

  #begin(): void {
    this.#cancel?.();
    this.#cancel = null;
    if (this.#sending !== null) return;
    const batch = this.#waiting.splice(0, BATCH_SPANS);
    if (batch.length === 0) return;
    this.#sending = this.#send(batch).then(() => {
      this.#sending = null;
      if (this.#waiting.length > 0) this.#begin();
    });
  }

  /** Never rejects. */
  async #send(batch: readonly Span[]): Promise<void> {
    const { counts, log, fetch } = this.#options;
    try {
      const answer = await fetch(this.#url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(encodeSpans(batch)),
        redirect: 'error',
        signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), this.#closing.signal]),
      });
      await answer.body?.cancel();
      if (!answer.ok) throw new TypeError(`status ${answer.status}`);
      counts.exported += batch.length;
      // A collector that is merely too slow takes batches, and spans are dropped nevertheless.
      if (this.#failing && this.#waiting.length < MAX_WAITING_SPANS / 2) {
        log.info('Spans can be exported again');
        this.#failing = false;
      }
    } catch (error) {
      this.#drop(batch.length, withoutSecretParts(messageOf(error)));
    }
  }

  /** Logged once, and once more when it works again and at most half of the queue is left. */
  #drop(spans: number, error: string): void {
    this.#options.counts.dropped += spans;
    if (!this.#failing) {
      this.#options.log.warn('Spans cannot be exported; they are dropped until they can', {
        collector: withoutSecretParts(this.#url),
        error,
      });
    }
    this.#failing = true;
  }
}

/** `ExportTraceServiceRequest` in JSON (OTLP, "JSON Protobuf Encoding"). */
function encodeSpans(spans: readonly Span[]): unknown {
  return {
    resourceSpans: [
      {
        resource: { attributes: attributes({ 'service.name': 'hubgate' }) },
        scopeSpans: [{ scope: { name: 'hubgate' }, spans: spans.map(encodeSpan) }],
      },
    ],
  };
}

function encodeSpan(span: Span): unknown {
  return {
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.parentId === null ? {} : { parentSpanId: span.parentId }),
    name: span.name,
    // SPAN_KIND_SERVER
    kind: 2,
    startTimeUnixNano: nanoseconds(span.startMs),
    endTimeUnixNano: nanoseconds(span.endMs),
    attributes: attributes(span.attributes),
    // STATUS_CODE_ERROR, for statuses that mean a fault of the server.
    ...(span.isError ? { status: { code: 2 } } : {}),
  };
}

/** 64-bit integers are decimal strings. */
function nanoseconds(ms: number): string {
  return String(BigInt(Math.round(ms * 1000)) * 1000n);
}

function attributes(values: Readonly<Record<string, string | number>>): unknown {
  return Object.entries(values).map(([key, value]) => ({
    key,
    value:
      typeof value === 'string'
        ? { stringValue: value }
        : Number.isInteger(value)
          ? { intValue: String(value) }
          : { doubleValue: value },
  }));
}
