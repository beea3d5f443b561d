import { createInterface } from 'node:readline';
import { HubgateError } from '../kernel/error.ts';
import { Writable } from 'node:stream';

/** The output of a command: results to standard output, everything else to standard error. */
export interface Output {
  result(text: string): void;
  note(text: string): void;
}

export const processOutput: Output = {
  result: (text) => void process.stdout.write(`${text}\n`),
  note: (text) => void process.stderr.write(`${printable(text)}\n`),
};

/** Exit codes of every command; `partly` is for an incomplete result. */
export const EXIT = { ok: 0, failed: 1, forced: 2, partly: 3, usage: 64 } as const;

/** Asks a question. An empty answer selects the default. */
export type Ask = (question: string, standard: string) => Promise<string>;

/**
 * Holds a dialogue with the user at the terminal. Lines that are typed before a question is shown answer it
 * too. Standard output is left to results.
 *
 * @throws {HubgateError} `no-answer` if the input ends instead
 */
export async function onTerminal<Result>(talk: (ask: Ask) => Promise<Result>): Promise<Result> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  // It keeps lines that arrive between two questions.
  const typed = lines[Symbol.asyncIterator]();
  try {
    return await talk(async (question, standard) => {
      lines.setPrompt(`${question} [${standard}]: `);
      lines.prompt();
      const { done, value } = await typed.next();
      if (done === true) {
        throw new HubgateError('no-answer', 'You gave no answer, so nothing is written');
      }
      const answer = value.trim();
      return answer === '' ? standard : answer;
    });
  } finally {
    lines.close();
  }
}

/**
 * Reads one line of standard input, without its line end. On a terminal it shows a prompt and hides the
 * input. Returns null if the input ends before a line.
 */
export async function readSecret(prompt: string): Promise<string | null> {
  const { stdin, stderr } = process;
  if (stdin.isTTY) stderr.write(prompt);
  // On a terminal, readline writes the typed text to its output. This output discards it.
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: stdin, output: silent, terminal: stdin.isTTY });
  try {
    return await new Promise<string | null>((resolve) => {
      lines.once('line', resolve);
      lines.once('SIGINT', () => resolve(null));
      lines.once('close', () => resolve(null));
    });
  } finally {
    lines.close();
    if (stdin.isTTY) stderr.write('\n');
  }
}

/** Shows progress on a terminal; nothing is written to a file or a pipe. */
export interface Progress {
  at(count: number): void;
  end(): void;
}

/** @param total null if it is not known */
export function createProgress(what: string, total: number | null): Progress {
  const { stderr } = process;
  if (!stderr.isTTY) return { at() {}, end() {} };
  const of = total === null ? '' : ` of ${total}`;
  return {
    at: (count) => void stderr.write(`\r${count}${of} ${what}`),
    end: () => void stderr.write('\r\u001b[K'),
  };
}

/** Control characters of both sets (C0, DEL, C1), except tab and line end. */
const CONTROLS = /[^\P{Cc}\t\n]/gu;

/**
 * Text from another source, for a terminal. Control characters, some of which terminals interpret as
 * commands, become `\u009b`, for example. JSON keeps its meaning.
 */
export function printable(text: string): string {
  return text.replace(
    CONTROLS,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** For example `1 update` or `2 updates`. */
export function counted(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
