// Without `workers`, a gateway has one process on a small machine, and one for each processor on a larger one.
// A worker costs memory, and several processes share only what is outside of them: a history in memory, and
// limits that each process counts for itself, need one process.

import { availableParallelism, totalmem } from 'node:os';
import type { Config, GlobalOptions } from '../../config/config.ts';
import { dataOf, everyRoute } from '../../config/routes.ts';
import { allHubs } from '../../config/sites.ts';
import { isShared } from '../../config/transports.ts';
import { registry } from '../../directives/registry.ts';

/** Processors from which on a gateway has several workers by default. With fewer, one process costs less. */
const MIN_PROCESSORS = 4;
/** Memory in bytes that a default worker may need, with its streams, requests and caches. */
const BYTES_PER_WORKER = 512 * 1024 * 1024;
/** Most workers without `workers`: from there on, the upstreams and the history are usually the limit. */
const MAX_DEFAULT_WORKERS = 8;

/** The properties of the machine, or of the container, that the number of workers depends on. */
export interface Machine {
  readonly processors: number;
  readonly memoryBytes: number;
}

export interface WorkerCount {
  readonly count: number;
  /** The reason, for the log. */
  readonly why: string;
}

/** `environment` may replace the number of processors by `HUBGATE_PROCESSORS`. */
export function thisMachine(environment: NodeJS.ProcessEnv = process.env): Machine {
  const given = Number(environment['HUBGATE_PROCESSORS']);
  const limit = process.constrainedMemory();
  return {
    processors: Number.isInteger(given) && given > 0 ? given : availableParallelism(),
    // 0, or a number beyond the memory of the machine, is no limit.
    memoryBytes: Math.min(totalmem(), limit > 0 ? limit : Number.POSITIVE_INFINITY),
  };
}

/** The number of processes that serve a configuration, 1 for the main process alone. */
export function workerCount(config: Config, machine = thisMachine()): WorkerCount {
  const { workers } = config.options;
  const { processors, memoryBytes } = machine;
  if (workers === 'auto') return { count: processors, why: '`workers auto`: one per CPU' };
  if (workers !== null) return { count: workers, why: `\`workers ${workers}\`` };
  if (processors < MIN_PROCESSORS) {
    return { count: 1, why: `fewer than ${MIN_PROCESSORS} CPUs; \`workers\` changes that` };
  }
  const own = ownedByOneProcess(config);
  if (own !== null) return { count: 1, why: `${own} belongs to one process` };
  const count = Math.min(
    processors,
    MAX_DEFAULT_WORKERS,
    Math.max(1, Math.floor(memoryBytes / BYTES_PER_WORKER)),
  );
  const limits = `at most ${MAX_DEFAULT_WORKERS}, and one per 512 MiB of memory`;
  return { count, why: `one per CPU, ${limits}; \`workers\` changes that` };
}

/** The part of a configuration that several processes do not have in common; null if there is none. */
function ownedByOneProcess(config: Config): string | null {
  const { sites, options } = config;
  const alone = allHubs(config).find(({ hub }) => !isShared(hub.transport));
  if (alone !== undefined) return `\`transport ${alone.hub.transport.kind}\``;
  const hubs = allHubs(config).map(({ hub }) => hub);
  const counted = [options.servers, ...options.listeners.map(({ servers }) => servers), ...hubs];
  if (counted.some(limitsConnections)) return 'a limit of connections';
  const handlers = sites
    .flatMap((site) => everyRoute([...site.routes, ...site.errorRoutes], registry))
    .map(({ handler }) => handler);
  const limited = handlers.some((handler) => dataOf(handler, registry).countsHere?.(handler));
  return limited ? '`max_conns_per_host`' : null;
}

function limitsConnections(
  one: Pick<GlobalOptions['servers'], 'maxConnections' | 'maxConnectionsPerClient'>,
): boolean {
  return one.maxConnections > 0 || one.maxConnectionsPerClient > 0;
}
