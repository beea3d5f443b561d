import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { defaultStorage } from '../tls/storage.ts';
import { type ConfigSource, environmentOf } from './config-source.ts';
import { readUnchecked } from './read-config.ts';

/** The configuration of a command that can do without: null when none is named and none is here. */
export function configIfAny(source: ConfigSource, command: Command): Config | null {
  const named = command.getOptionValueSource('config') !== 'default';
  return named || existsSync(source.config) ? readUnchecked(source, environmentOf(source)) : null;
}

/** Directory of certificates and keys, absolute. */
export function storageOf(config: Config | null): string {
  return resolve(config?.options.storage ?? defaultStorage());
}
