import { type ChildProcess, spawn } from 'node:child_process';
import type { ExecConfig } from '../../../config/dns-challenge.ts';
import { LONGEST_TIMER_MS, systemClock } from '../../../kernel/clock.ts';
import { messageOf } from '../../../kernel/error.ts';
import { withoutValues } from '../../../kernel/secret.ts';
import { AcmeError } from '../acme-error.ts';
import type { ChallengeRecord, DnsProvider } from './services/provider.ts';

/** Bytes that are kept of a program's output; an error shows the beginning of it. */
const MAX_OUTPUT = 4096;
/** Time to read the rest of the output after the program has ended. */
const LAST_WORDS_MS = 1000;
/** Variables of the gateway's own environment that a program inherits. None of them contains keys. */
const INHERITED = ['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR', 'SystemRoot'];

/** Runs a program for each record, without a shell. */
export function execProvider(config: ExecConfig): DnsProvider {
  const run = async (
    action: 'present' | 'cleanup',
    record: ChallengeRecord,
    signal: AbortSignal,
  ): Promise<void> => {
    const limit = AbortSignal.timeout(Math.min(config.timeoutMs, LONGEST_TIMER_MS));
    const deadline = AbortSignal.any([signal, limit]);
    const { code, output } = await runProgram(
      config,
      environment(action, record, config),
      deadline,
    );
    if (code === 0) return;
    signal.throwIfAborted();
    const ended = typeof code === 'number' ? `ended with ${code}` : code;
    const why = deadline.aborted ? `did not end within ${config.timeoutMs} ms` : ended;
    const said = withoutSecrets(output, config).trim();
    const message = `${config.program} ${action}: it ${why}${said === '' ? '' : `, and said ${said}`}`;
    throw new AcmeError('acme-dns-failed', message);
  };
  return {
    present: (record, signal) => run('present', record, signal),
    cleanup: (record, signal) => run('cleanup', record, signal),
  };
}

function environment(
  action: string,
  { name, value, ttlSeconds }: ChallengeRecord,
  { environment: own }: ExecConfig,
): NodeJS.ProcessEnv {
  const inherited = INHERITED.flatMap((each) =>
    process.env[each] === undefined ? [] : [[each, process.env[each]]],
  );
  return {
    ...Object.fromEntries(inherited),
    ...Object.fromEntries(own.map((each) => [each.name, each.value.reveal()])),
    HUBGATE_DNS_ACTION: action,
    HUBGATE_DNS_NAME: name,
    HUBGATE_DNS_VALUE: value,
    HUBGATE_DNS_TTL: String(ttlSeconds),
  };
}

interface Outcome {
  /** Exit status, or the reason why there is none. */
  readonly code: number | string;
  readonly output: string;
}

function runProgram(
  { program, args }: ExecConfig,
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<Outcome> {
  return new Promise((resolve) => {
    // A process group of its own, so that the program's children end with it.
    const child: ChildProcess = spawn(program, args, {
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    // There are none if the process has no descriptor left; the event `error` says so.
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (chunk: string) => {
        output = (output + chunk).slice(0, MAX_OUTPUT);
      });
    }
    const stop = (): void => kill(child);
    let code: number | string = 'cannot be run';
    signal.addEventListener('abort', stop, { once: true });
    child.once('error', (error) => {
      code = `cannot be run: ${messageOf(error)}`;
    });
    child.once('exit', (status, killed) => {
      code = status ?? `was ended by ${killed}`;
      // Processes that it has left in the background may hold its output open forever.
      const cancel = systemClock.after(LAST_WORDS_MS, () => {
        child.stdout?.destroy();
        child.stderr?.destroy();
      });
      child.once('close', cancel);
    });
    child.once('close', () => {
      signal.removeEventListener('abort', stop);
      resolve({ code, output });
    });
    if (signal.aborted) stop();
  });
}

function kill(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // The program has already ended.
  }
}

function withoutSecrets(output: string, { environment: own }: ExecConfig): string {
  const values = own.map(({ value }) => value.reveal());
  return withoutValues(output, values);
}
