import { readFileSync } from 'node:fs';
import { directiveTable } from '../directives/registry.ts';
import { type AdaptedCaddyfile, adaptCaddyfile } from '../hubfile/caddyfile.ts';
import { hubfileText } from '../hubfile/format.ts';
import { diskIo } from '../hubfile/disk.ts';
import type { Environment } from '../hubfile/source.ts';
import { problemsIn } from './read-config.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';

/**
 * Reads a Caddyfile, `-` for standard input, as a Hubfile.
 *
 * @throws {ConfigError} where it is no Caddyfile, or a variable is missing
 */
export function adaptedCaddyfile(config: string, environment: Environment): AdaptedCaddyfile {
  const file = config === '-' ? '(standard input)' : config;
  const text = hubfileText(read(config), file);
  return adaptCaddyfile(text, file, diskIo(environment), directiveTable, (changed) =>
    problemsIn(changed, file, environment),
  );
}

function read(config: string): Uint8Array {
  try {
    return readFileSync(config === '-' ? 0 : config);
  } catch (cause) {
    const message = `Cannot read ${config}: ${messageOf(cause)}`;
    throw new HubgateError('unreadable-file', message, { cause });
  }
}
