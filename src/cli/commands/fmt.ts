import { Command } from 'commander';
import { diffArrays } from 'diff';
import { formatHubfile, hubfileText } from '../../hubfile/format.ts';
import { languageOf } from '../../hubfile/load.ts';
import { HubgateError } from '../../kernel/error.ts';
import { EXIT, type Output } from '../terminal.ts';
import { readInput } from '../config-source.ts';
import { replaceContent } from '../new-file.ts';

/** Most lines that are removed and added between two texts. Beyond it, everything counts as changed. */
const MAX_EDITS = 2_000;

interface FmtFlags {
  readonly write?: true;
  readonly diff?: true;
  readonly check?: true;
}

/** `hubgate fmt`: prints a Hubfile in its canonical layout. */
export function fmtCommand(output: Output): Command {
  return new Command('fmt')
    .description('print a Hubfile in its canonical layout')
    .argument('[file]', 'the Hubfile; "-" reads standard input', 'Hubfile')
    .option('--write', 'write the result to the file instead')
    .option('--diff', 'print the differences instead')
    .option('--check', 'print nothing; exit with 1 if something would change')
    .action((file: string, flags: FmtFlags) => {
      if (Object.keys(flags).length > 1) {
        throw new HubgateError('invalid-argument', 'Choose one of --write, --diff and --check');
      }
      if (flags.write === true && file === '-') {
        throw new HubgateError('invalid-argument', '--write needs a file');
      }
      if (languageOf(file) !== 'hubfile') {
        throw new HubgateError(
          'invalid-argument',
          `${file} is not a Hubfile; fmt formats only Hubfiles`,
        );
      }
      format(file, flags, output);
    });
}

function format(file: string, flags: FmtFlags, output: Output): void {
  const name = file === '-' ? '(standard input)' : file;
  const text = hubfileText(readInput(file), name);
  const formatted = formatHubfile(text, name);
  const changes = formatted !== text;
  if (flags.check === true) {
    if (!changes) return;
    output.note(`${file} is not formatted; run hubgate fmt --write ${file}`);
    process.exitCode = EXIT.failed;
  } else if (flags.diff === true) {
    if (changes) output.result(lineDiff(text, formatted));
  } else if (flags.write === true) {
    if (changes) replaceContent(file, formatted);
  } else {
    output.result(formatted.replace(/\n$/, ''));
  }
}

/**
 * All lines of two texts, each with a prefix: ` ` if both have it, `-` if only the first has it, `+` if only
 * the second has it.
 */
function lineDiff(before: string, after: string): string {
  const [old, young] = [before.split('\n'), after.split('\n')];
  const changes = diffArrays(old, young, { maxEditLength: MAX_EDITS }) ?? [
    { removed: true, added: false, value: old },
    { removed: false, added: true, value: young },
  ];
  return changes
    .flatMap(({ removed, added, value }) => {
      const mark = removed ? '-' : added ? '+' : ' ';
      return value.map((line) => mark + line);
    })
    .join('\n');
}
