import type { UpstreamAddress } from './address.ts';
import type { Connections, ForwardRequest, ForwardSink, TransportSettings } from './forwarding.ts';
import { Http1Connections } from './http1-connections.ts';
import { Http2Sessions, isNoHttp2 } from './http2-sessions.ts';
import type { DialTarget } from './upgrade-request.ts';

/** Milliseconds after which an upstream that has selected HTTP/1.1 is offered HTTP/2 again. */
const CHOICE_AGE_MS = 300_000;

/** `trustPool` contains the PEM certificates that HTTPS is verified against; null: those of the platform. */
export function openConnections(
  address: UpstreamAddress,
  settings: TransportSettings,
  trustPool: string | null,
): Connections {
  const target = { address, settings, trustPool };
  if (address.http2) return new Http2Sessions(target, ['h2']);
  const { versions } = settings;
  if (address.protocol === 'http:' || !versions.includes('2')) return new Http1Connections(target);
  return versions.includes('1.1') ? new EitherVersion(target) : new Http2Sessions(target, ['h2']);
}

/** HTTP/2 if the upstream selects it in the handshake (RFC 7301), otherwise HTTP/1.1. */
class EitherVersion implements Connections {
  readonly #http1: Http1Connections;
  readonly #http2: Http2Sessions;
  #http1Until = -Infinity;

  constructor(target: DialTarget) {
    this.#http1 = new Http1Connections(target);
    this.#http2 = new Http2Sessions(target, ['h2', 'http/1.1']);
  }

  async forward(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    const { clock } = request;
    if (clock.monotonic() < this.#http1Until) return this.#http1.forward(request, sink);
    try {
      await this.#http2.forward(request, sink);
    } catch (error) {
      if (!isNoHttp2(error)) throw error;
      this.#http1Until = clock.monotonic() + CHOICE_AGE_MS;
      await this.#http1.forward(request, sink);
    }
  }

  close(): void {
    this.#http1.close();
    this.#http2.close();
  }

  destroy(): void {
    this.#http1.destroy();
    this.#http2.destroy();
  }
}
