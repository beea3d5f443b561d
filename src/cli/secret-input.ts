import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';

/**
 * One line of standard input, without its end. On a terminal it is asked for and not shown; null when
 * the input ends before it.
 */
export async function readSecret(prompt: string): Promise<string | null> {
  const { stdin, stderr } = process;
  if (stdin.isTTY) stderr.write(prompt);
  // On a terminal readline writes what is typed to its output: this one shows nothing.
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
