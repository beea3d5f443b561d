import { createInterface } from 'node:readline/promises';
import { HubgateError } from '../kernel/error.ts';

/** Asks; an empty answer is the standard one. */
export type Ask = (question: string, standard: string) => Promise<string>;

/**
 * Talks with whoever sits at the terminal. Lines that are typed before their question is shown answer
 * it too. Standard output is left to results.
 *
 * @throws {HubgateError} `no-answer` where the input ends instead
 */
export async function onTerminal<Result>(talk: (ask: Ask) => Promise<Result>): Promise<Result> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  // It keeps what comes between two questions.
  const typed = lines[Symbol.asyncIterator]();
  try {
    return await talk(async (question, standard) => {
      lines.setPrompt(`${question} [${standard}]: `);
      lines.prompt();
      const { done, value } = await typed.next();
      if (done === true) {
        throw new HubgateError('no-answer', 'Nothing was answered, and nothing is written');
      }
      const answer = value.trim();
      return answer === '' ? standard : answer;
    });
  } finally {
    lines.close();
  }
}
