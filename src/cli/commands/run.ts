import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command, Option } from 'commander';
import { type ConfigSource, environmentOf, withConfigSource } from '../config-source.ts';
import { adapterOf, readConfig, readText } from '../read-config.ts';
import type { ReadConfig } from '../supervisor.ts';
import { digestOf } from '../watch/watched-path.ts';

interface RunFlags extends ConfigSource {
  readonly watch?: boolean;
  readonly pidfile?: string;
}

/** `hubgate run`: runs the gateway in the foreground until SIGINT or SIGTERM. */
export function runCommand(): Command {
  return (
    withConfigSource(new Command('run'))
      .description('run the gateway and follow changes of its configuration')
      // Caddy has this flag, because it does not watch by default.
      .addOption(new Option('--watch').hideHelp())
      .option('--no-watch', 'do not watch the configuration')
      .option('--pidfile <file>', 'write the process id to a file')
      .action(run)
  );
}

async function run(flags: RunFlags): Promise<void> {
  const { watch = true, pidfile } = flags;
  const envPath = flags.envfile === undefined ? null : resolve(flags.envfile);
  const read = readerOf(flags, envPath);
  const environment = (): NodeJS.ProcessEnv => environmentOf(flags);
  const source = flags.config === '-' ? null : resolve(flags.config);
  const { runGateway } = await import('../run-gateway.ts');
  await runGateway({ read, source, envPath, environment, watch, pidfile });
}

/**
 * Each call reads the configuration and its variables again, except for standard input, which can be read
 * only once.
 */
function readerOf(flags: RunFlags, envPath: string | null): ReadConfig {
  const text = flags.config === '-' ? readFileSync(0) : null;
  return (seen) => {
    const environment = environmentOf(flags, (content) => {
      if (envPath !== null) seen(envPath, digestOf(content));
    });
    const ready =
      text === null
        ? readConfig(flags, environment, seen)
        : readText(text, '(standard input)', adapterOf(flags), environment);
    return envPath === null ? ready : { ...ready, files: [...ready.files, envPath] };
  };
}
