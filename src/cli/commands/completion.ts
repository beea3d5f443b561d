import { Argument, Command, type Option } from 'commander';
import type { Output } from '../output.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

type Shell = (typeof SHELLS)[number];

/** A command as a shell completes it: `token inspect` is one of its own. */
interface Completed {
  readonly path: string;
  readonly description: string;
  readonly options: readonly Option[];
}

/** `hubgate completion`: a script that teaches a shell the commands and their options. */
export function completionCommand(program: Command, output: Output): Command {
  return new Command('completion')
    .description('print a completion script, for instance: source <(hubgate completion bash)')
    .addArgument(new Argument('<shell>').choices(SHELLS))
    .action((shell: Shell) => {
      const commands = completedCommands(program, '');
      output.result(SCRIPTS[shell](commands).trimEnd());
    });
}

const SCRIPTS: Readonly<Record<Shell, (commands: readonly Completed[]) => string>> = {
  bash: (commands) => `# hubgate completion for bash
_hubgate() {
	local current="\${COMP_WORDS[COMP_CWORD]}" words
	case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${nested(commands)
  .map(({ path, options }) => `\t"${path}") words="${longNames(options)}" ;;`)
  .join('\n')}
	*)
		case "$([ "$COMP_CWORD" -gt 1 ] && echo "\${COMP_WORDS[1]}")" in
${topLevel(commands)
  .map(
    ({ path, options }) => `\t\t${path}) words="${below(commands, path)} ${longNames(options)}" ;;`,
  )
  .join('\n')}
		*) words="${topLevel(commands)
      .map(({ path }) => path)
      .join(' ')}" ;;
		esac
		;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _hubgate hubgate
`,
  zsh: (commands) => `#compdef hubgate
_hubgate() {
	if (( CURRENT == 2 )); then
		local -a commands=(
${topLevel(commands)
  .map(({ path, description }) => `\t\t${quoted(`${path}:${description}`)}`)
  .join('\n')}
		)
		_describe command commands
		return
	fi
	case "$words[2]" in
${topLevel(commands)
  .map(
    ({ path, options }) =>
      `\t${path}) _arguments ${[...options.map(zshOption), "'*:file:_files'"].join(' ')} ;;`,
  )
  .join('\n')}
	esac
}
compdef _hubgate hubgate
`,
  fish: (commands) => `# hubgate completion for fish
${topLevel(commands)
  .map(
    ({ path, description }) =>
      `complete -c hubgate -n __fish_use_subcommand -a ${path} -d ${quoted(description)}`,
  )
  .join('\n')}
${commands.flatMap(fishOptions).join('\n')}
`,
};

function completedCommands(command: Command, prefix: string): Completed[] {
  return command.commands.flatMap((child) => {
    const path = `${prefix}${child.name()}`;
    const { options } = child;
    return [
      { path, description: child.description(), options },
      ...completedCommands(child, `${path} `),
    ];
  });
}

function topLevel(commands: readonly Completed[]): Completed[] {
  return commands.filter(({ path }) => !path.includes(' '));
}

function nested(commands: readonly Completed[]): Completed[] {
  return commands.filter(({ path }) => path.includes(' '));
}

function below(commands: readonly Completed[], parent: string): string {
  return nested(commands)
    .filter(({ path }) => path.startsWith(`${parent} `))
    .map(({ path }) => path.slice(parent.length + 1))
    .join(' ');
}

function longNames(options: readonly Option[]): string {
  return ['--help', ...options.flatMap(({ long }) => long ?? [])].join(' ');
}

function zshOption({ long, description, required }: Option): string {
  const text = description.replaceAll(/[[\]:]/g, ' ');
  return quoted(`*${long ?? ''}[${text}]${required ? ':value:_files' : ''}`);
}

function fishOptions({ path, options }: Completed): string[] {
  const condition = path
    .split(' ')
    .map((word) => `__fish_seen_subcommand_from ${word}`)
    .join('; and ');
  return options.flatMap(({ long, description, required }) => {
    if (long === undefined || long === null) return [];
    const needs = required ? ' -r' : '';
    return [
      `complete -c hubgate -n ${quoted(condition)} -l ${long.slice(2)}${needs} -d ${quoted(description)}`,
    ];
  });
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
