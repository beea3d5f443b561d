/** Names and values of the labels of one series. Their values are of a bounded set. */
export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly value: number;
  readonly labels: Labels;
  /** Where it is not the family's own name: `…_bucket`, `…_sum`, `…_count`. */
  readonly metricName?: string;
}

/** All series of one name, as plain data: processes send it to each other, and add it up. */
export interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** How the values of several processes make one. */
  readonly aggregator: 'sum' | 'max' | 'min';
  readonly values: readonly Sample[];
}

/** Series with their labels. */
export type Series = readonly (readonly [labels: Labels, value: number])[];

/** What only grows. */
export function counter(name: string, help: string, series: Series | number): Family {
  return { name, type: 'counter', help, aggregator: 'sum', values: samples(series) };
}

/** What goes up and down. */
export function gauge(
  name: string,
  help: string,
  series: Series | number,
  aggregator: Family['aggregator'] = 'sum',
): Family {
  return { name, type: 'gauge', help, aggregator, values: samples(series) };
}

/** A distribution. */
export function distribution(
  name: string,
  help: string,
  series: readonly (readonly [labels: Labels, histogram: Histogram])[],
): Family {
  const values = series.flatMap(([labels, one]) => one.samples(name, labels));
  return { name, type: 'histogram', help, aggregator: 'sum', values };
}

function samples(series: Series | number): readonly Sample[] {
  if (typeof series === 'number') return [{ labels: {}, value: series }];
  return series.map(([labels, value]) => ({ labels, value }));
}

/**
 * Counts by upper bound. An observation is a search in a short array and two additions: nothing is
 * looked up by labels, of which whoever keeps it knows the values.
 */
export class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  /** @param bounds upper bounds, growing; beyond the last there is not a limit */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let index = 0;
    while (index < bounds.length && value > (bounds[index] ?? 0)) index += 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += value;
  }

  samples(name: string, labels: Labels): readonly Sample[] {
    let count = 0;
    const buckets = [...this.#counts].map((own, index): Sample => {
      count += own;
      const le = String(this.#bounds[index] ?? '+Inf');
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: count };
    });
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  }
}

/** Seconds: from what is answered at once to what somebody gives up on. */
export const SECONDS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

/** Bytes, in steps of sixteen. */
export const BYTES = [256, 4096, 65_536, 1_048_576, 16_777_216, 268_435_456] as const;

/** Which percentiles of a list of values are told. */
const PERCENTILES = { p50: 0.5, p90: 0.9, p99: 0.99, max: 1 } as const;

/** The values at these percentiles, with their labels; zeros where there are no values. */
export function percentiles(values: Float64Array, labels: Labels): Series {
  const sorted = values.toSorted();
  return Object.entries(PERCENTILES).map(([percentile, share]) => {
    const index = Math.max(0, Math.ceil(share * sorted.length) - 1);
    return [{ ...labels, percentile }, sorted[index] ?? 0];
  });
}
