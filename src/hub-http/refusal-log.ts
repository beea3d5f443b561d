import type { Diagnosis } from '../auth/verify.ts';
import type { Exchange } from '../http/exchange.ts';
import type { LogFields } from '../kernel/log.ts';

/** Clients of which a hub remembers that they have been told of. */
const MAX_CLIENTS = 1_000;
/** A line for each power of two: who comes back for ever fills no disk. */
const isTold = (count: number): boolean => (count & (count - 1)) === 0;

/**
 * Tells the operator alone why a request is refused: the first time of a client and reason, and
 * then with the count at its second, fourth, eighth … time.
 */
export class RefusalLog {
  readonly #counts = new Map<string, number>();

  write(exchange: Exchange, diagnosis: Diagnosis, more: LogFields = {}): void {
    const key = `${diagnosis.check} ${exchange.clientAddress}`;
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.delete(key);
    this.#counts.set(key, count);
    if (this.#counts.size > MAX_CLIENTS) this.#forgetOldest();
    if (!isTold(count)) return;
    exchange.log.warn('The hub refused a request', {
      client: exchange.clientAddress,
      ...(count > 1 ? { times: count } : {}),
      ...more,
      ...diagnosis,
    });
  }

  #forgetOldest(): void {
    for (const key of this.#counts.keys()) {
      this.#counts.delete(key);
      return;
    }
  }
}
