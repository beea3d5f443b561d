import type { Exchange } from '../http/exchange.ts';
import type { ExchangeSettings } from './exchange-settings.ts';

/** Where either protocol delivers what it has read and not refused. */
export interface RequestSink {
  /** Those of the service in force; null where there is none. */
  settings(): ExchangeSettings | null;
  /** @param policyId of the handshake of its connection; null without TLS */
  take(exchange: Exchange, policyId: string | null): void;
}
