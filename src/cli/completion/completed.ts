import type { Argument, Command, Option } from 'commander';

/** A command as a shell completes it. */
export interface Completed {
  /** What is typed after `hubgate`: one word, or two for a command of a command. */
  readonly words: readonly string[];
  readonly description: string;
  readonly options: readonly CompletedOption[];
  /** Words that may follow: its own commands, or the choices of its argument. */
  readonly following: readonly string[];
}

export interface CompletedOption {
  /** With its hyphens. */
  readonly name: string;
  readonly description: string;
  readonly value: 'none' | 'any' | readonly string[];
}

const HELP: CompletedOption = { name: '--help', description: 'show help', value: 'none' };

/** All commands of a program, those of commands after their own. */
export function completedCommands(
  program: Command,
  before: readonly string[] = [],
): readonly Completed[] {
  return program.commands.flatMap((command) => {
    const words = [...before, command.name()];
    return [
      {
        words,
        description: command.description(),
        options: [HELP, ...command.options.flatMap(completedOption)],
        following: [
          ...command.commands.map((one) => one.name()),
          ...command.registeredArguments.flatMap(choices),
        ],
      },
      ...completedCommands(command, words),
    ];
  });
}

/** The commands that come first after `hubgate`. */
export function firstWords(commands: readonly Completed[]): readonly Completed[] {
  return commands.filter(({ words }) => words.length === 1);
}

/** A word of a POSIX shell or of fish that means only itself. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function completedOption({ long, description, required, optional, argChoices }: Option) {
  if (long === undefined || long === null || long === HELP.name) return [];
  const value: CompletedOption['value'] = required || optional ? (argChoices ?? 'any') : 'none';
  return [{ name: long, description, value }];
}

function choices({ argChoices }: Argument): readonly string[] {
  return argChoices ?? [];
}
