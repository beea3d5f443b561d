import type { ServerOptions } from '../config/config.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { Peer } from './peers.ts';
import type { Handshake } from './connection-policy.ts';

/** The settings that all exchanges of a service have in common. */
export interface ExchangeSettings {
  readonly log: Logger;
  /**
   * Determines the client's address when there are trusted proxies; null for the address of the connection.
   */
  readonly clientAddress: ((headers: HeaderList, peer: string) => string) | null;
  /** The parts of a request that stay as the client wrote them. */
  readonly keeps: Pick<ServerOptions, 'forwardRawPath' | 'underscoresInHeaders'>;
  /** How long a client may be silent in the middle of a body; null for no limit. */
  readonly silence: { readonly limitMs: number; readonly clock: Clock } | null;
}

/** The properties of a connection, independent of the request. */
export interface ExchangeConnection {
  readonly secure: boolean;
  /** null without TLS. */
  readonly tlsVersion: string | null;
  readonly peer: Peer;
  readonly upgrade: UpgradeRequest | null;
}

/** The destination of requests that a protocol has read and not refused. */
export interface RequestSink {
  /** The settings of the active service; null if there is none. */
  settings(): ExchangeSettings | null;
  /** @param handshake the one of its connection; null without TLS */
  take(exchange: Exchange, handshake: Handshake | null): void;
}
