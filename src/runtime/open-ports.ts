import { resolve } from 'node:path';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Lease } from '../kernel/lease.ts';
import type { Listener } from '../server/listener.ts';
import { listenerKey, type PlannedListener } from './listen-plan.ts';
import type { Resources } from './resources.ts';
import type { Logger } from '../kernel/log.ts';

export interface OpenListener {
  readonly planned: PlannedListener;
  readonly lease: Lease<Listener>;
}

/** The ports of a configuration before it is active. */
export interface OpenPorts {
  readonly plan: readonly PlannedListener[];
  readonly listeners: readonly OpenListener[];
  /** Ports that are bound at commit, after the gateway's own listeners have released them. */
  readonly handedOver: readonly {
    readonly planned: PlannedListener;
    readonly from: readonly OpenListener[];
  }[];
}

/**
 * A port that several processes share is free when the last of them has released it. This is the time limit.
 */
const HAND_OVER_MS = 5_000;
const RETRY_MS = 20;

/**
 * Binds the ports of a configuration. If one of the gateway's own listeners has the port at another address
 * (for example because `bind` was added), both cannot be bound at once. If that listener ends with the old
 * configuration, the port is taken over at commit.
 *
 * @throws HubgateError `listen-failed`; nothing is left open then
 */
export async function openPorts(
  plan: readonly PlannedListener[],
  own: readonly OpenListener[],
  resources: Resources,
): Promise<OpenPorts> {
  const kept = new Set(plan.map(listenerKey));
  const leaving = own.filter(({ planned }) => !kept.has(listenerKey(planned)));
  const listeners: OpenListener[] = [];
  const handedOver: OpenPorts['handedOver'][number][] = [];
  try {
    for (const planned of plan) {
      const from = leaving.filter((one) => overlap(one.planned, planned));
      try {
        listeners.push({ planned, lease: await resources.leaseListener(planned) });
      } catch (error) {
        if (from.length === 0 || !isTaken(error)) throw error;
        handedOver.push({ planned, from });
      }
    }
    return { plan, listeners, handedOver };
  } catch (error) {
    await Promise.allSettled(listeners.map(({ lease }) => lease.release()));
    throw error;
  }
}

/** All ports of a configuration, including those that were taken over. */
export interface TakenPorts {
  /** In the order of the plan. */
  readonly listeners: readonly OpenListener[];
  /** Returns the ports that were taken over to their previous listeners. */
  undo(): Promise<void>;
}

/**
 * Binds the ports that are taken over. Between the two listeners, the system refuses connections, for no
 * longer than binding takes.
 *
 * @throws HubgateError `listen-failed`; the old listeners have their ports again then
 */
export async function takePorts(
  { plan, listeners, handedOver }: OpenPorts,
  resources: Resources,
): Promise<TakenPorts> {
  const leaving = [...new Set(handedOver.flatMap(({ from }) => from))];
  for (const { lease } of leaving) lease.value.suspend();
  const taken: OpenListener[] = [];
  const undo = async (): Promise<void> => {
    await Promise.allSettled(taken.map(({ lease }) => lease.release()));
    for (const { lease } of leaving) await resume(lease.value, resources.log);
  };
  try {
    for (const { planned } of handedOver) {
      taken.push({ planned, lease: await leaseWhenFree(planned, resources) });
    }
  } catch (error) {
    await undo();
    throw error;
  }
  const all = [...listeners, ...taken];
  const inOrder = plan.flatMap((planned) => all.filter((one) => one.planned === planned));
  return { listeners: inOrder, undo };
}

async function leaseWhenFree(
  planned: PlannedListener,
  resources: Resources,
): Promise<Lease<Listener>> {
  const { clock, hasPeerWorkers } = resources;
  const end = clock.monotonic() + (hasPeerWorkers ? HAND_OVER_MS : 0);
  for (;;) {
    try {
      return await resources.leaseListener(planned);
    } catch (error) {
      if (!isTaken(error) || clock.monotonic() >= end) throw error;
    }
    await new Promise<void>((resolve) => clock.after(RETRY_MS, resolve));
  }
}

/** Opens a port again for which a new configuration had no use in the end. */
export async function resume(port: { resume(): Promise<void> }, log: Logger): Promise<void> {
  try {
    await port.resume();
  } catch (error) {
    log.error('A port could not be opened again', { error: messageOf(error) });
  }
}

/** The same port at addresses that may be the same, or the same Unix socket. */
export function overlap(
  one: Pick<PlannedListener, 'bind' | 'port'>,
  other: Pick<PlannedListener, 'bind' | 'port'>,
): boolean {
  if (one.bind.kind === 'unix' && other.bind.kind === 'unix') {
    return resolve(one.bind.path) === resolve(other.bind.path);
  }
  return one.bind.kind === 'host' && other.bind.kind === 'host' && one.port === other.port;
}

/** Whether another program, or this one, uses the port. */
export function isTaken(error: unknown): boolean {
  return error instanceof HubgateError && codeOf(error.cause) === 'EADDRINUSE';
}
