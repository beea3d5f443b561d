/** Names and values of the labels of one series. Each label has a bounded set of values. */
export type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly value: number;
  readonly labels: Labels;
  /** The name if it is not the family's own: `…_bucket`, `…_sum`, `…_count`. */
  readonly metricName?: string;
}

/** All series of one name as plain data, which processes send to each other and add up. */
export interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** How to combine the values of several processes. */
  readonly aggregator: 'sum' | 'max' | 'min';
  readonly values: readonly Sample[];
}

/** Series with their labels. */
export type Series = readonly (readonly [labels: Labels, value: number])[];

/** A value that only grows. */
export function counter(name: string, help: string, series: Series | number): Family {
  return { name, type: 'counter', help, aggregator: 'sum', values: samples(series) };
}

/** A value that goes up and down. */
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
  series: Histogram | readonly (readonly [labels: Labels, histogram: Histogram])[],
): Family {
  const all = series instanceof Histogram ? ([[{}, series]] as const) : series;
  const values = all.flatMap(([labels, one]) => one.samples(name, labels));
  return { name, type: 'histogram', help, aggregator: 'sum', values };
}

function samples(series: Series | number): readonly Sample[] {
  if (typeof series === 'number') return [{ labels: {}, value: series }];
  return series.map(([labels, value]) => ({ labels, value }));
}

/**
 * Counts values by upper bound. An observation costs a search in a short array and two additions. The owner
 * keeps one histogram per set of labels, so nothing is looked up.
 */
export class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  /** @param bounds upper bounds in ascending order; values beyond the last have no limit */
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

/** Seconds, from an immediate response to the time at which users give up. */
export const SECONDS = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;

/** Bytes, in steps of sixteen. */
export const BYTES = [256, 4096, 65_536, 1_048_576, 16_777_216, 268_435_456] as const;

/** The percentiles that are reported. */
const PERCENTILES = { p50: 0.5, p90: 0.9, p99: 0.99, max: 1 } as const;

/** The values at these percentiles; zeros where there are no values. */
export function percentiles(values: Float64Array): Series {
  const sorted = values.toSorted();
  return Object.entries(PERCENTILES).map(([percentile, share]) => {
    const index = Math.max(0, Math.ceil(share * sorted.length) - 1);
    return [{ percentile }, sorted[index] ?? 0];
  });
}
