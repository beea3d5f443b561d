import { Command, Option } from 'commander';
import { stringify } from 'yaml';
import { directiveTable, registry } from '../../directives/registry.ts';
import { encodeConfig } from '../../config/serialize.ts';
import { describeProblem } from '../../config/problem.ts';
import { HubgateError } from '../../kernel/error.ts';
import { REDACTED } from '../../kernel/secret.ts';
import { type ConfigSource, environmentOf, withConfigSource, readInput } from '../config-source.ts';
import { writeNew } from '../new-file.ts';
import { EXIT, type Output } from '../terminal.ts';
import { problemsIn, readWritten } from '../read-config.ts';
import { adaptCaddyfile, type AdaptedCaddyfile } from '../../hubfile/caddyfile.ts';
import { hubfileText } from '../../hubfile/format.ts';
import { diskIo } from '../../hubfile/disk.ts';
import type { Environment } from '../../hubfile/source.ts';

type Notation = 'json' | 'yaml';

interface AdaptFlags extends Omit<ConfigSource, 'config' | 'adapter'> {
  readonly config?: string;
  readonly adapter?: ConfigSource['adapter'] | 'caddyfile';
  readonly to?: Notation;
  readonly output?: string;
  readonly pretty?: true;
  readonly showSecrets?: true;
}

const DESCRIPTION =
  'print a configuration as JSON or YAML, without default values; or a Caddyfile as a Hubfile';

/** `hubgate adapt`: prints a configuration in another notation, with the same meaning. */
export function adaptCommand(output: Output): Command {
  const adapters = ['hubfile', 'yaml', 'json', 'caddyfile'];
  return withConfigSource(new Command('adapt'), { adapters, standard: null })
    .description(DESCRIPTION)
    .addOption(
      new Option(
        '--to <notation>',
        'format of the output (default: json); a Caddyfile becomes a Hubfile',
      ).choices(['json', 'yaml']),
    )
    .option('--output <file>', 'write to a new file instead of standard output')
    .option('--pretty', 'indent JSON')
    .option('--show-secrets', 'print secrets instead of [redacted]')
    .action(async (flags: AdaptFlags) => {
      const text = flags.adapter === 'caddyfile' ? ofCaddyfile(flags, output) : data(flags, output);
      if (flags.output === undefined) output.result(text);
      else await writeNew(flags.output, `${text}\n`);
    });
}

function ofCaddyfile({ to, ...flags }: AdaptFlags, output: Output): string {
  if (to !== undefined) {
    const message = 'A Caddyfile becomes a Hubfile; then adapt the Hubfile to JSON or YAML';
    throw new HubgateError('invalid-argument', message);
  }
  const { config = 'Caddyfile' } = flags;
  const { text, leftOut, notes } = adaptedCaddyfile(config, environmentOf(flags));
  for (const problem of notes) output.note(describeProblem(problem));
  for (const problem of leftOut) output.note(describeProblem(problem, 'left out'));
  if (leftOut.length > 0) {
    const what = leftOut.length === 1 ? '1 item is' : `${leftOut.length} items are`;
    const marked = 'marked by a comment in the Hubfile, as are lines without effect';
    output.note(`${what} left out and ${marked}; see docs/from-caddy.md.`);
    process.exitCode = EXIT.partly;
  }
  return text.trimEnd();
}

function data({ adapter, config = 'Hubfile', to = 'json', ...flags }: AdaptFlags, output: Output) {
  // `caddyfile` has already been handled.
  const source =
    adapter === undefined || adapter === 'caddyfile' ? { config } : { config, adapter };
  const read = readWritten(source, environmentOf(flags));
  for (const warning of read.warnings) output.note(describeProblem(warning));
  const { fromEnvironment } = read;
  const showSecrets = flags.showSecrets === true;
  const text = print(
    encodeConfig(read.config, registry, { showSecrets, brief: true, fromEnvironment }),
    to,
    flags.pretty === true,
  );
  if (text.includes(REDACTED)) {
    output.note('Secrets are left out, so this output cannot be run; --show-secrets prints them.');
  }
  return text;
}

/** The output names its schema, so that editors can complete and check it. */
function print(value: unknown, to: Notation, pretty: boolean): string {
  const schema = import.meta.resolve('#config-schema');
  if (to === 'yaml') {
    return `# yaml-language-server: $schema=${schema}\n${stringify(value).trimEnd()}`;
  }
  const members = typeof value === 'object' ? value : {};
  return JSON.stringify({ $schema: schema, ...members }, null, pretty ? 2 : 0);
}

/**
 * Reads a Caddyfile, or standard input for `-`, as a Hubfile.
 *
 * @throws {ConfigError} if it is not a valid Caddyfile, or if a variable is missing
 */
export function adaptedCaddyfile(config: string, environment: Environment): AdaptedCaddyfile {
  const file = config === '-' ? '(standard input)' : config;
  const text = hubfileText(readInput(config), file);
  return adaptCaddyfile(text, file, diskIo(environment), directiveTable, (changed) =>
    problemsIn(changed, file, environment),
  );
}
