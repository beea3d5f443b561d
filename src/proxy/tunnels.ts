import { breakOff } from '../http/body-end.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import { switchHttp2 } from './extended-connect.ts';
import type { TunnelEnds, UpgradeSink, UpgradeTarget } from './upgrade-request.ts';

/** Whether the exchange asks for a WebSocket, the only supported protocol for upgrades. */
export function wantsWebSocket(exchange: Exchange): boolean {
  const { upgrade } = exchange;
  if (upgrade === null) return false;
  if (upgrade.kind === 'http2') return upgrade.protocol === 'websocket';
  return (
    exchange.method === 'GET' && exchange.headers.get('upgrade')?.toLowerCase() === 'websocket'
  );
}

/** http-proxy-3 is loaded for the first WebSocket; commands that only read a configuration never need it. */
async function switchHttp1(
  exchange: Exchange,
  upgrade: Extract<UpgradeRequest, { kind: 'http1' }>,
  target: UpgradeTarget,
  sink: UpgradeSink,
): Promise<TunnelEnds | null> {
  const upgrades = await import('./upgrade.ts');
  return upgrades.switchHttp1(exchange, upgrade, target, sink);
}

/** The upgraded connections of one reverse proxy. */
export class Tunnels {
  readonly #clock: Clock;
  readonly #streamTimeoutMs: number;
  readonly #closeDelayMs: number;
  readonly #open = new Set<() => void>();
  /** Time of the call of {@link close}, in monotonic milliseconds. */
  #closedAt: number | null = null;

  /** Both in milliseconds, 0 for no limit: the longest life, and the time left after `close`. */
  constructor(clock: Clock, limits: { streamTimeoutMs: number; streamCloseDelayMs: number }) {
    this.#clock = clock;
    this.#streamTimeoutMs = limits.streamTimeoutMs;
    this.#closeDelayMs = limits.streamCloseDelayMs;
  }

  /** Ends all tunnels after the configured delay, including those that open in the meantime. */
  close(): void {
    if (this.#closeDelayMs === 0) return;
    this.#closedAt = this.#clock.monotonic();
    if (this.#open.size === 0) return;
    this.#clock.after(this.#closeDelayMs, () => {
      for (const end of this.#open) end();
    });
  }

  /**
   * Asks the upstream to switch. Resolves when the connection has ended, or when the upstream's refusal has
   * been sent to the client.
   *
   * @throws ForwardError
   */
  async open(
    exchange: Exchange,
    upgrade: UpgradeRequest,
    target: UpgradeTarget,
    sink: UpgradeSink,
  ): Promise<void> {
    const peers =
      upgrade.kind === 'http1'
        ? await switchHttp1(exchange, upgrade, target, sink)
        : await switchHttp2(exchange, upgrade.stream, target, sink);
    if (peers !== null) await this.#watch(peers);
  }

  /** How long a tunnel that opens now may live; null for no limit. */
  #lifeMs(): number | null {
    const limits = this.#streamTimeoutMs === 0 ? [] : [this.#streamTimeoutMs];
    if (this.#closedAt !== null) {
      limits.push(Math.max(0, this.#closedAt + this.#closeDelayMs - this.#clock.monotonic()));
    }
    return limits.length === 0 ? null : Math.min(...limits);
  }

  #watch({ client, upstream }: TunnelEnds): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        breakOff(client);
        upstream.destroy();
      };
      const lifeMs = this.#lifeMs();
      const cancel = lifeMs === null ? () => {} : this.#clock.after(lifeMs, end);
      this.#open.add(end);
      let left = 2;
      const onClose = (): void => {
        left -= 1;
        if (left > 0) return;
        cancel();
        this.#open.delete(end);
        resolve();
      };
      for (const peer of [client, upstream]) {
        if (peer.closed) onClose();
        else peer.once('close', onClose);
      }
    });
  }
}
