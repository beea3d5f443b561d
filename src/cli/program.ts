import { Command, CommanderError } from 'commander';
import { ConfigError } from '../config/problem.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { endProcess } from '../kernel/process-end.ts';
import { commandsFor } from './commands.ts';
import { completionCommand } from './commands/completion.ts';
import { describeFurther } from './help.ts';
import { EXIT, processOutput } from './output.ts';
import { printable } from './printable.ts';
import { packageVersion } from './package-version.ts';

/** Runs the command that `args` name, and sets the exit code. */
export async function runProgram(args: readonly string[]): Promise<void> {
  const program = new Command('hubgate')
    .description('a gateway with a publish/subscribe hub in front of an existing web site')
    .version(packageVersion());
  for (const command of await commandsFor(args, processOutput)) program.addCommand(command);
  program.addCommand(completionCommand(program, processOutput));
  for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
    command.exitOverride().showHelpAfterError('(--help tells more)');
    describeFurther(command);
  }
  // A reader that has seen enough (`hubgate subscribe | head -1`) is no fault.
  process.stdout.on('error', (error) => {
    void endProcess(codeOf(error) === 'EPIPE' ? EXIT.ok : EXIT.failed);
  });
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    process.exitCode = tell(error);
  }
}

/** Says what went wrong, and returns the exit code. */
function tell(error: unknown): number {
  // commander has printed the help or the mistake already.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const said = error instanceof ConfigError ? error.message : `hubgate: ${messageOf(error)}`;
  process.stderr.write(`${printable(said)}\n`);
  return codeOf(error) === 'invalid-argument' ? EXIT.usage : EXIT.failed;
}
