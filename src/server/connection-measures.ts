import { counter, type Family, gauge } from '../kernel/measures.ts';

/** The reason why a connection was closed before anything was read from it. */
type TurnedAway = 'full' | 'client' | 'not_ready';

/** Counters for the connections of all listeners. */
export class ConnectionMeasures {
  accepted = 0;
  open = 0;
  failedHandshakes = 0;
  readonly turnedAway: Record<TurnedAway, number> = { full: 0, client: 0, not_ready: 0 };
  /** By the arguments of {@link handshake}; their values are OpenSSL's. */
  readonly #handshakes = new Map<string, { labels: Record<string, string>; count: number }>();

  handshake(version: string, resumed: boolean, protocol: string): void {
    const key = `${version} ${resumed} ${protocol}`;
    const known = this.#handshakes.get(key);
    if (known !== undefined) known.count += 1;
    else {
      const labels = { version, resumed: resumed ? 'yes' : 'no', protocol };
      this.#handshakes.set(key, { labels, count: 1 });
    }
  }

  families(): readonly Family[] {
    return [
      gauge('hubgate_connections_open', 'Open connections.', this.open),
      counter('hubgate_connections_total', 'Accepted connections.', this.accepted),
      counter(
        'hubgate_connections_turned_away_total',
        'Connections closed at once: the listener was full, one client had too many, or no configuration was active yet.',
        Object.entries(this.turnedAway).map(([reason, count]) => [{ reason }, count]),
      ),
      counter(
        'hubgate_tls_handshakes_total',
        'Successful TLS handshakes, by version, resumption and protocol.',
        [...this.#handshakes.values()].map(({ labels, count }) => [labels, count]),
      ),
      counter(
        'hubgate_tls_handshake_failures_total',
        'Failed TLS handshakes.',
        this.failedHandshakes,
      ),
    ];
  }
}
