import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import type { TestContext } from 'node:test';
import { launchChromium } from '../../support/chromium.ts';

/** A pattern and the topics to try it on, all relative to `base`. */
export interface Question {
  readonly pattern: string;
  readonly topics: readonly string[];
  readonly base: string;
}

/** One verdict for each topic, or null when the pattern does not compile. */
export type Verdicts = readonly boolean[] | null;

const ANSWER = `
let text = '';
process.stdin.setEncoding('utf8').on('data', (part) => { text += part; }).on('end', () => {
  const answers = JSON.parse(text).map(({ pattern, topics, base }) => {
    try {
      const compiled = new URLPattern(pattern, base);
      return topics.map((topic) => compiled.test(topic, base));
    } catch {
      return null;
    }
  });
  process.stdout.write(JSON.stringify(answers));
});`;

/** A Node with the engine's own `URLPattern`, or null when none can be had here. */
export function findNativeNode(): string | null {
  try {
    const options = { cwd: tmpdir(), encoding: 'utf8', stdio: 'pipe', timeout: 120_000 } as const;
    return execFileSync('npx', ['-y', '-p', 'node@24', 'which', 'node'], options).trim();
  } catch {
    return null;
  }
}

/** Asks the engine all questions at once. */
export function askNative(node: string, questions: readonly Question[]): readonly Verdicts[] {
  const answers = execFileSync(node, ['-e', ANSWER], {
    input: JSON.stringify(questions),
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  // The script above writes exactly this.
  return JSON.parse(answers) as readonly Verdicts[];
}

/** Asks Chromium's engine all questions at once. */
export async function askChromium(
  test: TestContext,
  executablePath: string,
  questions: readonly Question[],
): Promise<readonly Verdicts[]> {
  const browser = await launchChromium(test, executablePath, null);
  const page = await browser.newPage();
  return page.evaluate((asked) => {
    interface Engine {
      test(topic: string, base: string): boolean;
    }
    // The types of this project are Node's, which at this version has no URLPattern.
    const { URLPattern } = globalThis as unknown as {
      URLPattern: new (pattern: string, base: string) => Engine;
    };
    return asked.map(({ pattern, topics, base }) => {
      try {
        const compiled = new URLPattern(pattern, base);
        return topics.map((topic) => compiled.test(topic, base));
      } catch {
        return null;
      }
    });
  }, questions as Question[]);
}
