import { randomUUID } from 'node:crypto';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { connectPostgres, type PostgresConnection, type PostgresPlace } from './connection.ts';

/** How long a notification may take through a pooler. */
const PROBE_MS = 3000;

/**
 * Connects and listens on a channel. The connection can run statements as well.
 *
 * A notification is only a hint: look at the tables after the connection has been opened, and every few seconds.
 *
 * @param channel a name of at most 63 bytes, in ASCII
 * @throws HubgateError `postgres-pooler` if a pooler does not keep the session, as PgBouncer in transaction mode;
 * and as {@link connectPostgres}
 */
export async function listenPostgres(
  place: PostgresPlace,
  channel: string,
  notified: (payload: string) => void,
  options: { readonly clock: Clock },
): Promise<PostgresConnection> {
  const connection = await connectPostgres(place, options);
  try {
    if (connection.isPooled) await requireOwnSession(connection, place, options);
    connection.onNotification((name, payload) => {
      if (name === channel) notified(payload);
    });
    await connection.query(`LISTEN "${channel.replaceAll('"', '""')}"`);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/**
 * A pooler that keeps a session for each client passes a notification on. Otherwise it reaches whoever is connected to
 * that session of the server, or nobody.
 */
async function requireOwnSession(
  connection: PostgresConnection,
  place: PostgresPlace,
  { clock }: { readonly clock: Clock },
): Promise<void> {
  const channel = `hubgate_probe_${randomUUID()}`;
  const other = await connectPostgres(place, { clock });
  try {
    const arrived = new Promise<boolean>((resolve) => {
      const stop = clock.after(PROBE_MS, () => resolve(false));
      const settle = (isOwn: boolean) => (): void => {
        stop();
        resolve(isOwn);
      };
      connection.onNotification(settle(true));
      connection.onLost(settle(false));
      other.onNotification(settle(false));
    });
    await connection.query(`LISTEN "${channel}"`);
    await other.query('SELECT pg_notify($1, $2)', [channel, '']);
    const isOwn = await arrived;
    await connection.query(`UNLISTEN "${channel}"`).catch(ignore);
    if (!isOwn) throw new HubgateError('postgres-pooler', NEEDS_SESSION);
  } finally {
    other.close();
  }
}

const NEEDS_SESSION =
  'LISTEN needs a session, and the pooler at this address (probably PgBouncer in transaction mode) keeps none: ' +
  'name the server itself, in the listen_url of a history or the URL of an outbox';
