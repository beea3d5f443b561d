import { type Completed, firstWords, quoted } from './completed.ts';

/** A completion script for fish. */
export function fishCompletion(commands: readonly Completed[]): string {
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

/** In this command, and not in a command of it. */
function conditionOf(words: readonly string[], all: readonly Completed[]): string {
  const below = all.filter(
    (other) => other.words.length > words.length && other.words[0] === words[0],
  );
  return [
    ...words.map((word) => `__fish_seen_subcommand_from ${word}`),
    ...below.map((other) => `not __fish_seen_subcommand_from ${other.words.at(-1) ?? ''}`),
  ].join('; and ');
}
