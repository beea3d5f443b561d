import type { RedisTransportConfig } from '../../config/transports.ts';
import { requireUrl } from '../../kernel/parse.ts';
import { readFile } from 'node:fs/promises';
import { createClient } from '@redis/client';
import { afterSilence, type Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';

const CONNECT_TIMEOUT_MS = 3000;
const ANSWER_TIMEOUT_MS = 3000;

const SILENT = 'the server does not answer';

/** The location of a store in the configuration. */
export type RedisPlace = Pick<
  RedisTransportConfig,
  'urls' | 'sentinel' | 'cluster' | 'trustPoolFile'
>;

/** One connection. It never reconnects by itself: its user looks for the primary again. */
export interface RedisConnection {
  /**
   * A server that does not reply in time counts as gone.
   *
   * @throws the error of the server, or the loss of the connection
   */
  command(timeoutMs: number, ...args: string[]): Promise<unknown>;
  /** Sets the listener that is called once when the connection is lost; not when it is closed. */
  onLost(listener: (reason: string) => void): void;
  /** @param reason the error of the commands that have no reply yet */
  close(reason?: string): void;
}

/** The options of a connection. */
interface Means {
  readonly ca: string | null;
  readonly clock: Clock;
}

/** Opens a connection to one server, the one that accepts writes. */
export type ConnectPrimary = () => Promise<RedisConnection>;

/**
 * Finds the server that accepts writes for a key: the configured one, the one that sentinels name, or the one
 * with the key's slot.
 *
 * @throws HubgateError `transport-failed` with the error of each address
 */
export async function findPrimary(
  place: RedisPlace,
  key: string,
  clock: Clock,
): Promise<ConnectPrimary> {
  const ca = place.trustPoolFile === null ? null : await readFile(place.trustPoolFile, 'utf8');
  const means = { ca, clock };
  const faults: string[] = [];
  for (const secret of place.urls) {
    const url = requireUrl(secret.reveal());
    try {
      const primary = await primaryBehind(url, place, key, means);
      return () => connect(primary, means);
    } catch (error) {
      faults.push(`${url.host}: ${messageOf(error)}`);
    }
  }
  throw new HubgateError('transport-failed', `Redis cannot be reached (${faults.join('; ')})`);
}

async function primaryBehind(
  url: URL,
  { sentinel, cluster }: RedisPlace,
  key: string,
  means: Means,
): Promise<URL> {
  if (sentinel !== null) return namedBySentinel(url, sentinel, means);
  return cluster ? ofSlot(url, key, means) : url;
}

async function namedBySentinel(url: URL, name: string, means: Means): Promise<URL> {
  const sentinel = await connectSentinel(url, means);
  try {
    const address = await sentinel.command(
      ANSWER_TIMEOUT_MS,
      'SENTINEL',
      'GET-MASTER-ADDR-BY-NAME',
      name,
    );
    if (!Array.isArray(address)) throw new Error(`this sentinel does not know ${name}`);
    const [host, port] = address;
    const primary = at(url, String(host), String(port));
    // A sentinel may name a server that is not the primary yet, or is no longer the primary.
    await check(primary, means, async (connection) => {
      const role = await connection.command(ANSWER_TIMEOUT_MS, 'ROLE');
      if (Array.isArray(role) && role[0] === 'master') return;
      throw new Error(`${primary.host} is not the primary at the moment`);
    });
    return primary;
  } finally {
    sentinel.close();
  }
}

/** @throws if the server cannot be reached, or is not the one that is looked for */
async function check(
  url: URL,
  means: Means,
  look: (connection: RedisConnection) => Promise<void>,
): Promise<void> {
  const connection = await connect(url, means);
  try {
    await look(connection);
  } finally {
    connection.close();
  }
}

/** Sentinels often have no users, although their servers do. */
async function connectSentinel(url: URL, means: Means): Promise<RedisConnection> {
  try {
    return await connect(url, means);
  } catch (error) {
    if (url.password === '' || !/AUTH|WRONGPASS|NOPERM/i.test(messageOf(error))) throw error;
    const anonymous = requireUrl(url.href);
    anonymous.username = '';
    anonymous.password = '';
    return connect(anonymous, means);
  }
}

async function ofSlot(url: URL, key: string, means: Means): Promise<URL> {
  const node = await connect(url, means);
  try {
    const slot = Number(await node.command(ANSWER_TIMEOUT_MS, 'CLUSTER', 'KEYSLOT', key));
    const ranges = await node.command(ANSWER_TIMEOUT_MS, 'CLUSTER', 'SLOTS');
    if (!Array.isArray(ranges)) throw new Error('it is not a node of a cluster');
    for (const range of ranges) {
      if (!Array.isArray(range)) continue;
      const [first, last, primary] = range;
      if (slot < Number(first) || slot > Number(last) || !Array.isArray(primary)) continue;
      const [host, port] = primary;
      // A node that does not know its own name expects the client to use the address that it has connected
      // to.
      const there = typeof host === 'string' && host !== '' ? host : url.hostname;
      const owner = at(url, there, String(port));
      // A node that is cut off from the others names a server that no longer has the slot, or itself.
      await check(
        owner,
        means,
        async (connection) => void (await connection.command(ANSWER_TIMEOUT_MS, 'EXISTS', key)),
      );
      return owner;
    }
    throw new Error(`no node of the cluster has slot ${slot}`);
  } finally {
    node.close();
  }
}

function at(url: URL, host: string, port: string): URL {
  const there = requireUrl(url.href);
  there.hostname = host.includes(':') ? `[${host}]` : host;
  there.port = port;
  return there;
}

async function connect(url: URL, { ca, clock }: Means): Promise<RedisConnection> {
  const isTls = url.protocol === 'rediss:';
  const common = { connectTimeout: CONNECT_TIMEOUT_MS, reconnectStrategy: false as const };
  const client = createClient({
    url: url.href,
    RESP: 2,
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    socket: isTls ? { ...common, tls: true, ...(ca === null ? {} : { ca }) } : common,
  });
  const asked = new Set<(reason: Error) => void>();
  let over: string | null = null;
  let lost: (reason: string) => void = () => {};
  const end = (reason = 'the connection is lost'): void => {
    if (over !== null) return;
    over = reason;
    destroy(client);
    // On a lost connection, a pending command may never be settled.
    for (const reject of asked) reject(new Error(reason));
  };
  const lose = (reason = 'the connection is lost'): void => {
    if (over !== null) return;
    end(reason);
    lost(reason);
  };
  // Without a listener, the process would end.
  client.on('error', () => lose());
  client.on('end', () => lose());
  // The library limits the time for a connection, but not that for the answer to its password.
  let isSilent = false;
  const stop = afterSilence(CONNECT_TIMEOUT_MS, clock, () => {
    isSilent = true;
    end(SILENT);
  });
  try {
    await client.connect();
  } catch (error) {
    end();
    throw isSilent ? new Error(SILENT, { cause: error }) : error;
  } finally {
    stop();
  }
  return {
    command: (timeoutMs, ...args) =>
      new Promise((resolve, reject) => {
        asked.add(reject);
        // A network that was cut reports nothing at all.
        const stop = afterSilence(timeoutMs, clock, () => lose(SILENT));
        client
          .sendCommand(args)
          .then(resolve, reject)
          .finally(() => {
            stop();
            asked.delete(reject);
          });
      }),
    onLost(listener) {
      lost = listener;
      if (over !== null) listener(over);
    },
    close: end,
  };
}

function destroy(client: { destroy(): void }): void {
  try {
    client.destroy();
  } catch {
    // It throws if the connection is already gone, which is the intended state.
  }
}
