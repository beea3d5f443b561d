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
