import { createInterface } from 'node:readline/promises';
import { HubgateError } from '../kernel/error.ts';

/** Asks; an empty answer is the standard one. */
export type Ask = (question: string, standard: string) => Promise<string>;

/**
 * Talks with who sits at the terminal. Standard output is left to results.
 *
 * @throws {HubgateError} `no-answer` where the input ends instead
 */
export async function onTerminal<Result>(talk: (ask: Ask) => Promise<Result>): Promise<Result> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  const ended = new AbortController();
  const { signal } = ended;
  lines.once('close', () => ended.abort());
  try {
    return await talk(async (question, standard) => {
      const answer = (await lines.question(`${question} [${standard}]: `, { signal })).trim();
      return answer === '' ? standard : answer;
    });
  } catch (cause) {
    if (!signal.aborted) throw cause;
    throw new HubgateError('no-answer', 'Nothing was answered, and nothing is written', { cause });
  } finally {
    lines.close();
  }
}
