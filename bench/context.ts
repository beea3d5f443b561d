import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What a measurement says of one program. */
export interface Figure {
  readonly work: string;
  readonly program: string;
  readonly unit: string;
  readonly value: number;
}

/** What all measurements of one run share: where they write, whom they measure, what they found. */
export class BenchContext {
  readonly figures: Figure[] = [];
  /** Hubs in profile `mercure` that somebody has started, by URL. */
  readonly peerHubs: readonly string[];
  /** A quarter of the work, for a quick look. */
  readonly quick: boolean;
  /** Path of the Node that runs the gateway under test and the bare servers beside it. */
  readonly node: string;
  /** What that Node says of itself, as in `v24.0.0`. */
  readonly nodeVersion: string;
  readonly #directories: string[] = [];
  readonly #skipped = new Set<string>();

  constructor(options: {
    readonly peerHubs: readonly string[];
    readonly quick: boolean;
    readonly node: string;
  }) {
    this.peerHubs = options.peerHubs;
    this.quick = options.quick;
    this.node = options.node;
    this.nodeVersion = execFileSync(options.node, ['--version'], { encoding: 'utf8' }).trim();
  }

  /** A new directory that goes with the run. */
  directory(): string {
    const path = mkdtempSync(join(tmpdir(), 'hubgate-bench-'));
    this.#directories.push(path);
    return path;
  }

  has(file: string): boolean {
    return existsSync(file);
  }

  amount(whole: number): number {
    return this.quick ? Math.max(1, Math.round(whole / 4)) : whole;
  }

  note(work: string, program: string, unit: string, value: number): void {
    this.figures.push({ work, program, unit, value });
    console.error(`  ${work}, ${program}: ${rounded(value)} ${unit}`);
  }

  /** Says once that a peer is not measured. */
  skip(program: string, why: string): void {
    if (this.#skipped.has(program)) return;
    this.#skipped.add(program);
    console.error(`  skipped: ${program} (${why})`);
  }

  close(): void {
    for (const path of this.#directories) rmSync(path, { recursive: true, force: true });
  }
}

/** Three digits that matter. */
export function rounded(value: number): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(3)));
}

/** The value below which `share` of the sorted values lie. */
export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
