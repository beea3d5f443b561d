import { type InstantLease, InstantLeases } from '../kernel/lease.ts';
import type { Clock } from '../kernel/clock.ts';
import { parseUpstream, type UpstreamAddress } from './address.ts';
import { DynamicUpstreams } from './dynamic-upstreams.ts';
import type { Connections, TransportSettings, ForwardRequest, ForwardSink } from './forwarding.ts';
import type { DynamicConfig } from './proxy-config.ts';
import {
  Histogram,
  SECONDS,
  counter,
  distribution,
  type Family,
  gauge,
} from '../kernel/measures.ts';
import { Http1Connections } from './http1-connections.ts';
import { Http2Sessions, isNoHttp2 } from './http2-sessions.ts';
import type { DialTarget } from './upgrade-request.ts';

/** Remembered failures of one upstream; more would give no further information. */
const MAX_FAILURES = 1_000;

/** One upstream, shared by all its users, across reloads. */
export class Upstream {
  readonly address: UpstreamAddress;
  /** Requests and upgraded connections in progress. */
  inFlight = 0;
  readonly measures = new UpstreamMeasures();
  /** The verdict of each proxy that uses it. */
  readonly verdicts = new Set<(upstream: Upstream) => boolean>();
  /** Active checks, by their keys, whose last response was bad. */
  readonly failingChecks = new Set<string>();
  /** By key of the check: the number of good responses in a row or, if negative, of bad ones. */
  readonly checkRuns = new Map<string, number>();
  /** Monotonic milliseconds, oldest first. */
  readonly #failures: number[] = [];

  constructor(address: UpstreamAddress) {
    this.address = address;
  }

  /** Whether every proxy that uses it would send it a request. */
  get isAvailable(): boolean {
    for (const verdict of this.verdicts) if (!verdict(this)) return false;
    return true;
  }

  recordFailure(nowMs: number): void {
    if (this.#failures.length === MAX_FAILURES) this.#failures.shift();
    this.#failures.push(nowMs);
  }

  /** Failures at or after that monotonic time. */
  failuresSince(momentMs: number): number {
    let count = 0;
    for (let i = this.#failures.length - 1; i >= 0; i -= 1) {
      if ((this.#failures[i] ?? 0) < momentMs) break;
      count += 1;
    }
    return count;
  }
}

/**
 * Everything that outlives a reload: the state of upstreams by address, and their connections by address and
 * transport settings. A new generation takes its leases before the old one releases its own, so that neither
 * health nor open connections are lost in between.
 */
export class UpstreamRegistry {
  readonly #upstreams = new InstantLeases<Upstream>(() => {});
  readonly #dynamic = new InstantLeases<DynamicUpstreams>((list) => list.close());
  readonly #pools = new InstantLeases<Connections>((pool) => pool.close());

  /** @throws HubgateError `invalid-upstream` */
  leaseUpstream(text: string): InstantLease<Upstream> {
    const address = parseUpstream(text);
    return this.#upstreams.acquire(originOf(address), () => new Upstream(address));
  }

  /** `trustPool` is part of the key, so that a renewed file gets connections of its own. */
  leasePool(
    address: UpstreamAddress,
    settings: TransportSettings,
    trustPool: string | null,
  ): InstantLease<Connections> {
    const key = JSON.stringify([originOf(address), settings, trustPool]);
    return this.#pools.acquire(key, () => openConnections(address, settings, trustPool));
  }

  /** The old list is available to a new generation while its own first lookup runs. */
  leaseDynamic(config: DynamicConfig, clock: Clock): InstantLease<DynamicUpstreams> {
    return this.#dynamic.acquire(JSON.stringify(config), () => new DynamicUpstreams(config, clock));
  }

  /** Upstreams in use, for metrics and the admin API. */
  upstreams(): Upstream[] {
    return this.#upstreams.values();
  }

  /** Aborts every connection to every upstream. */
  destroy(): void {
    for (const pool of this.#pools.values()) pool.destroy();
  }
}

/** Includes the protocol: an upstream that has changed to `h2c` is another one. */
function originOf({ protocol, hostport, http2 }: UpstreamAddress): string {
  return `${protocol}//${hostport}${http2 ? ' by HTTP/2' : ''}`;
}

const STATUS_CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;

/** The counters of one upstream. */
class UpstreamMeasures {
  /** Attempts with it that were repetitions, after it or another upstream had failed. */
  retries = 0;
  failures = 0;
  /** Time until the head of its response. */
  readonly latency = new Histogram(SECONDS);
  readonly responses = new Float64Array(STATUS_CLASSES.length);

  answered(status: number, latencyMs: number): void {
    const index = Math.min(Math.floor(status / 100), STATUS_CLASSES.length) - 1;
    this.responses[index] = (this.responses[index] ?? 0) + 1;
    this.latency.observe(latencyMs / 1000);
  }
}

/** Milliseconds after which an upstream that has selected HTTP/1.1 is offered HTTP/2 again. */
const CHOICE_AGE_MS = 300_000;

/** `trustPool` contains the PEM certificates that HTTPS is verified against; null: those of the platform. */
export function openConnections(
  address: UpstreamAddress,
  settings: TransportSettings,
  trustPool: string | null,
): Connections {
  const target = { address, settings, trustPool };
  if (address.http2) return new Http2Sessions(target, ['h2']);
  const { versions } = settings;
  if (address.protocol === 'http:' || !versions.includes('2')) return new Http1Connections(target);
  return versions.includes('1.1') ? new EitherVersion(target) : new Http2Sessions(target, ['h2']);
}

/** HTTP/2 if the upstream selects it in the handshake (RFC 7301), otherwise HTTP/1.1. */
class EitherVersion implements Connections {
  readonly #http1: Http1Connections;
  readonly #http2: Http2Sessions;
  #http1Until = -Infinity;

  constructor(target: DialTarget) {
    this.#http1 = new Http1Connections(target);
    this.#http2 = new Http2Sessions(target, ['h2', 'http/1.1']);
  }

  async forward(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    const { clock } = request;
    if (clock.monotonic() < this.#http1Until) return this.#http1.forward(request, sink);
    try {
      await this.#http2.forward(request, sink);
    } catch (error) {
      if (!isNoHttp2(error)) throw error;
      this.#http1Until = clock.monotonic() + CHOICE_AGE_MS;
      await this.#http1.forward(request, sink);
    }
  }

  close(): void {
    this.#http1.close();
    this.#http2.close();
  }

  destroy(): void {
    this.#http1.destroy();
    this.#http2.destroy();
  }
}

/** The metrics of all upstreams. */
export function upstreamFamilies(upstreams: readonly Upstream[]): readonly Family[] {
  const all = upstreams.map((one) => ({ labels: { upstream: one.address.hostport }, one }));
  return [
    gauge(
      'hubgate_upstream_healthy',
      'Whether every proxy that uses the upstream considers it healthy.',
      all.map(({ labels, one }) => [labels, one.isAvailable ? 1 : 0]),
      'min',
    ),
    gauge(
      'hubgate_upstream_requests_in_flight',
      'Requests and upgraded connections in progress.',
      all.map(({ labels, one }) => [labels, one.inFlight]),
    ),
    counter(
      'hubgate_upstream_responses_total',
      'Responses of the upstream.',
      all.flatMap(({ labels, one }) =>
        STATUS_CLASSES.map((status, index) => [
          { ...labels, status },
          one.measures.responses[index] ?? 0,
        ]),
      ),
    ),
    distribution(
      'hubgate_upstream_latency_seconds',
      'Time from sending a request to the head of the response.',
      all.map(({ labels, one }) => [labels, one.measures.latency]),
    ),
    counter(
      'hubgate_upstream_failures_total',
      'Requests without a usable response.',
      all.map(({ labels, one }) => [labels, one.measures.failures]),
    ),
    counter(
      'hubgate_upstream_retries_total',
      'Attempts after a failed one.',
      all.map(({ labels, one }) => [labels, one.measures.retries]),
    ),
  ];
}
