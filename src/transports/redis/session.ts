import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { findPrimary, type RedisConnection, type RedisPlace } from './primary.ts';
import { type Script, SCRIPTS } from './scripts.ts';

/** A server that does not answer a command for this long is taken for gone. */
const COMMAND_TIMEOUT_MS = 3000;

/** The connections to one primary, until the first of them is lost. */
export class Session {
  /** For reading, finding and presence. */
  readonly #commands: RedisConnection;
  /** For appends, which may wait for replicas. */
  readonly #appends: RedisConnection;
  /** For the one that blocks. */
  readonly #reader: RedisConnection;
  #isLost = false;

  private constructor(connections: readonly [RedisConnection, RedisConnection, RedisConnection]) {
    [this.#commands, this.#appends, this.#reader] = connections;
    for (const connection of connections) connection.onLost(() => this.close());
  }

  /** @throws HubgateError `transport-failed` */
  static async open(place: RedisPlace, key: string, clock: Clock): Promise<Session> {
    const connectPrimary = await findPrimary(place, key, clock);
    const connections: RedisConnection[] = [];
    try {
      for (let count = 0; count < 3; count += 1) connections.push(await connectPrimary());
      const [commands, appends, reader] = connections;
      if (commands === undefined || appends === undefined || reader === undefined) {
        throw new Error('no connection');
      }
      for (const { text } of SCRIPTS)
        await commands.command(COMMAND_TIMEOUT_MS, 'SCRIPT', 'LOAD', text);
      return new Session([commands, appends, reader]);
    } catch (cause) {
      for (const connection of connections) connection.close();
      const message = `Redis cannot be used: ${messageOf(cause)}`;
      throw new HubgateError('transport-failed', message, { cause });
    }
  }

  get isLost(): boolean {
    return this.#isLost;
  }

  command(...args: string[]): Promise<unknown> {
    return this.#commands.command(COMMAND_TIMEOUT_MS, ...args);
  }

  run({ sha }: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.command('EVALSHA', sha, String(keys.length), ...keys, ...args);
  }

  /** Appends by a script; the second value is what `WAIT` for `replicas` has said. */
  async append(
    { sha }: Script,
    keys: readonly string[],
    args: readonly string[],
    replicas: number,
    waitMs: number,
  ): Promise<readonly [reply: unknown, replicas: number]> {
    const timeoutMs = COMMAND_TIMEOUT_MS + waitMs;
    const script = ['EVALSHA', sha, String(keys.length), ...keys, ...args];
    const appended = this.#appends.command(timeoutMs, ...script);
    if (replicas === 0) return [await appended, 0];
    // On the same connection and at once: it waits for what this connection has written.
    const waited = this.#appends.command(timeoutMs, 'WAIT', String(replicas), String(waitMs));
    const [reply, count] = await Promise.all([appended, waited]);
    return [reply, Number(count)];
  }

  /** On the connection that blocks; it may take as long as it says. */
  block(blockMs: number, ...args: string[]): Promise<unknown> {
    return this.#reader.command(blockMs + COMMAND_TIMEOUT_MS, ...args);
  }

  close(): void {
    this.#isLost = true;
    for (const connection of [this.#commands, this.#appends, this.#reader]) connection.close();
  }
}

/** What a server says of a command that it has not carried out. */
const NOT_DONE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOREPLICAS|NOSCRIPT|UNBLOCKED|BUSY|OOM|MISCONF|NOPERM|NOAUTH|WRONGTYPE|TOONEW)/;
/** Of these, those that another server, or this one a little later, would carry out. */
const ELSEWHERE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOSCRIPT|UNBLOCKED)/;

/** What is known of a command that has failed. */
export interface RedisError {
  /** In the server's words, or in those of the lost connection. */
  readonly message: string;
  /** The server says that it has not carried it out; else nobody knows. */
  readonly isNotDone: boolean;
  /** Another server would carry it out: this session is of no more use. */
  readonly isElsewhere: boolean;
}

export function refusalOf(error: unknown): RedisError {
  const message = saidOf(error);
  return { message, isNotDone: NOT_DONE.test(message), isElsewhere: ELSEWHERE.test(message) };
}

/**
 * Redis 6 wraps what a command in a script was refused with; it refuses only the first that writes,
 * so nothing has been carried out then either.
 */
function saidOf(error: unknown): string {
  const message = messageOf(error);
  return /^ERR Error running script .*@user_script: ?\d+: -(.+)$/s.exec(message)?.[1] ?? message;
}
