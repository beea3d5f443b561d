import { printable } from './printable.ts';

/** Where a command speaks: results to standard output, everything else to standard error. */
export interface Output {
  result(text: string): void;
  note(text: string): void;
}

export const processOutput: Output = {
  result: (text) => void process.stdout.write(`${text}\n`),
  note: (text) => void process.stderr.write(`${printable(text)}\n`),
};

/** Exit codes of every command; `partly` is of a result in which something is missing. */
export const EXIT = { ok: 0, failed: 1, forced: 2, partly: 3, usage: 64 } as const;
