import { randomBytes } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { createPrivate, readIfPresent } from './storage.ts';

/**
 * How long tickets are sealed with the same keys. Node accepts one set at a time, so tickets from before a
 * rotation lead to a full handshake. Tickets are valid for only 300 s anyway.
 */
export const TICKET_KEYS_MS = 12 * 60 * 60 * 1000;

/** The length that `tls.Server.setTicketKeys` requires. */
const KEY_BYTES = 48;

/**
 * The keys that seal session tickets, the same for all processes and nodes that share a storage:
 * `<storage>/tls/ticket-keys/<period>`, 0600. The first process that needs the keys of a period creates them.
 * The keys of earlier periods are deleted, so that keys on the disk cannot decrypt a connection that was
 * recorded earlier.
 */
export class TicketKeys {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #followers = new Set<(keys: Buffer) => void>();
  #keys: Promise<Buffer> | null = null;
  #cancel: () => void = () => {};

  constructor(storage: string, clock: Clock, log: Logger) {
    this.#directory = join(storage, 'tls', 'ticket-keys');
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Passes the keys (48 bytes) to the follower before it resolves, and at each rotation. Call the function
   * that it resolves to when the keys are no longer needed; without followers the rotation ends. Never
   * rejects: if the storage cannot be used, this process creates keys of its own and logs that.
   */
  async follow(take: (keys: Buffer) => void): Promise<() => void> {
    this.#followers.add(take);
    take(await (this.#keys ?? this.#rotate()));
    return () => {
      this.#followers.delete(take);
      if (this.#followers.size > 0) return;
      this.#cancel();
      this.#keys = null;
    };
  }

  #rotate(): Promise<Buffer> {
    const keys = this.#load();
    this.#keys = keys;
    const untilNext = TICKET_KEYS_MS - (this.#clock.now() % TICKET_KEYS_MS);
    this.#cancel = this.#clock.after(untilNext, () => {
      void this.#rotate().then((next) => {
        for (const take of this.#followers) take(next);
      });
    });
    return keys;
  }

  async #load(): Promise<Buffer> {
    const period = Math.floor(this.#clock.now() / TICKET_KEYS_MS);
    try {
      // A process whose clock is ahead may have begun the next period.
      const keys = (await this.#read(period + 1)) ?? (await this.#readOrMake(period));
      await this.#deleteBefore(period);
      return keys;
    } catch (error) {
      this.#log.warn('Session tickets are not shared: their keys cannot be stored', {
        directory: this.#directory,
        error: messageOf(error),
      });
      return randomBytes(KEY_BYTES);
    }
  }

  async #readOrMake(period: number): Promise<Buffer> {
    const present = await this.#read(period);
    if (present !== null) return present;
    const keys = randomBytes(KEY_BYTES);
    const made = await createPrivate(this.#file(period), keys.toString('base64'));
    return made ? keys : ((await this.#read(period)) ?? keys);
  }

  async #read(period: number): Promise<Buffer | null> {
    const text = await readIfPresent(this.#file(period));
    const keys = Buffer.from(text ?? '', 'base64');
    return keys.length === KEY_BYTES ? keys : null;
  }

  async #deleteBefore(period: number): Promise<void> {
    for (const name of await readdir(this.#directory)) {
      if (/^\d+$/.test(name) && Number(name) < period) {
        await rm(join(this.#directory, name), { force: true });
      }
    }
  }

  #file(period: number): string {
    return join(this.#directory, String(period));
  }
}
