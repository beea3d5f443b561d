import type { Config } from './config.ts';
import type { ConfigRegistry } from './routes.ts';
import { configShape } from './shape-config.ts';
import { attempt, type DataNode, type DataValue, type Reading } from './shape.ts';

/**
 * Makes a configuration of data, filling in the defaults of what is left out. Everything that does
 * not fit is reported; null when nothing of it could be read.
 */
export function decodeConfig(
  data: DataNode,
  registry: ConfigRegistry,
  reading: Reading,
): Config | null {
  return attempt(reading, () => configShape(registry).read(data, reading)) ?? null;
}

/**
 * The configuration of what `encodeConfig` has made with its secrets in clear, of any size.
 *
 * @throws TypeError for anything else
 */
export function decodeEncoded(data: unknown, registry: ConfigRegistry): Config {
  const refuse = (message: string): never => {
    throw new TypeError(`The configuration was not encoded by this version: ${message}`);
  };
  const config = decodeConfig(nodeOf(data), registry, {
    report: (_, { message }) => refuse(message),
    mark: () => {},
    site: () => {},
    inClear: true,
  });
  return config ?? refuse('it is empty');
}

/** Data without places. */
function nodeOf(data: unknown): DataNode {
  return { value: valueOf(data), start: 0, end: 0 };
}

function valueOf(data: unknown): DataValue {
  if (Array.isArray(data)) return data.map(nodeOf);
  if (typeof data === 'object' && data !== null) {
    const key = { start: 0, end: 0 };
    return new Map(
      Object.entries(data).map(([name, value]) => [name, { key, value: nodeOf(value) }] as const),
    );
  }
  if (typeof data === 'string' || typeof data === 'number' || typeof data === 'boolean')
    return data;
  return null;
}
