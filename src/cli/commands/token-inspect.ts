import { readFileSync } from 'node:fs';
import { Command, Option } from 'commander';
import type { Check } from '../../auth/inspect.ts';
import { withConfigSource } from '../config-source.ts';
import { EXIT, type Output } from '../output.ts';
import { printable } from '../printable.ts';
import type { InspectFlags } from '../token-inspection.ts';

/** `hubgate token inspect`: which check of the hub a token fails and how to mend it, and what it grants. */
export function inspectCommand(output: Output): Command {
  return withConfigSource(new Command('inspect'))
    .description('explain what a hub of a configuration would make of a token')
    .argument('[token]', 'the token; "-" or nothing reads standard input', '-')
    .option('--url <url>', 'URL by which the hub is contacted')
    .addOption(
      new Option('--action <action>', 'what the token is for')
        .choices(['publish', 'subscribe'])
        .default('subscribe'),
    )
    .option('--topic <topic>', 'also check that the grants cover this topic')
    .option('--json', 'print it as JSON')
    .action(async (token: string, _flags: unknown, command: Command) => {
      // Of the options that `token` has too, commander gives the parent's; these are ours.
      const flags = command.opts<InspectFlags>();
      const text = token === '-' ? readFileSync(0, 'utf8').trim() : token;
      const { inspect } = await import('../token-inspection.ts');
      const { checks, granted } = await inspect(text, flags);
      const failed = checks.filter(({ passed }) => !passed);
      if (failed.length > 0) process.exitCode = EXIT.failed;
      if (command.opts<{ readonly json?: true }>().json === true) {
        output.result(
          printable(JSON.stringify({ accepted: failed.length === 0, checks, granted })),
        );
        return;
      }
      for (const check of checks) output.result(printable(describe(check)));
      for (const line of granted) output.result(printable(line));
      output.result(
        failed.length === 0
          ? 'The hub accepts this token.'
          : `The hub refuses this token: ${failed.map(({ check }) => check).join(', ')}.`,
      );
    });
}

function describe({ check, passed, expected, found, cure }: Check): string {
  if (passed) return `ok    ${check}: ${found}`;
  return `FAIL  ${check}: expected ${expected}; found ${found}\n      ${cure}`;
}
