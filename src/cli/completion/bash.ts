import { type Completed, type CompletedOption, firstWords } from './completed.ts';

/** A completion script for bash; file names complete where nothing else does. */
export function bashCompletion(commands: readonly Completed[]): string {
  // The longest first: `token inspect` begins with `token`.
  const longestFirst = commands.toSorted((a, b) => b.words.length - a.words.length);
  return `# hubgate completion for bash
_hubgate() {
	local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""
	case "\${COMP_WORDS[*]:1:COMP_CWORD-1} " in
${longestFirst.map(branch).join('\n')}
	*) words="${names(firstWords(commands).flatMap(({ words }) => words))}" ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _hubgate hubgate
`;
}

function branch({ words, options, following }: Completed): string {
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
