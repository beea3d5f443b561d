// The program is bundled, because a start that looked up 500 files took twice as long. Each command
// is a chunk that is loaded when it is called.

import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problem.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { endProcess } from '../kernel/process-end.ts';
import { completionCommand } from './commands/completion.ts';
import { describeFurther } from './help.ts';
import { EXIT, type Output, printable, processOutput } from './terminal.ts';
import { packageVersion } from './commands/version.ts';

/** Runs the command in `args`, and sets the exit code. */
export async function runProgram(args: readonly string[]): Promise<void> {
  const program = new Command('hubgate')
    .description('a gateway with a publish/subscribe hub in front of an existing web site')
    .version(packageVersion());
  for (const command of await commandsFor(args, processOutput)) program.addCommand(command);
  program.addCommand(completionCommand(program, processOutput));
  for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
    command.exitOverride().showHelpAfterError('(see --help)');
    describeFurther(command);
  }
  // A reader that has seen enough (`hubgate subscribe | head -1`) is not an error.
  process.stdout.on('error', (error) => {
    void endProcess(codeOf(error) === 'EPIPE' ? EXIT.ok : EXIT.failed);
  });
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    process.exitCode = report(error);
  }
}

/** Prints what went wrong, and returns the exit code. */
function report(error: unknown): number {
  // commander has already printed the help or the mistake.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const said = error instanceof ConfigError ? error.message : `hubgate: ${messageOf(error)}`;
  process.stderr.write(`${printable(said)}\n`);
  return codeOf(error) === 'invalid-argument' ? EXIT.usage : EXIT.failed;
}

/**
 * All commands of `hubgate`, in the order of the help. A command is loaded when it is called, and its action
 * loads what only the action needs. So `hubgate version` reads a handful of files.
 */
const COMMANDS = {
  init: async (output) => (await import('./commands/init.ts')).initCommand(output),
  run: async () => (await import('./commands/run.ts')).runCommand(),
  validate: async (output) => (await import('./commands/validate.ts')).validateCommand(output),
  adapt: async (output) => (await import('./commands/adapt.ts')).adaptCommand(output),
  fmt: async (output) => (await import('./commands/fmt.ts')).fmtCommand(output),
  reload: async (output) => (await import('./commands/reload.ts')).reloadCommand(output),
  stop: async (output) => (await import('./commands/stop.ts')).stopCommand(output),
  top: async (output) => (await import('./commands/top.ts')).topCommand(output),
  cache: async (output) => (await import('./commands/cache.ts')).cacheCommand(output),
  'reverse-proxy': async (output) =>
    (await import('./commands/reverse-proxy.ts')).reverseProxyCommand(output),
  token: async (output) => (await import('./commands/token.ts')).tokenCommand(output),
  'hash-password': async (output) =>
    (await import('./commands/hash-password.ts')).hashPasswordCommand(output),
  publish: async (output) => (await import('./commands/publish.ts')).publishCommand(output),
  subscribe: async (output) => (await import('./commands/subscribe.ts')).subscribeCommand(output),
  trust: async (output) => (await import('./commands/trust.ts')).trustCommand(output),
  untrust: async (output) => (await import('./commands/trust.ts')).untrustCommand(output),
  history: async (output) => (await import('./commands/history.ts')).historyCommand(output),
  outbox: async (output) => (await import('./commands/outbox.ts')).outboxCommand(output),
  'list-certificates': async (output) =>
    (await import('./commands/list-certificates.ts')).listCertificatesCommand(output),
  environ: async (output) => (await import('./commands/environ.ts')).environCommand(output),
  version: async (output) => (await import('./commands/version.ts')).versionCommand(output),
} satisfies Record<string, (output: Output) => Promise<Command>>;

/**
 * The command that these arguments call. Returns all commands if that is unclear: for help, or after a
 * mistake.
 */
async function commandsFor(args: readonly string[], output: Output): Promise<Command[]> {
  const [word = ''] = args;
  const named = Object.entries(COMMANDS).filter(([name]) => name === word);
  const wanted = named.length > 0 ? named : Object.entries(COMMANDS);
  return Promise.all(wanted.map(([, load]) => load(output)));
}
