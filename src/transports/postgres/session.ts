import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Secret } from '../../kernel/secret.ts';
import type { StoreSession } from '../../kernel/sessions.ts';
import {
  connectPostgres,
  type PostgresConnection,
  type PostgresPlace,
} from '../../postgres/connection.ts';
import { listenPostgres } from '../../postgres/listen.ts';

/** The server's limit for a statement, below the time after which the server counts as gone. */
const STATEMENT_TIMEOUT_MS = 8000;

const DIFFERENT = 'its addresses lead to different servers or databases; check url and listen_url';

export interface SessionPlace extends PostgresPlace {
  /** The server itself, where `url` is that of a pooler without sessions; null: `url`. */
  readonly listenUrl: Secret | null;
}

/** The connections of a history to one server, until the first of them is lost. */
export class Session implements StoreSession {
  /** For replays, finding, presence and counts. */
  readonly commands: PostgresConnection;
  /** For appends, which wait for each other and for standbys. */
  readonly appends: PostgresConnection;
  /** For notifications, and for reading what they announce. */
  readonly reader: PostgresConnection;
  #isLost = false;
  #lost: (reason: string) => void = () => {};
  #reason: string | null = null;

  private constructor([commands, appends, reader]: readonly [
    PostgresConnection,
    PostgresConnection,
    PostgresConnection,
  ]) {
    [this.commands, this.appends, this.reader] = [commands, appends, reader];
    for (const connection of [commands, appends, reader]) {
      connection.onLost((reason) => this.#lose(reason));
    }
  }

  /** @throws HubgateError `transport-failed`, `postgres-pooler` */
  static async open(
    place: SessionPlace,
    channel: string,
    notified: (payload: string) => void,
    clock: Clock,
  ): Promise<Session> {
    const listening = { ...place, url: place.listenUrl ?? place.url };
    const opened: PostgresConnection[] = [];
    const keep = (connection: PostgresConnection): PostgresConnection => {
      opened.push(connection);
      return connection;
    };
    const limited = { clock, statementTimeoutMs: STATEMENT_TIMEOUT_MS };
    try {
      const commands = keep(await connectPostgres(place, limited));
      // A limit for statements would end the wait for standbys, and commit nevertheless.
      const appends = keep(await connectPostgres(place, { clock }));
      const reader = keep(await listenPostgres(listening, channel, notified, { clock }));
      // During a failover, or with a wrong listen_url, they may lead to different servers.
      if (new Set(opened.map(({ server }) => server)).size > 1) throw new Error(DIFFERENT);
      return new Session([commands, appends, reader]);
    } catch (cause) {
      for (const connection of opened) connection.close();
      if (cause instanceof HubgateError) throw cause;
      const message = `PostgreSQL cannot be used: ${messageOf(cause)}`;
      throw new HubgateError('transport-failed', message, { cause });
    }
  }

  get isLost(): boolean {
    return this.#isLost;
  }

  /** Sets the listener that is called once when the session is lost or closed. */
  onEnd(listener: (reason: string) => void): void {
    this.#lost = listener;
    if (this.#reason !== null) listener(this.#reason);
  }

  close(reason = 'the connection is closed'): void {
    this.#lose(reason);
  }

  #lose(reason: string): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.#reason = reason;
    for (const connection of [this.commands, this.appends, this.reader]) connection.close();
    this.#lost(reason);
  }
}
