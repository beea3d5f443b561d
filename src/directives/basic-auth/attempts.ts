import type { Clock } from '../../kernel/clock.ts';

/** Wrong passwords of one client within the window. Then it has to wait. */
const MAX_FAILURES = 20;
const WINDOW_MS = 60_000;
/** Concurrent checks of one client. */
const MAX_AT_ONCE = 4;
/** Clients that are remembered; beyond it, the one with the longest inactivity is forgotten. */
const MAX_CLIENTS = 10_000;

interface Client {
  failures: number;
  /** Time at which the window of these failures began, by the monotonic clock. */
  since: number;
  atOnce: number;
}

/** Limits the password checks of each client of one `basic_auth`. */
export class Attempts {
  readonly #clock: Clock;
  readonly #clients = new Map<string, Client>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds until a client may cause its next check; 0 if it need not wait. */
  waitMs(address: string): number {
    const client = this.#current(address);
    if (client.atOnce >= MAX_AT_ONCE) return 1_000;
    if (client.failures < MAX_FAILURES) return 0;
    return client.since + WINDOW_MS - this.#clock.monotonic();
  }

  begin(address: string): void {
    const client = this.#current(address);
    client.atOnce += 1;
    this.#clients.delete(address);
    this.#clients.set(address, client);
    if (this.#clients.size <= MAX_CLIENTS) return;
    for (const [other, { atOnce }] of this.#clients) {
      if (atOnce > 0) continue;
      this.#clients.delete(other);
      break;
    }
  }

  failed(address: string): void {
    this.#current(address).failures += 1;
  }

  end(address: string): void {
    this.#current(address).atOnce -= 1;
  }

  #current(address: string): Client {
    const now = this.#clock.monotonic();
    const known = this.#clients.get(address);
    if (known === undefined) return { failures: 0, since: now, atOnce: 0 };
    if (known.since + WINDOW_MS <= now) Object.assign(known, { failures: 0, since: now });
    return known;
  }
}
