import { Argument, Command, type Option } from 'commander';
import type { Output } from '../terminal.ts';

const SCRIPTS: Readonly<Record<string, (commands: readonly Completed[]) => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
  powershell: powershellCompletion,
};

/** `hubgate completion`: prints a script with which a shell completes commands, options and choices. */
export function completionCommand(program: Command, output: Output): Command {
  return new Command('completion')
    .description('print a completion script, for instance: source <(hubgate completion bash)')
    .addArgument(new Argument('<shell>').choices(Object.keys(SCRIPTS)))
    .action((shell: string) => {
      const script = SCRIPTS[shell]?.(completedCommands(program));
      output.result(script?.trimEnd() ?? '');
    });
}

/** A command in a completion script. */
interface Completed {
  /** The words after `hubgate`: one, or two for a subcommand. */
  readonly words: readonly string[];
  readonly description: string;
  readonly options: readonly CompletedOption[];
  /** Words that may follow: its subcommands, or the choices of its argument. */
  readonly following: readonly string[];
}

interface CompletedOption {
  /** With its hyphens. */
  readonly name: string;
  readonly description: string;
  readonly value: 'none' | 'any' | readonly string[];
}

const HELP: CompletedOption = { name: '--help', description: 'show help', value: 'none' };

/** All commands of a program; subcommands follow their parents. */
function completedCommands(program: Command, before: readonly string[] = []): readonly Completed[] {
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

/** The commands that come directly after `hubgate`. */
function firstWords(commands: readonly Completed[]): readonly Completed[] {
  return commands.filter(({ words }) => words.length === 1);
}

/** Quotes a text for a POSIX shell or fish. */
function quoted(text: string): string {
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

/** A completion script for bash. If nothing else fits, it completes file names. */
function bashCompletion(commands: readonly Completed[]): string {
  // The longest first: `token inspect` begins with `token`.
  const longestFirst = commands.toSorted((a, b) => b.words.length - a.words.length);
  return `# hubgate completion for bash
_hubgate() {
	local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""
	case "\${COMP_WORDS[*]:1:COMP_CWORD-1} " in
${longestFirst.map(bashBranch).join('\n')}
	*) words="${names(firstWords(commands).flatMap(({ words }) => words))}" ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _hubgate hubgate
`;
}

function bashBranch({ words, options, following }: Completed): string {
  const all = [...following, ...options.map(({ name }) => name)];
  return `	"${words.join(' ')} "*)
		case "$previous" in
${options.flatMap(valuesOf).join('\n')}
		*) words="${names(all)}" ;;
		esac
		;;`;
}

function valuesOf({ name, value }: CompletedOption): string[] {
  if (value === 'none') return [];
  return [`\t\t${name}) words="${value === 'any' ? '' : names(value)}" ;;`];
}

function names(words: readonly string[]): string {
  return words.join(' ');
}

/** A completion script for zsh, to be sourced or put on `fpath` as `_hubgate`. */
function zshCompletion(commands: readonly Completed[]): string {
  const longestFirst = commands.toSorted((a, b) => b.words.length - a.words.length);
  return `#compdef hubgate
_hubgate() {
	local -a commands
	case "\${(j: :)words[2,CURRENT-1]} " in
${longestFirst.map(zshBranch).join('\n')}
	*)
		commands=(
${firstWords(commands)
  .map(({ words, description }) => `\t\t\t${quoted(`${words.join(' ')}:${description}`)}`)
  .join('\n')}
		)
		_describe command commands
		;;
	esac
}
compdef _hubgate hubgate
`;
}

function zshBranch({ words, options, following }: Completed): string {
  const first = following.length === 0 ? [] : [quoted(`1: :(${following.join(' ')})`)];
  const specs = [...options.map(zshOption), ...first, quoted('*:file:_files')];
  // _arguments takes the first word as the command.
  return `	"${words.join(' ')} "*)
		shift ${words.length} words
		(( CURRENT -= ${words.length} ))
		_arguments ${specs.join(' ')}
		;;`;
}

function zshOption({ name, description, value }: CompletedOption): string {
  const text = `[${description.replaceAll(/[[\]:\\]/g, ' ')}]`;
  if (value === 'none') return quoted(`${name}${text}`);
  // Any number of times, because many options can be repeated.
  return quoted(`*${name}=${text}: :${value === 'any' ? '_files' : `(${value.join(' ')})`}`);
}

function fishCompletion(commands: readonly Completed[]): string {
  return `# hubgate completion for fish
complete -c hubgate -n __fish_use_subcommand -f
${firstWords(commands)
  .map(
    ({ words, description }) =>
      `complete -c hubgate -n __fish_use_subcommand -a ${words.join(' ')} -d ${quoted(description)}`,
  )
  .join('\n')}
${commands.flatMap((command) => lines(command, commands)).join('\n')}
`;
}

function lines({ words, options, following }: Completed, all: readonly Completed[]): string[] {
  const condition = quoted(conditionOf(words, all));
  const begin = `complete -c hubgate -n ${condition}`;
  return [
    ...(following.length > 0 ? [`${begin} -f -a ${quoted(following.join(' '))}`] : []),
    ...options.map(({ name, description, value }) => {
      const option = `${begin} -l ${name.slice(2)} -d ${quoted(description)}`;
      if (value === 'none') return option;
      return value === 'any' ? `${option} -r` : `${option} -x -a ${quoted(value.join(' '))}`;
    }),
  ];
}

/** The condition for being in this command, but not in one of its subcommands. */
function conditionOf(words: readonly string[], all: readonly Completed[]): string {
  const below = all.filter(
    (other) => other.words.length > words.length && other.words[0] === words[0],
  );
  return [
    ...words.map((word) => `__fish_seen_subcommand_from ${word}`),
    ...below.map((other) => `not __fish_seen_subcommand_from ${other.words.at(-1) ?? ''}`),
  ].join('; and ');
}

/** A completion script for PowerShell 5.1 and later. */
function powershellCompletion(commands: readonly Completed[]): string {
  return `# hubgate completion for PowerShell: hubgate completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName hubgate -ScriptBlock {
  param($wordToComplete, $commandAst, $cursorPosition)
  $commands = @{
${commands.map(entry).join('\n')}
  }
  $first = @(${firstWords(commands)
    .map(({ words }) => word(words.join(' ')))
    .join(', ')})
  $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  if ($wordToComplete -ne '' -and $words.Count -gt 0) { $words = @($words | Select-Object -SkipLast 1) }
  $name = @($words | Where-Object { -not $_.StartsWith('-') } | Select-Object -First 2) -join ' '
  while ($name -ne '' -and -not $commands.ContainsKey($name)) {
    $name = if ($name.Contains(' ')) { $name.Split(' ')[0] } else { '' }
  }
  $last = if ($words.Count -gt 0) { $words[-1] } else { '' }
  $offered = if ($name -eq '') { $first }
    elseif ($last.StartsWith('--') -and $commands[$name].Values.ContainsKey($last)) { $commands[$name].Values[$last] }
    else { $commands[$name].Words }
  $offered | Where-Object { $_ -like "$wordToComplete*" } | ForEach-Object {
    [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
  }
}
`;
}

function entry({ words, options, following }: Completed): string {
  const offered = [...following, ...options.map(({ name }) => name)].map(word).join(', ');
  const values = options
    .flatMap(({ name, value }) =>
      typeof value === 'string' ? [] : [`${word(name)} = @(${value.map(word).join(', ')})`],
    )
    .join('; ');
  return `    ${word(words.join(' '))} = @{ Words = @(${offered}); Values = @{ ${values} } }`;
}

/** Quotes a text for PowerShell. */
function word(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
