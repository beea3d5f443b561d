import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { DEFAULT_ADMIN, postToAdmin } from '../admin-request.ts';
import { type ConfigSource, withConfigSource } from '../config-source.ts';
import { EXIT, type Output } from '../output.ts';
import { adapterOf } from '../read-config.ts';

interface ReloadFlags extends ConfigSource {
  readonly address: string;
}

const MEDIA_TYPES = {
  hubfile: 'text/hubfile',
  yaml: 'application/yaml',
  json: 'application/json',
} as const;

/**
 * `hubgate reload`: gives a running gateway a configuration. The gateway checks it, in its own
 * environment and with its own files, before it changes anything.
 */
export function reloadCommand(output: Output): Command {
  return withConfigSource(new Command('reload'))
    .description('load a configuration into the running gateway, if it is valid')
    .option('--address <host:port>', 'admin address of the gateway', DEFAULT_ADMIN)
    .action(async (flags: ReloadFlags) => {
      const query =
        flags.config === '-' ? '' : `?file=${encodeURIComponent(resolve(flags.config))}`;
      const type = MEDIA_TYPES[adapterOf(flags)];
      const answer = await postToAdmin(flags.address, `/load${query}`, read(flags.config), type);
      if (answer.status === 200) return;
      if (!Array.isArray(answer.body)) {
        const message = `The gateway on ${flags.address} answered ${answer.status}`;
        throw new HubgateError('reload-failed', message);
      }
      for (const problem of answer.body) output.note(describe(problem));
      process.exitCode = EXIT.failed;
    });
}

function read(file: string): Uint8Array {
  try {
    return readFileSync(file === '-' ? 0 : file);
  } catch (cause) {
    throw new HubgateError('unreadable-file', `Cannot read ${file}: ${messageOf(cause)}`, {
      cause,
    });
  }
}

/** A problem as the admin API sends it, with its excerpt. */
function describe(data: unknown): string {
  if (typeof data !== 'object' || data === null) return String(data);
  if ('text' in data) return String(data.text);
  return 'message' in data ? String(data.message) : JSON.stringify(data);
}
