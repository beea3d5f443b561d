import type { ServerOptions } from '../config/config.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { Peer } from './peers.ts';
import type { Handshake } from './connection-policy.ts';

/** What all exchanges of a service have in common. */
export interface ExchangeSettings {
  readonly log: Logger;
  /** The address of the client behind trusted proxies; null takes the connection's. */
  readonly clientAddress: ((headers: HeaderList, peer: string) => string) | null;
  /** What of a request stays as the client wrote it. */
  readonly keeps: Pick<ServerOptions, 'forwardRawPath' | 'underscoresInHeaders'>;
  /** How long a client may be silent in the middle of a body; null for as long as it likes. */
  readonly silence: { readonly limitMs: number; readonly clock: Clock } | null;
}

/** What is known of a connection beside the request. */
export interface ExchangeConnection {
  readonly secure: boolean;
  /** null without TLS. */
  readonly tlsVersion: string | null;
  readonly peer: Peer;
  readonly upgrade: UpgradeRequest | null;
}

/** Where either protocol delivers what it has read and not refused. */
export interface RequestSink {
  /** Those of the service in force; null where there is none. */
  settings(): ExchangeSettings | null;
  /** @param handshake of its connection; null without TLS */
  take(exchange: Exchange, handshake: Handshake | null): void;
}
