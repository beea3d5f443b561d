// What a worker process runs: a gateway that executes the orders of the main process.
import type { Config } from '../../config/config.ts';
import { registry } from '../../directives/registry.ts';
import { decodeEncoded } from '../../config/serialize.ts';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import { finishUncut, killThisProcess } from '../../kernel/process-end.ts';
import { createGateway, type Gateway, type PreparedLoad } from '../../runtime/gateway.ts';
import type { Salts } from '../../runtime/playground-keys.ts';
import type { PeerWorkers, Signal } from '../../runtime/peer-workers.ts';
import { type ConfigurableLogger, logConsoleErrors, Logs } from '../log-output.ts';
import { handleUserSignals } from '../user-signals.ts';
import { collectWhenIdle, limitHeap } from '../../kernel/v8-memory.ts';
import type { FromWorker, ToWorker, WorkerCalls } from './worker.ts';

/** A configuration that has been built, and waits for the other workers. */
interface Prepared {
  readonly log: ReturnType<ConfigurableLogger['prepare']>;
  readonly load: PreparedLoad;
}

limitHeap();
collectWhenIdle();
const logs = new Logs();
const signals = handleUserSignals();
let running: { readonly gateway: Gateway; readonly log: ConfigurableLogger } | null = null;
let prepared: Prepared | null = null;
/** Everything is closed, as the main process has ordered. */
let isStopped = false;
/** Salts of the configuration that was prepared last. */
let salts: Salts = {};
const listeners: Parameters<PeerWorkers['receive']>[0][] = [];
/** Signals that the other workers have not handled yet, by their ids. */
const unhandled = new Map<number, () => void>();
let signalsWithId = 0;
const peerWorkers: PeerWorkers = {
  send: (signal) => tell({ kind: 'signal', signal }),
  sendHandled: (signal) =>
    new Promise((resolve) => {
      signalsWithId += 1;
      unhandled.set(signalsWithId, resolve);
      tell({ kind: 'signal', signal, id: signalsWithId });
    }),
  receive: (listener) => listeners.push(listener),
};

/** Requests for metrics that wait for the main process. */
let metricsWaiting: { resolve(text: string): void; reject(error: Error): void }[] = [];

/** The main process collects the metrics of all workers. One collection answers all that ask meanwhile. */
function metricsOfAll(): Promise<string> {
  return new Promise((resolve, reject) => {
    if (metricsWaiting.push({ resolve, reject }) === 1) tell({ kind: 'metrics' });
  });
}

function metricsCollected(text: string | null): void {
  const waiting = metricsWaiting;
  metricsWaiting = [];
  for (const { resolve, reject } of waiting) {
    if (text === null) reject(new HubgateError('worker-failed', 'The metrics cannot be collected'));
    else resolve(text);
  }
}

const CALLS: WorkerCalls = {
  async prepare(text, given) {
    salts = given;
    const config = decodeEncoded(JSON.parse(text), registry);
    running ??= start(config);
    const log = running.log.prepare(config.options.log);
    try {
      prepared = { log, load: await running.gateway.prepare(config) };
    } catch (error) {
      log.discard();
      throw error;
    }
  },
  async dryRun(config) {
    return started().gateway.dryRun(decodeEncoded(JSON.parse(config), registry));
  },
  async commit(wanted) {
    const { gateway } = started();
    if (prepared === null) throw new HubgateError('not-prepared', 'No configuration is prepared');
    const { log, load: ready } = prepared;
    prepared = null;
    const report = await ready.commit(wanted);
    log.commit();
    return { report, listeners: gateway.listeners };
  },
  discard,
  async status() {
    const { hubs, certificates, late } = await started().gateway.status();
    const counted = hubs.map(({ name, profile, counts }) => ({ name, profile, counts }));
    return { hubs: counted, certificates, late };
  },
  families: () => started().gateway.families(),
  slowest: () => started().gateway.slowest(),
  async check(hub) {
    await (await hubAt(hub)).check();
  },
  revoke: (tokenId, reach) => started().gateway.revoke(tokenId, reach),
  purge: (order, reach) => started().gateway.purge(order, reach),
  async signal(signal) {
    handle(signal);
  },
  stop,
};

// Ctrl-C and a service manager signal the whole group; only the main process decides.
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => {});
process.on('message', (message: ToWorker) => {
  if (message.kind === 'signal') handle(message.signal);
  else if (message.kind === 'handled') handledByOthers(message.id);
  else if (message.kind === 'metrics') metricsCollected(message.text);
  else void apply(message);
});
tell({ kind: 'ready' });
// The main process is gone, so nothing could reload or stop this process. This runs before the listener of
// node:cluster, which exits. That exit would wait for writes in progress here, and so for itself.
process.prependOnceListener('disconnect', () => {
  if (!isStopped) killThisProcess();
});

function handle(signal: Signal): void {
  for (const listener of listeners) listener(signal);
}

function handledByOthers(id: number): void {
  unhandled.get(id)?.();
  unhandled.delete(id);
}

async function apply({ id, order, given }: Extract<ToWorker, { kind: 'order' }>): Promise<void> {
  try {
    // The main process gives each function what it takes: see Worker.order.
    const call = CALLS[order] as (...given: readonly unknown[]) => Promise<unknown>;
    tell({ kind: 'answer', id, value: await call(...given) });
  } catch (error) {
    const failure = { code: codeOf(error) ?? 'worker-failed', message: messageOf(error) };
    tell({ kind: 'failure', id, failure });
  }
  if (order !== 'stop') return;
  await finishUncut();
  isStopped = true;
  process.disconnect();
}

function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

function start(config: Config): NonNullable<typeof running> {
  const log = logs.createLogger(config.options.log);
  logConsoleErrors(log);
  signals.apply(log, logs);
  return {
    log,
    gateway: createGateway(config, {
      log,
      openLog: logs.open,
      peerWorkers,
      metrics: metricsOfAll,
      playgroundSalts: () => salts,
    }),
  };
}

function started(): NonNullable<typeof running> {
  if (running === null) throw new HubgateError('not-prepared', 'The worker has no configuration');
  return running;
}

async function hubAt(number: number) {
  const { hubs } = await started().gateway.status();
  const hub = hubs[number];
  if (hub === undefined) throw new HubgateError('not-found', `No hub has the number ${number}`);
  return hub;
}

async function discard(): Promise<void> {
  const given = prepared;
  prepared = null;
  given?.log.discard();
  await given?.load.discard();
}

async function stop(): Promise<void> {
  await discard();
  await running?.gateway.stop();
}
