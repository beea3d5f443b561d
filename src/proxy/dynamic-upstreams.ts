import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { type Clock, LONGEST_TIMER_MS } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { upstreamAddress } from './address.ts';
import type { DynamicConfig } from './proxy-config.ts';

/** Most upstreams of one list; further ones in the DNS response are left out. */
export const MAX_DYNAMIC_UPSTREAMS = 256;

/** How soon a failed lookup is repeated, unless the refresh interval is shorter. */
const RETRY_MS = 5_000;

/** How often a name server is asked before a lookup counts as failed. */
const TRIES = 2;

/** A user of the list. */
export interface DynamicListener {
  /** The upstreams have changed; null if none are known any more. */
  changed(origins: readonly string[] | null): void;
  /** A lookup has failed. The old list is used as long as it is kept. */
  failed(error: unknown): void;
}

/** Upstreams from the DNS, looked up regularly; shared across reloads. */
export class DynamicUpstreams {
  /** Origins in the format of `parseUpstream`; null if none are known. */
  origins: readonly string[] | null = null;
  /** Resolved when the first lookup has ended, successfully or not. */
  readonly ready: Promise<void>;
  readonly #config: DynamicConfig;
  readonly #clock: Clock;
  readonly #resolver: Resolver;
  readonly #listeners = new Set<DynamicListener>();
  #failingSince: number | null = null;
  #stopTimer: () => void = () => {};
  #isClosed = false;

  constructor(config: DynamicConfig, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
    const timeout = Math.min(config.dialTimeoutMs, LONGEST_TIMER_MS);
    this.#resolver = new Resolver({ timeout, tries: TRIES });
    if (config.resolvers.length > 0) this.#resolver.setServers(config.resolvers);
    this.ready = this.#refresh();
  }

  /** Adds a listener. The returned function removes it. */
  listen(listener: DynamicListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#isClosed = true;
    this.#stopTimer();
    this.#resolver.cancel();
  }

  async #refresh(): Promise<void> {
    let error: unknown = null;
    try {
      this.#take(await this.#lookUp());
    } catch (cause) {
      error = cause;
    }
    if (this.#isClosed) return;
    const { refreshMs } = this.#config;
    if (error === null) this.#failingSince = null;
    else this.#fail(error);
    const delay = error === null ? refreshMs : Math.min(refreshMs, RETRY_MS, this.#graceLeft());
    this.#stopTimer = this.#clock.after(delay, () => void this.#refresh());
  }

  #take(origins: readonly string[]): void {
    if (this.#isClosed || origins.join(' ') === this.origins?.join(' ')) return;
    this.origins = origins;
    for (const listener of this.#listeners) listener.changed(origins);
  }

  #fail(error: unknown): void {
    this.#failingSince ??= this.#clock.monotonic();
    for (const listener of this.#listeners) listener.failed(error);
    if (this.origins === null || this.#graceLeft() > 0) return;
    this.origins = null;
    for (const listener of this.#listeners) listener.changed(null);
  }

  /** Milliseconds for which the old list is kept; 0 if there is none any more. */
  #graceLeft(): number {
    const { graceMs } = this.#config;
    if (graceMs === null || this.#failingSince === null || this.origins === null) return Infinity;
    return Math.max(0, this.#failingSince + graceMs - this.#clock.monotonic());
  }

  /** @throws Error of the lookup; HubgateError `no-upstreams` if there are none */
  async #lookUp(): Promise<readonly string[]> {
    const { kind, scheme } = this.#config;
    const places = kind === 'a' ? await this.#addresses() : await this.#services();
    const origins = new Set<string>();
    for (const { host, port } of places) {
      if (origins.size === MAX_DYNAMIC_UPSTREAMS) break;
      const origin = `${scheme}://${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
      // One wrong record must not keep the others from being used.
      if (upstreamAddress(origin) !== null) origins.add(origin);
    }
    if (origins.size > 0) return [...origins];
    throw new HubgateError('no-upstreams', 'DNS has no address for the upstream');
  }

  /** Sorted, so that a response in another order changes nothing. */
  async #addresses(): Promise<readonly { readonly host: string; readonly port: number }[]> {
    const config = this.#config;
    if (config.kind !== 'a') return [];
    const { name, port, versions } = config;
    const lookUps = versions.map((version) => this.#addressesOf(name, version));
    const found = await Promise.allSettled(lookUps);
    const hosts = found.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
    const [failed] = found.filter((one) => one.status === 'rejected');
    if (hosts.length === 0 && failed !== undefined) throw failed.reason;
    return hosts.sort().map((host) => ({ host, port }));
  }

  /** Of the resolvers that are named, else as this machine finds them, /etc/hosts included. */
  async #addressesOf(name: string, version: 'ipv4' | 'ipv6'): Promise<readonly string[]> {
    const isFour = version === 'ipv4';
    if (this.#config.resolvers.length > 0) {
      return isFour ? this.#resolver.resolve4(name) : this.#resolver.resolve6(name);
    }
    const { promise: late, cancel } = this.#tooLate();
    try {
      const found = lookup(name, { all: true, family: isFour ? 4 : 6 });
      return (await Promise.race([found, late])).map(({ address }) => address);
    } finally {
      cancel();
    }
  }

  /** The system's resolver takes no limit. */
  #tooLate(): { readonly promise: Promise<never>; readonly cancel: () => void } {
    let cancel = (): void => {};
    const promise = new Promise<never>((_, reject) => {
      cancel = this.#clock.after(this.#config.dialTimeoutMs, () =>
        reject(new HubgateError('no-upstreams', 'The system did not resolve the name in time')),
      );
    });
    return { promise, cancel };
  }

  /** Sorted by priority (RFC 2782). The weights are left to `lb_policy`. */
  async #services(): Promise<readonly { readonly host: string; readonly port: number }[]> {
    const records = await this.#resolver.resolveSrv(this.#config.name);
    return records
      .filter(({ name, port }) => isHostName(name) && port > 0)
      .map(({ name, port, priority }) => ({ host: name.toLowerCase(), port, priority }))
      .sort((a, b) => a.priority - b.priority || compare(a.host, b.host) || a.port - b.port);
  }
}

/** Not `.`, which means that there is no such service. */
function isHostName(name: string): boolean {
  return /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/i.test(name);
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
