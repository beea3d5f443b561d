import type { Sample } from '../../kernel/measures.ts';
import type { StatusReport } from '../../runtime/health.ts';

/** Two consecutive reports of a gateway: current values, and how fast they grow. */
export class Reading {
  readonly report: StatusReport;
  readonly #now: ReadonlyMap<string, readonly Sample[]>;
  readonly #before: ReadonlyMap<string, readonly Sample[]>;
  readonly #seconds: number;

  constructor(before: StatusReport, report: StatusReport) {
    this.report = report;
    this.#now = byName(report);
    this.#before = byName(before);
    this.#seconds = Math.max(0.001, (report.time - before.time) / 1000);
  }

  /** The values of a label of a metric, in their order. */
  values(name: string, label: string): readonly string[] {
    const found = (this.#now.get(name) ?? []).flatMap(({ labels }) => labels[label] ?? []);
    return [...new Set(found)];
  }

  /** The sum of the series with these labels. */
  sum(name: string, labels: Sample['labels'] = {}): number {
    return total(this.#now, name, labels);
  }

  /** Their growth per second. A counter that has been reset has grown from 0. */
  rate(name: string, labels: Sample['labels'] = {}): number {
    const [now, before] = [this.sum(name, labels), total(this.#before, name, labels)];
    return (now < before ? now : now - before) / this.#seconds;
  }

  /** The mean of a distribution between the two reports; null if it has no new values. */
  mean(name: string, labels: Sample['labels'] = {}): number | null {
    const count = this.rate(`${name}_count`, labels);
    return count === 0 ? null : this.rate(`${name}_sum`, labels) / count;
  }

  /** The bound that the given fraction of a distribution's new values does not exceed. */
  percentile(name: string, share: number, labels: Sample['labels'] = {}): number | null {
    const count = this.rate(`${name}_count`, labels);
    if (count === 0) return null;
    for (const le of this.values(`${name}_bucket`, 'le')) {
      const within = this.rate(`${name}_bucket`, { ...labels, le });
      if (within >= share * count) return le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le);
    }
    return null;
  }
}

function byName({ metrics }: StatusReport): ReadonlyMap<string, readonly Sample[]> {
  const found = new Map<string, Sample[]>();
  for (const { name, values } of metrics) {
    for (const sample of values) {
      const key = sample.metricName ?? name;
      const list = found.get(key);
      if (list === undefined) found.set(key, [sample]);
      else list.push(sample);
    }
  }
  return found;
}

function total(
  samples: ReadonlyMap<string, readonly Sample[]>,
  name: string,
  labels: Sample['labels'],
): number {
  const wanted = Object.entries(labels);
  let sum = 0;
  for (const sample of samples.get(name) ?? []) {
    if (wanted.every(([label, value]) => sample.labels[label] === value)) sum += sample.value;
  }
  return sum;
}
