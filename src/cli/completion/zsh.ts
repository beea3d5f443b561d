import { type Completed, type CompletedOption, firstWords, quoted } from './completed.ts';

/** A completion script for zsh, to be sourced or put on `fpath` as `_hubgate`. */
export function zshCompletion(commands: readonly Completed[]): string {
  const longestFirst = commands.toSorted((a, b) => b.words.length - a.words.length);
  return `#compdef hubgate
_hubgate() {
	local -a commands
	case "\${(j: :)words[2,CURRENT-1]} " in
${longestFirst.map(branch).join('\n')}
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

function branch({ words, options, following }: Completed): string {
  const first = following.length === 0 ? [] : [quoted(`1: :(${following.join(' ')})`)];
  const specs = [...options.map(option), ...first, quoted('*:file:_files')];
  // _arguments takes the first word for the command.
  return `	"${words.join(' ')} "*)
		shift ${words.length} words
		(( CURRENT -= ${words.length} ))
		_arguments ${specs.join(' ')}
		;;`;
}

function option({ name, description, value }: CompletedOption): string {
  const text = `[${description.replaceAll(/[[\]:\\]/g, ' ')}]`;
  if (value === 'none') return quoted(`${name}${text}`);
  // Given any number of times: many options may be repeated.
  return quoted(`*${name}=${text}: :${value === 'any' ? '_files' : `(${value.join(' ')})`}`);
}
