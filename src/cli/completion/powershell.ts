import { type Completed, firstWords } from './completed.ts';

/** A completion script for PowerShell 5.1 and later. */
export function powershellCompletion(commands: readonly Completed[]): string {
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

/** A word that means only itself. */
function word(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
