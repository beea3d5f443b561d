import { Argument, Command } from 'commander';
import {
  bashCompletion,
  type Completed,
  completedCommands,
  fishCompletion,
  powershellCompletion,
  zshCompletion,
} from '../shell-completion.ts';
import type { Output } from '../terminal.ts';

const SCRIPTS: Readonly<Record<string, (commands: readonly Completed[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
  powershell: powershellCompletion,
};

/** `hubgate completion`: a script that teaches a shell the commands, their options and choices. */
export function completionCommand(program: Command, output: Output): Command {
  return new Command('completion')
    .description('print a completion script, for instance: source <(hubgate completion bash)')
    .addArgument(new Argument('<shell>').choices(Object.keys(SCRIPTS)))
    .action((shell: string) => {
      const script = SCRIPTS[shell]?.(completedCommands(program));
      output.result(script?.trimEnd() ?? '');
    });
}
