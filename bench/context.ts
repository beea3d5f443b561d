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
  /** Where the value is the median of several rounds. */
  readonly spread?: { readonly least: number; readonly most: number };
}

/** What all measurements of one run share: where they write, whom they measure, what they found. */
export class BenchContext {
  readonly figures: Figure[] = [];
  /** Hubs in profile `mercure` that somebody has started, by URL. */
  readonly peerHubs: readonly string[];
  /** A quarter of the work, for a quick look. */
  readonly quick: boolean;
  /** Of `goals`; none are all. */
  readonly parts: readonly string[];
  /** Of which the median is taken, where programs are measured in turns. */
  readonly rounds: number;
  /** Path of the Node that runs the gateway under test and the bare servers beside it. */
  readonly node: string;
  /** What that Node says of itself, as in `v24.0.0`. */
  readonly nodeVersion: string;
  readonly #directories: string[] = [];
  readonly #skipped = new Set<string>();

  constructor(options: {
    readonly peerHubs: readonly string[];
    readonly quick: boolean;
    readonly rounds: number;
    readonly parts: readonly string[];
    readonly node: string;
  }) {
    this.peerHubs = options.peerHubs;
    this.quick = options.quick;
    this.rounds = options.rounds;
    this.parts = options.parts;
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

  /** The median of several rounds, and their spread. */
  noteRounds(work: string, program: string, unit: string, values: readonly number[]): void {
    const sorted = values.toSorted((one, other) => one - other);
    const [least = Number.NaN, most = Number.NaN] = [sorted[0], sorted.at(-1)];
    const value = percentile(sorted, 0.5);
    this.figures.push({ work, program, unit, value, spread: { least, most } });
    const spread = `${rounded(least)}–${rounded(most)}`;
    console.error(`  ${work}, ${program}: ${rounded(value)} ${unit} (${spread})`);
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

/** One figure of one round. */
export interface Sample {
  readonly work: string;
  readonly unit: string;
  readonly value: number;
}

/** Measures the programs in turns, so that each has the same hour, and notes the medians. */
export async function inRounds<Program extends { readonly name: string }>(
  context: BenchContext,
  programs: readonly Program[],
  measure: (program: Program) => Promise<readonly Sample[]>,
): Promise<void> {
  const found = new Map<string, { sample: Sample; name: string; values: number[] }>();
  for (let round = 0; round < context.rounds; round += 1) {
    for (const program of round % 2 === 0 ? programs : programs.toReversed()) {
      for (const sample of await measure(program)) {
        const id = `${sample.work}\n${program.name}`;
        const entry = found.get(id) ?? { sample, name: program.name, values: [] };
        entry.values.push(sample.value);
        found.set(id, entry);
      }
    }
  }
  for (const { sample, name, values } of found.values()) {
    context.noteRounds(sample.work, name, sample.unit, values);
  }
}
