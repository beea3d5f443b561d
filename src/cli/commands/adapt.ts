import { Command, Option } from 'commander';
import { stringify } from 'yaml';
import { encodeConfig } from '../../config/encode.ts';
import { describeProblem } from '../../config/problem.ts';
import { type ConfigSource, environmentOf, withConfigSource } from '../config-source.ts';
import type { Output } from '../output.ts';
import { readWritten } from '../read-config.ts';

interface AdaptFlags extends ConfigSource {
  readonly to: 'json' | 'yaml';
  readonly pretty?: true;
  readonly showSecrets?: true;
}

/** `hubgate adapt`: a configuration in another notation. What it prints means the same. */
export function adaptCommand(output: Output): Command {
  return withConfigSource(new Command('adapt'))
    .description('print a configuration as JSON or YAML, without what is as the defaults have it')
    .addOption(new Option('--to <notation>', 'notation').choices(['json', 'yaml']).default('json'))
    .option('--pretty', 'indent JSON')
    .option('--show-secrets', 'print secrets in clear instead of [redacted]')
    .action((flags: AdaptFlags) => {
      const { config, warnings, fromEnvironment } = readWritten(flags, environmentOf(flags));
      for (const warning of warnings) output.note(describeProblem(warning));
      const showSecrets = flags.showSecrets === true;
      const text = print(
        encodeConfig(config, { showSecrets, brief: true, fromEnvironment }),
        flags,
      );
      output.result(text);
      if (text.includes('[redacted]')) {
        output.note('Secrets are left out, so this cannot be run; --show-secrets prints them.');
      }
    });
}

function print(data: unknown, { to, pretty }: AdaptFlags): string {
  if (to === 'yaml') return stringify(data).trimEnd();
  return JSON.stringify(data, null, pretty === true ? 2 : 0);
}
