import type { Exchange } from '../http/exchange.ts';
import type { Handshake } from './connection-policy.ts';
import type { ExchangeSettings } from './exchange-settings.ts';

/** Where either protocol delivers what it has read and not refused. */
export interface RequestSink {
  /** Those of the service in force; null where there is none. */
  settings(): ExchangeSettings | null;
  /** @param handshake of its connection; null without TLS */
  take(exchange: Exchange, handshake: Handshake | null): void;
}
