import { Writable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';
import { compilePattern, type Pattern } from '../http/linear-regexp.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Connections, ForwardSink, RequestingClient } from './forwarding.ts';
import { statusMatcher } from '../config/well-formed.ts';
import type { Upstream } from './upstreams.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';

/** Bytes of a response that are read for the comparison. */
const MAX_BODY_BYTES = 64 * 1024;

type PassiveHealth = ReverseProxyConfig['passiveHealth'];
export type ActiveHealth = NonNullable<ReverseProxyConfig['activeHealth']>;

/** Whether an upstream may get a request. */
export type IsAvailable = (upstream: Upstream) => boolean;

/** `checkKey` identifies the active check that counts; null if there is none. */
export function availability(
  passive: PassiveHealth,
  checkKey: string | null,
  clock: Clock,
): IsAvailable {
  const { failDurationMs, maxFails, unhealthyRequestCount } = passive;
  return (upstream) => {
    if (checkKey !== null && upstream.failingChecks.has(checkKey)) return false;
    if (unhealthyRequestCount > 0 && upstream.inFlight >= unhealthyRequestCount) return false;
    if (failDurationMs === 0) return true;
    return upstream.failuresSince(clock.monotonic() - failDurationMs) < maxFails;
  };
}

/** Whether a response of an upstream counts as a failure. */
export function failureByResponse(
  passive: PassiveHealth,
): (status: number, latencyMs: number) => boolean {
  const bad =
    passive.unhealthyStatus.length === 0 ? () => false : statusMatcher(passive.unhealthyStatus);
  const limitMs = passive.unhealthyLatencyMs;
  return (status, latencyMs) => bad(status) || (limitMs > 0 && latencyMs > limitMs);
}

/** Identifies an active check, so that proxies with the same check share its verdict. */
export function activeCheckKey(check: ActiveHealth): string {
  return JSON.stringify({ ...check, intervalMs: 0, timeoutMs: 0 });
}

export interface ActiveCheckTarget {
  readonly upstream: Upstream;
  /** Connections for the check: to the upstream, or to another port of its host. */
  readonly pool: Connections;
  readonly host: string;
}

/**
 * Checks each upstream at once, and then `intervalMs` after each response. `fails` bad responses in a row
 * remove it, and `passes` good ones bring it back. Returns a function that stops the checks.
 */
export function startActiveChecks(
  check: ActiveHealth,
  targets: readonly ActiveCheckTarget[],
  clock: Clock,
  log: Logger,
): () => void {
  const cancels = new Set<() => void>();
  const key = activeCheckKey(check);
  const isGood = statusMatcher([check.status === '' ? '2xx' : check.status]);
  const pattern = check.body === null ? null : compilePattern(check.body.pattern);
  let stopped = false;

  const run = async (target: ActiveCheckTarget): Promise<void> => {
    const client = new CheckTimeout();
    const breakOff = (): void => client.leave();
    cancels.add(breakOff);
    const cancelTimeout = clock.after(check.timeoutMs, breakOff);
    const fault = await probe(check, target, { isGood, pattern }, client, clock);
    cancelTimeout();
    cancels.delete(breakOff);
    if (stopped) return;
    report(target.upstream, key, check, fault, log);
    const cancelNext = clock.after(check.intervalMs, () => {
      cancels.delete(cancelNext);
      void run(target);
    });
    cancels.add(cancelNext);
  };
  for (const target of targets) void run(target);
  return () => {
    stopped = true;
    for (const cancel of cancels) cancel();
  };
}

function report(
  upstream: Upstream,
  key: string,
  { fails, passes }: ActiveHealth,
  fault: string | null,
  log: Logger,
): void {
  const fields = { upstream: upstream.address.hostport };
  const run = upstream.checkRuns.get(key) ?? 0;
  const next = fault === null ? Math.max(run, 0) + 1 : Math.min(run, 0) - 1;
  upstream.checkRuns.set(key, next);
  if (next < passes && next > -fails) return;
  if (fault === null) {
    if (upstream.failingChecks.delete(key)) log.info('An upstream is healthy again', fields);
  } else if (!upstream.failingChecks.has(key)) {
    upstream.failingChecks.add(key);
    log.warn('An upstream is unhealthy', { ...fields, fault });
  }
}

/** Waits for the response to a check, until its time is up. */
class CheckTimeout implements RequestingClient {
  abandoned = false;
  #listener: () => void = () => {};

  onAbandoned(listener: () => void): () => void {
    this.#listener = listener;
    return () => {
      this.#listener = () => {};
    };
  }

  leave(): void {
    this.abandoned = true;
    this.#listener();
  }
}

/** Resolves to a description of the fault, or null. Never rejects. */
async function probe(
  check: ActiveHealth,
  target: ActiveCheckTarget,
  expected: { readonly isGood: (status: number) => boolean; readonly pattern: Pattern | null },
  client: CheckTimeout,
  clock: Clock,
): Promise<string | null> {
  const headers = HeaderList.of({ Host: target.host, 'User-Agent': 'hubgate health check' });
  for (const { name, value } of check.headers) headers.set(name, value);
  const { isGood, pattern } = expected;
  let seen = 0;
  let text = '';
  const sink: ForwardSink = {
    onInformation: () => {},
    onHead: (status) => {
      seen = status;
      if (pattern === null || !isGood(status)) return null;
      return new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          text += chunk.toString('latin1');
          if (text.length > MAX_BODY_BYTES) client.leave();
          done();
        },
      });
    },
    onEnd: (body) => body.end(),
  };
  const uri = check.uri === '' ? '/' : check.uri;
  const request = {
    method: check.method,
    target: uri,
    headers,
    body: null,
    contentLength: null,
    trailers: () => new HeaderList(),
    client,
    clock,
    isRepeated: false,
  };
  try {
    await target.pool.forward(request, sink);
  } catch (error) {
    // A body that does not end does not invalidate the status before it.
    const hasAll = seen !== 0 && (pattern === null || text.length > MAX_BODY_BYTES);
    if (!hasAll && (seen === 0 || isGood(seen))) {
      return client.abandoned ? `no answer within ${check.timeoutMs} ms` : messageOf(error);
    }
  }
  if (!isGood(seen)) return `status ${seen}`;
  const body = Buffer.from(text.slice(0, MAX_BODY_BYTES), 'latin1').toString('utf8');
  return pattern === null || pattern.match(body) !== null ? null : 'another body';
}
