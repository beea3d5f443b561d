import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { defaultStorage } from '../tls/storage.ts';
import { type ConfigSource, environmentOf } from './config-source.ts';
import { readUnchecked } from './read-config.ts';

/**
 * The configuration for a command that can also run without one; null if none is given and none is in the
 * current directory.
 */
export function configIfAny(source: ConfigSource, command: Command): Config | null {
  const named = command.getOptionValueSource('config') !== 'default';
  return named || existsSync(source.config) ? readUnchecked(source, environmentOf(source)) : null;
}

/** Directory with certificates and keys, absolute. */
export function storageOf(config: Config | null): string {
  return resolve(config?.options.storage ?? defaultStorage());
}
