import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf, ignore } from '../../kernel/error.ts';
import type { StoreSession } from '../../kernel/sessions.ts';
import { findPrimary, type RedisConnection, type RedisPlace } from './primary.ts';
import type { StoreFault } from '../read-backs.ts';
import { APPEND, type Script, SCRIPTS } from './scripts.ts';

/** A server that does not reply to a command for this long counts as gone. */
const COMMAND_TIMEOUT_MS = 3000;
/** How long an append waits for its replicas. */
const WAIT_MS = 2000;
/**
 * How often the connection for appends is used although nothing is appended. Servers may close connections that are
 * idle; the other two are in use every few seconds.
 */
const KEEP_ALIVE_MS = 5000;

/** The connections to one primary, until the first of them is lost. */
export class Session implements StoreSession {
  /** For reading, finding and presence. */
  readonly #commands: RedisConnection;
  /** For appends, which may wait for replicas. */
  readonly #appends: RedisConnection;
  /** For blocking commands. */
  readonly #reader: RedisConnection;
  readonly #clock: Clock;
  #isLost = false;
  #stopKeepAlive: () => void = () => {};

  private constructor(
    connections: readonly [RedisConnection, RedisConnection, RedisConnection],
    clock: Clock,
  ) {
    [this.#commands, this.#appends, this.#reader] = connections;
    this.#clock = clock;
    for (const connection of connections) connection.onLost((reason) => this.#end(reason));
    if (!this.#isLost) this.#keepAlive();
  }

  /** @throws HubgateError `transport-failed` */
  static async open(place: RedisPlace, key: string, clock: Clock): Promise<Session> {
    const connectPrimary = await findPrimary(place, key, clock);
    const connections: RedisConnection[] = [];
    try {
      const connect = async (): Promise<RedisConnection> => {
        const connection = await connectPrimary();
        connections.push(connection);
        return connection;
      };
      const [commands, appends, reader] = [await connect(), await connect(), await connect()];
      for (const { text } of SCRIPTS)
        await commands.command(COMMAND_TIMEOUT_MS, 'SCRIPT', 'LOAD', text);
      return new Session([commands, appends, reader], clock);
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

  /** Runs the append script. The second value is the reply of `WAIT` for `replicas`. */
  async append(
    keys: readonly string[],
    args: readonly string[],
    replicas: number,
  ): Promise<readonly [reply: unknown, replicas: number]> {
    const timeoutMs = COMMAND_TIMEOUT_MS + WAIT_MS;
    const script = ['EVALSHA', APPEND.sha, String(keys.length), ...keys, ...args];
    const appended = this.#appends.command(timeoutMs, ...script);
    if (replicas === 0) return [await appended, 0];
    // On the same connection and at once, because it waits for the writes of this connection.
    const waited = this.#appends
      .command(timeoutMs, 'WAIT', String(replicas), String(WAIT_MS))
      // A refusal of WAIT does not say that the script was not executed.
      .catch((cause: unknown) => {
        throw new Error(`the wait for replicas failed (${messageOf(cause)})`, { cause });
      });
    const [reply, count] = await Promise.all([appended, waited]);
    return [reply, Number(count)];
  }

  /** Sends a command on the connection for blocking commands. It may take as long as its argument allows. */
  block(blockMs: number, ...args: string[]): Promise<unknown> {
    return this.#reader.command(blockMs + COMMAND_TIMEOUT_MS, ...args);
  }

  close(reason?: string): void {
    // The server's refusal of one command says nothing about the others.
    this.#end(reason === undefined ? reason : `the connection is given up (${reason})`);
  }

  #keepAlive(): void {
    this.#stopKeepAlive = this.#clock.after(KEEP_ALIVE_MS, () => {
      // Users that may do only what is necessary may not send PING. A refusal is an answer, too.
      const alive = this.#appends.command(COMMAND_TIMEOUT_MS + WAIT_MS, 'WAIT', '0', '0');
      alive.catch(ignore);
      this.#keepAlive();
    });
  }

  #end(reason?: string): void {
    this.#isLost = true;
    this.#stopKeepAlive();
    for (const connection of [this.#commands, this.#appends, this.#reader])
      connection.close(reason);
  }
}

/** Error codes of commands that the server has not executed. */
const NOT_DONE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOREPLICAS|NOSCRIPT|UNBLOCKED|BUSY|OOM|MISCONF|NOPERM|NOAUTH|WRONGTYPE|TOONEW)/;
/** Those of them that another server, or this one a little later, would execute. */
const ELSEWHERE =
  /^(?:READONLY|MOVED|ASK|CLUSTERDOWN|TRYAGAIN|LOADING|MASTERDOWN|NOSCRIPT|UNBLOCKED)/;

export function refusalOf(error: unknown): StoreFault {
  const message = saidOf(error);
  return { message, isNotDone: NOT_DONE.test(message), isElsewhere: ELSEWHERE.test(message) };
}

/**
 * The message of an error. Redis 6 wraps the error of a command in a script. It refuses only the first
 * command that writes, so nothing has been executed in that case either.
 */
function saidOf(error: unknown): string {
  const message = messageOf(error);
  return /^ERR Error running script .*@user_script: ?\d+: -(.+)$/s.exec(message)?.[1] ?? message;
}
