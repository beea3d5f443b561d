import { Histogram, SECONDS } from '../kernel/measures.ts';

export const STATUS_CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const;

/** What is counted of one upstream. */
export class UpstreamMeasures {
  /** Attempts that were repeated with it, after it or another had failed. */
  retries = 0;
  failures = 0;
  /** Until the head of its answer. */
  readonly latency = new Histogram(SECONDS);
  readonly responses = new Float64Array(STATUS_CLASSES.length);

  answered(status: number, latencyMs: number): void {
    const index = Math.min(Math.floor(status / 100), STATUS_CLASSES.length) - 1;
    this.responses[index] = (this.responses[index] ?? 0) + 1;
    this.latency.observe(latencyMs / 1000);
  }
}
