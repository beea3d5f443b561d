import type { Config } from './config.ts';
import { configShape } from './shape-config.ts';
import { attempt, type DataNode, type Reading } from './shape.ts';

/**
 * Makes a configuration of data, filling in the defaults of what is left out. Everything that does
 * not fit is reported; null when nothing of it could be read.
 */
export function decodeConfig(data: DataNode, reading: Reading): Config | null {
  return attempt(reading, () => configShape.read(data, reading)) ?? null;
}
