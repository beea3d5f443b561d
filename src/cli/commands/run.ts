import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { HubgateError } from '../../kernel/error.ts';
import { type ConfigSource, environmentOf, withConfigSource } from '../config-source.ts';
import { adapterOf, readConfig, readText } from '../read-config.ts';
import type { ReadConfig } from '../supervisor.ts';

interface RunFlags extends ConfigSource {
  readonly watch: boolean;
  readonly pidfile?: string;
}

/** `hubgate run`: the gateway in the foreground, until SIGINT or SIGTERM. */
export function runCommand(): Command {
  return withConfigSource(new Command('run'))
    .description('run the gateway; it follows changes of its configuration')
    .option('--no-watch', 'do not watch the configuration')
    .option('--pidfile <file>', 'write the process id to a file')
    .action(run);
}

async function run(flags: RunFlags): Promise<void> {
  const environment = environmentOf(flags);
  const { watch, pidfile } = flags;
  const read = readerOf(flags, environment);
  const source = flags.config === '-' ? null : resolve(flags.config);
  const { runGateway } = await import('../run-gateway.ts');
  await runGateway({ read, source, environment, watch, pidfile });
}

/** Reads the configuration each time anew; standard input can be read only once. */
function readerOf(flags: RunFlags, environment: NodeJS.ProcessEnv): ReadConfig {
  if (flags.config === '-') {
    const text = readFileSync(0);
    return () => readText(text, '(standard input)', adapterOf(flags), environment);
  }
  if (!existsSync(flags.config)) {
    throw new HubgateError('no-config', `There is no ${flags.config}; name one with --config`);
  }
  return (seen) => readConfig(flags, environment, seen);
}
