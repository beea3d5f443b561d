import type { Exchange } from '../http/exchange.ts';

/** Who waits for the response, as an exchange tells of it. */
export type RequestingClient = Pick<Exchange, 'abandoned' | 'onAbandoned'>;
